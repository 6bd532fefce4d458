// Latency: each load's address is what the load before it returned.

#define STEPS 16
#define LINE 128

#define CHASE(NAME, LOAD)                                                                        \
    /* Follow `accesses` pointers (a multiple of STEPS) by one thread. Where it begins: entry    \
       (time / 2^18 ns) mod `entries` of `starts`, evenly spaced along the cycle, so that no call \
       finds in a cache what the call before it, or a replay of it, left there. With `resume` and \
       one entry, it begins where the call before ended. A launch finds the L1 empty: before, the \
       threads of the block load the first `present` lines of `lines` into it. */                \
    extern "C" __global__ void NAME(unsigned long long* starts, long long entries,               \
                                    long long resume, long long accesses, const char* lines,     \
                                    long long present, unsigned long long* out) {                \
        unsigned long long now, p, sum = 0;                                                      \
        for (long long i = threadIdx.x; i < present; i += blockDim.x) {                          \
            asm volatile(LOAD ".u64 %0, [%1];" : "=l"(p) : "l"(lines + i * LINE));               \
            sum |= p;                                                                            \
        }                                                                                        \
        if (sum == 1) *out = sum;                                                                \
        __syncthreads();                                                                         \
        if (threadIdx.x != 0) return;                                                            \
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));                                  \
        p = starts[(now >> 18) & (unsigned long long)(entries - 1)];                             \
        _Pragma("unroll 1") for (int i = (int)accesses / STEPS; i > 0; --i) {                    \
            _Pragma("unroll") for (int j = 0; j < STEPS; ++j)                                    \
                asm volatile(LOAD ".u64 %0, [%0];" : "+l"(p));                                   \
        }                                                                                        \
        if (resume) starts[0] = p;                                                               \
        if (p == 0) *out = p;                                                                    \
    }

CHASE(chase_l1, "ld.global")
CHASE(chase_l2, "ld.global.cg")

// Follow a chain by every thread of one block, each `accesses` pointers from its own of `starts`
// on: what the L2 holds for this SM is then what it holds in the long run, which one thread alone
// would take seconds to bring about.
extern "C" __global__ void wander(const unsigned long long* starts, long long accesses,
                                  unsigned long long* out) {
    unsigned long long p = starts[threadIdx.x];
#pragma unroll 1
    for (long long i = accesses; i > 0; --i) asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(p));
    if (p == 0) *out = p;
}

// The same in shared memory: `bytes` of it hold a random cycle of byte offsets, copied from `in`.
extern "C" __global__ void chase_shared(const unsigned* in, long long bytes, long long accesses,
                                        unsigned long long* out) {
    extern __shared__ __align__(128) char shared[];
    unsigned base = (unsigned)__cvta_generic_to_shared(shared);
    for (unsigned i = threadIdx.x * 4; i < (unsigned)bytes; i += blockDim.x * 4)
        *(unsigned*)(shared + i) = base + in[i / 4];
    __syncthreads();
    if (threadIdx.x != 0) return;
    unsigned p = base;
#pragma unroll 1
    for (int i = (int)accesses / STEPS; i > 0; --i) {
#pragma unroll
        for (int j = 0; j < STEPS; ++j) asm volatile("ld.shared.u32 %0, [%0];" : "+r"(p));
    }
    if (p == 0xffffffffu) *out = p;
}

// Latency of each of `lines` lines of the L2 as seen from each SM: one thread a block and a block
// an SM; each line holds its own address, which is loaded `accesses` times (a multiple of STEPS).
// ticks[block][line]: SM clock cycles of all those loads. when[block]: cycles and nanoseconds that
// the block took, which give the clock.
extern "C" __global__ void line_latency(const unsigned long long* lines, long long count,
                                        long long accesses, long long* ticks, long long* when,
                                        unsigned long long* out) {
    unsigned long long begin, end, p = 1;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    long long first = clock64();
    for (long long line = 0; line < count && p != 0; ++line) {
        p = lines[line];
        asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(p));
        // A branch on what a load returned waits for it; only then may the clock be read.
        if (p == 0) break;
        long long before = clock64();
#pragma unroll 1
        for (int i = (int)accesses / STEPS; i > 0; --i) {
#pragma unroll
            for (int j = 0; j < STEPS; ++j) asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(p));
        }
        if (p == 0) break;
        ticks[blockIdx.x * count + line] = clock64() - before;
    }
    long long last = clock64();
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(end));
    when[2 * blockIdx.x] = last - first;
    when[2 * blockIdx.x + 1] = (long long)(end - begin);
    if (p == 0) *out = p;
}
