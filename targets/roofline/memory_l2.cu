// Moves the same megabytes again and again through the L2, 16 bytes a lane, past the L1.
//
// The includer defines
//   OPERATION  READ, WRITE or COPY
//   THREADS    threads a block
//   UNROLL     vectors of 16 bytes that a thread has in flight
//   LOAD       the load instruction, up to its operands, as text
// A slice is THREADS * UNROLL contiguous vectors. A block does `iterations` slices, in order and
// around, of the `slices` that its SM works on. Those are, by `region` (vectors from one SM's
// slices to the next SM's): 0, the whole buffer, which all SMs share; else its own part of it.
// There are more blocks than fit at a time, so that an SM that is served faster does more of them.
#define READ 0
#define WRITE 1
#define COPY 2

__device__ __forceinline__ uint4 load16(const uint4* from) {
    uint4 v;
    asm volatile(LOAD ".v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

__device__ __forceinline__ void store16(uint4* to, uint4 v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w));
}

extern "C" __global__ void __launch_bounds__(THREADS)
    l2_stream(uint4* out, const uint4* in, long long sms, long long region, long long slices,
              long long sm_spread, long long block_spread, long long iterations) {
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    long long offset = (sm % (unsigned)sms) * region + threadIdx.x;
    // Where blocks begin is spread over the slices, or all would want the same ones at a time.
    unsigned count = (unsigned)slices;
    unsigned slice = (blockIdx.x % (unsigned)sms * (unsigned)sm_spread +
                      blockIdx.x / (unsigned)sms * (unsigned)block_spread) % count;
    uint4 sum = make_uint4(blockIdx.x, threadIdx.x, 0x3f000000u, 0xbf000000u);
#pragma unroll 1
    for (int i = (int)iterations; i > 0; --i) {
        long long first = offset + (long long)slice * (THREADS * UNROLL);
        if (++slice == count) slice = 0;
#if OPERATION == WRITE
#pragma unroll
        for (int j = 0; j < UNROLL; ++j) store16(out + first + j * THREADS, sum);
#else
        uint4 v[UNROLL];
#pragma unroll
        for (int j = 0; j < UNROLL; ++j) v[j] = load16(in + first + j * THREADS);
#if OPERATION == COPY
#pragma unroll
        for (int j = 0; j < UNROLL; ++j) store16(out + first + j * THREADS, v[j]);
#else
#pragma unroll
        for (int j = 0; j < UNROLL; ++j) {
            sum.x ^= v[j].x;
            sum.y ^= v[j].y;
            sum.z ^= v[j].z;
            sum.w ^= v[j].w;
        }
#endif
#endif
    }
#if OPERATION == READ
    // Never true but for 1 in 2^96 threads on random data: the compiler must load everything.
    if (sum.x == 0x7fa1c3e5u && sum.y == 0xffb2d4f6u && sum.z == 0x7f9e8d7cu) out[0] = sum;
#endif
}
