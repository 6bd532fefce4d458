// Each SM reads its own few kilobytes again and again: from the L1 cache or from shared memory.
//
// The includer defines
//   THREADS  threads a block
//   UNROLL   loads that a thread has in flight
//   WORDS    32-bit words of a load: 4, 2 or 1
//   HOP      bytes from one of those loads to the next
//   LEVEL    L1 or SHARED
#define L1 0
#define SHARED 1

struct Vector {
    unsigned word[WORDS];
};

#if LEVEL == L1
typedef const char* Place;
#define LOAD "ld.global"
#define ADDRESS "l"
#else
typedef unsigned Place;
#define LOAD "ld.shared"
#define ADDRESS "r"
#endif

__device__ __forceinline__ void load(Vector& v, Place p) {
#if WORDS == 4
    asm volatile(LOAD ".v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : ADDRESS(p));
#elif WORDS == 2
    asm volatile(LOAD ".v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.word[0]), "=r"(v.word[1])
                 : ADDRESS(p));
#else
    asm volatile(LOAD ".u32 %0, [%1];" : "=r"(v.word[0]) : ADDRESS(p));
#endif
}

// The block's own `bytes` of `in`, in shared memory as a copy. Lane l of a warp reads at l * stride
// loads from its warp's place (a stride of 1: all lanes read neighbouring words), then UNROLL - 1
// times HOP further, and then alternately `half` bytes further and back. That changes the
// addresses, so that no compiler takes a load out of the loop; it costs four issue slots, and loads
// leave most of them free (one of 512 bytes occupies the data path for 4 cycles of 16 slots).
// `mask`, a power of two less one, keeps the warps' places in the buffer.
extern "C" __global__ void __launch_bounds__(THREADS)
    sm_read(unsigned* out, const char* in, long long bytes, long long stride, long long mask,
            long long half, long long iterations) {
    in += blockIdx.x * bytes;
    unsigned offset = ((threadIdx.x / 32 * (128 * WORDS) * (unsigned)stride) & (unsigned)mask) +
                      threadIdx.x % 32 * (4 * WORDS) * (unsigned)stride;
#if LEVEL == SHARED
    extern __shared__ __align__(128) char shared[];
    for (unsigned i = threadIdx.x * 4; i < (unsigned)bytes; i += THREADS * 4)
        *(unsigned*)(shared + i) = *(const unsigned*)(in + i);
    __syncthreads();
    Place p = (unsigned)__cvta_generic_to_shared(shared) + offset;
    int step = (int)half;
#else
    Place p = in + offset;
    long long step = half;
#endif
    // What this says it may have changed, the compiler keeps in a register and does not recompute.
    asm volatile("" : "+" ADDRESS(p));
    unsigned sum[WORDS] = {};
#pragma unroll 1
    for (int i = (int)iterations; i > 0; --i) {
        Vector v[UNROLL];
#pragma unroll
        for (int j = 0; j < UNROLL; ++j) load(v[j], p + j * HOP);
#pragma unroll
        for (int j = 0; j < UNROLL; ++j)
#pragma unroll
            for (int w = 0; w < WORDS; ++w) sum[w] ^= v[j].word[w];
        p += step;
        step = -step;
    }
    unsigned all = 0;
#pragma unroll
    for (int w = 0; w < WORDS; ++w) all ^= sum[w];
    // Hardly ever true, and the compiler cannot know: it must load everything.
    if (all == 0x7fa1c3e5u) out[0] = all;
}
