// Chains of fused multiply-adds in registers: nothing but the pipe of one precision is at work.
//
// Compiled by NVRTC with -D for: REAL (1 fp64, 2 fp32, 3 packed fp16), CHAINS (independent chains a
// thread, to cover the latency of the pipe), UNROLL (links of each chain in one turn of the loop).
//
// A link is x <- x * x + c: two registers to read. x <- x * a + c has three, and that costs: 118 of
// 128 FLOP a clock and SM in fp64, 253 of 256 in fp32 (H200). With -2 < c < -1.5 the numbers stay
// within -2 and 2 for ever and are chaotic (the quadratic map), so that all their bits keep changing.

#if REAL == 1
typedef double value;
__device__ __forceinline__ void link(value &x, value c) { x = fma(x, x, c); }
__device__ __forceinline__ bool never(value x) { return x == 1e300; }
#elif REAL == 2
typedef float value;
__device__ __forceinline__ void link(value &x, value c) { x = fmaf(x, x, c); }
__device__ __forceinline__ bool never(value x) { return x == 1e30f; }
#else
typedef unsigned value;  // two fp16 numbers; NVRTC has no cuda_fp16.h at hand
__device__ __forceinline__ void link(value &x, value c)
{
    asm("fma.rn.f16x2 %0, %0, %0, %1;" : "+r"(x) : "r"(c));
}
__device__ __forceinline__ bool never(value x) { return x == 0x7bff7bffu; }
#endif

// `numbers` holds 1 + CHAINS values for each thread of a block: the summand and the starts.
extern "C" __global__ void fma_chains(const value *numbers, value *out, long long turns)
{
    const int thread = threadIdx.x, threads = blockDim.x;
    const value summand = numbers[thread];
    value chain[CHAINS];
#pragma unroll
    for (int i = 0; i < CHAINS; i++)
        chain[i] = numbers[thread + (1 + i) * threads];
#pragma unroll 1
    for (long long turn = 0; turn < turns; turn++) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
#pragma unroll
            for (int i = 0; i < CHAINS; i++)
                link(chain[i], summand);
        }
    }
    // The result must look needed, and must cost nothing.
#pragma unroll
    for (int i = 0; i < CHAINS; i++)
        if (never(chain[i]))
            out[thread] = chain[i];
}
