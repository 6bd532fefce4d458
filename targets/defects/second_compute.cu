// Second set: defects of arithmetic and its distribution, and their repaired twins (NVRTC).

typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void

__device__ __forceinline__ u64 place() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }

// ---- tail: how many of the samples are inside a circle; sample s is the hash of s ----------------

__device__ __forceinline__ u32 inside(u32 s) {
    s ^= s >> 16;
    s *= 0x7FEB352Du;
    s ^= s >> 15;
    s *= 0x846CA68Bu;
    s ^= s >> 16;
    const u32 x = s >> 17, y = s & 0x7FFFu;
    return x * x + y * y < (1u << 30);
}

// A thread has samples place(), place() + threads of the grid, ...: `rounds` of them.
#define CIRCLE(NAME)                                                                     \
    KERNEL __launch_bounds__(1024, 2) NAME(u64* hits, long long rounds) {                \
        __shared__ u32 parts[32];                                                        \
        const u32 threads = gridDim.x * 1024;                                            \
        u32 s = u32(place()), count = 0;                                                 \
        _Pragma("unroll 4") for (int i = 0; i < int(rounds); i++, s += threads)          \
            count += inside(s);                                                          \
        count = __reduce_add_sync(0xFFFFFFFFu, count);                                   \
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = count;                      \
        __syncthreads();                                                                 \
        if (threadIdx.x < 32) {                                                          \
            count = __reduce_add_sync(0xFFFFFFFFu, parts[threadIdx.x]);                  \
            if (threadIdx.x == 0) atomicAdd(hits, u64(count));                           \
        }                                                                                \
    }

CIRCLE(circle_some_blocks_more)
CIRCLE(circle_whole_wave)

// ---- divergence: each item takes its own number of steps -----------------------------------------

#define SOLVE(NAME)                                                             \
    KERNEL NAME(const long long* order, const int* steps, float* out) {         \
        const u64 item = order[place()];                                        \
        const int count = steps[item];                                          \
        float x = float(item % 1024) / 1024;                                    \
        for (int i = 0; i < count; i++) {                                       \
            const float y = fmaf(x, x, -0.4f);                                  \
            x = fmaf(y, 0.5f, 0.3f);                                            \
        }                                                                       \
        out[item] = x;                                                          \
    }

SOLVE(solve_as_they_come)
SOLVE(solve_sorted_by_steps)

// ---- unfused multiply-adds: Horner steps in FP64, rounded twice or once --------------------------

__device__ __forceinline__ double twice_rounded(double x, double a, double b) {
    return __dadd_rn(__dmul_rn(x, a), b);
}

__device__ __forceinline__ double once_rounded(double x, double a, double b) {
    return fma(x, a, b);
}

#define HORNER(NAME, STEP)                                                                      \
    KERNEL __launch_bounds__(1024, 2) NAME(double* out, long long rounds, double a, double b) { \
        double x = double(place() % 4096), y = x + 1;                                           \
        _Pragma("unroll 4") for (int i = 0; i < int(rounds); i++) {                             \
            x = STEP(x, a, b);                                                                  \
            y = STEP(y, a, b);                                                                  \
        }                                                                                       \
        out[place()] = x + y;                                                                   \
    }

HORNER(horner_rounded_twice, twice_rounded)
HORNER(horner_rounded_once, once_rounded)

// ---- spills: a ring of 24 coupled oscillators a thread, in FP64 ----------------------------------

#define RING 24

// 24 values of 8 bytes take 48 registers; two blocks of 1024 threads an SM leave a thread 32.
#define OSCILLATORS(NAME, ...)                                                                  \
    KERNEL __launch_bounds__(__VA_ARGS__) NAME(double* out, long long rounds, double a) {       \
        double s[RING];                                                                         \
        _Pragma("unroll") for (int i = 0; i < RING; i++) s[i] = double((place() + i) % 97);     \
        _Pragma("unroll 1") for (int round = 0; round < int(rounds); round++)                   \
            _Pragma("unroll") for (int i = 0; i < RING; i++)                                    \
                s[i] = fma(s[(i + 1) % RING] - s[i], a, s[i]);                                  \
        double sum = 0;                                                                         \
        _Pragma("unroll") for (int i = 0; i < RING; i++) sum += s[i] * (i + 1);                 \
        out[place()] = sum;                                                                     \
    }

OSCILLATORS(oscillators_32_registers, 1024, 2)
OSCILLATORS(oscillators_all_registers, 256)
