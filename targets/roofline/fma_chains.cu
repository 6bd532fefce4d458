// Chains of fused multiply-adds in registers: nothing but the pipe of one precision is at work.
//
// Compiled by NVRTC with -D for: REAL (1 fp64, 2 fp32, 3 packed fp16), CHAINS (independent chains a
// thread, to cover the latency of the pipe), UNROLL (links of each chain in one turn of the loop).

#if REAL == 1
typedef double value;
__device__ __forceinline__ void link(value &a, value b, value c) { a = fma(a, b, c); }
__device__ __forceinline__ bool never(value a) { return a == 1e300; }
#elif REAL == 2
typedef float value;
__device__ __forceinline__ void link(value &a, value b, value c) { a = fmaf(a, b, c); }
__device__ __forceinline__ bool never(value a) { return a == 1e30f; }
#else
typedef unsigned value;  // two fp16 numbers; NVRTC has no cuda_fp16.h at hand
__device__ __forceinline__ void link(value &a, value b, value c)
{
    asm("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(a) : "r"(b), "r"(c));
}
__device__ __forceinline__ bool never(value a) { return a == 0x7bff7bffu; }
#endif

// `numbers` holds 2 + CHAINS values a thread: factor, summand, starts. |factor| < 1 keeps it finite.
extern "C" __global__ void fma_chains(const value *numbers, value *out, long long turns)
{
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long threads = (long long)gridDim.x * blockDim.x;
    const value factor = numbers[thread];
    const value summand = numbers[thread + threads];
    value chain[CHAINS];
#pragma unroll
    for (int i = 0; i < CHAINS; i++)
        chain[i] = numbers[thread + (2 + i) * threads];
#pragma unroll 1
    for (long long turn = 0; turn < turns; turn++) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
#pragma unroll
            for (int i = 0; i < CHAINS; i++)
                link(chain[i], factor, summand);
        }
    }
    // The result must look needed, and must cost nothing.
#pragma unroll
    for (int i = 0; i < CHAINS; i++)
        if (never(chain[i]))
            out[thread] = chain[i];
}
