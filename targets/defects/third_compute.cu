// Third set: defects of arithmetic and its distribution, and their repaired twins (NVRTC).

typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void

__device__ __forceinline__ u64 place() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }

// ---- tail: forces of sources on bodies; a block takes the slice blockIdx.y of the sources --------

// `slice` sources, a multiple of 64; a body and a source are a place and a mass.
#define FORCES(NAME)                                                                            \
    KERNEL __launch_bounds__(512, 4)                                                            \
    NAME(const float4* bodies, const float4* sources, float* forces, long long slice) {         \
        __shared__ float4 tile[64];                                                             \
        const float4 body = bodies[place()];                                                    \
        const float4* from = sources + u64(blockIdx.y) * slice;                                 \
        float x = 0, y = 0, z = 0;                                                              \
        for (int first = 0; first < int(slice); first += 64) {                                  \
            if (threadIdx.x < 64) tile[threadIdx.x] = from[first + threadIdx.x];                \
            __syncthreads();                                                                    \
            _Pragma("unroll 4") for (int i = 0; i < 64; i++) {                                  \
                const float4 s = tile[i];                                                       \
                const float dx = s.x - body.x, dy = s.y - body.y, dz = s.z - body.z;            \
                const float near = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f);                 \
                const float pull = s.w * near * near * near;                                    \
                x += pull * dx;                                                                 \
                y += pull * dy;                                                                 \
                z += pull * dz;                                                                 \
            }                                                                                   \
            __syncthreads();                                                                    \
        }                                                                                       \
        atomicAdd(forces + 3 * place(), x);                                                     \
        atomicAdd(forces + 3 * place() + 1, y);                                                 \
        atomicAdd(forces + 3 * place() + 2, z);                                                 \
    }

FORCES(forces_some_blocks_more)
FORCES(forces_in_slices)

// ---- small grid: Asian options by Monte Carlo, option blockIdx.y, paths of 32 steps ---------------

__device__ __forceinline__ u32 mixed(u32 s) {
    s ^= s >> 16;
    s *= 0x7FEB352Du;
    s ^= s >> 15;
    s *= 0x846CA68Bu;
    return s ^ s >> 16;
}

__device__ __forceinline__ double across_warp(double v) {
#pragma unroll
    for (int by = 16; by; by /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, by);
    return v;
}

#define ASIAN(NAME)                                                                             \
    KERNEL __launch_bounds__(1024, 2) NAME(const float* strikes, double* sums, long long paths) { \
        const float strike = strikes[blockIdx.y];                                               \
        double all = 0;                                                                         \
        for (u32 path = u32(place()); path < u32(paths); path += gridDim.x * 1024) {            \
            float price = 1, sum = 0;                                                           \
            _Pragma("unroll 4") for (int step = 0; step < 32; step++) {                         \
                const u32 s = mixed(path * 32 + step);                                          \
                const float walk = float(int(s >> 16) + int(s & 0xFFFFu) - 65535) / 65536;      \
                price *= __expf(0.05f * walk);                                                  \
                sum += price;                                                                   \
            }                                                                                   \
            all += fmaxf(sum / 32 - strike, 0.0f);                                              \
        }                                                                                       \
        all = across_warp(all);                                                                 \
        if (threadIdx.x % 32 == 0) atomicAdd(sums + blockIdx.y, all);                           \
    }

ASIAN(asian_block_per_option)
ASIAN(asian_blocks_per_option)

// ---- imbalance: concordant pairs j < i of two rankings (Kendall's tau), 256 values i a block ------

// Four threads share an i: pairs with j from `begin` up to `end`.
__device__ __forceinline__ u32 concordant(const float2* v, int i, int begin, int end) {
    const float2 mine = v[i];
    u32 count = 0;
#pragma unroll 4
    for (int j = begin + int(threadIdx.x % 4); j < end; j += 4)
        count += (mine.x - v[j].x) * (mine.y - v[j].y) > 0;
    return count;
}

__device__ __forceinline__ void add(u64* to, u32 count) {
    count = __reduce_add_sync(0xFFFFFFFFu, count);
    if (threadIdx.x % 32 == 0) atomicAdd(to, u64(count));
}

// Block b has the pairs of its own values: 0 up to i of them.
KERNEL __launch_bounds__(1024, 2) pairs_of_own_values(const float2* v, u64* pairs) {
    const int i = blockIdx.x * 256 + threadIdx.x / 4;
    add(pairs, concordant(v, i, 0, i));
}

// Block b has half of the pairs of its own values, and half of those of the last block but b.
KERNEL __launch_bounds__(1024, 2) pairs_of_mirrored_values(const float2* v, u64* pairs) {
    const int i = blockIdx.x * 256 + threadIdx.x / 4;
    const int other = (gridDim.x - 1 - blockIdx.x) * 256 + threadIdx.x / 4;
    add(pairs, concordant(v, i, 0, i / 2) + concordant(v, other, other / 2, other));
}

// ---- divergence: rays meet spheres or boxes, step by step -----------------------------------------

// A shape is where it is and its size; a ray starts at 0 and goes along x by a quarter of the distance
// to the shape, by 1 at most: behind a shape that it misses, the distance would grow to infinity.
#define TRACE(NAME)                                                                             \
    KERNEL NAME(const long long* order, const int* boxes, const float4* shapes, float* out,     \
                long long steps) {                                                              \
        const u64 item = order[place()];                                                        \
        const float4 s = shapes[item];                                                          \
        float at = 0;                                                                           \
        if (boxes[item]) {                                                                      \
            _Pragma("unroll 1") for (int i = 0; i < int(steps); i++) {                          \
                const float x = fmaxf(fabsf(at - s.x) - s.w, 0.0f);                             \
                const float y = fmaxf(fabsf(s.y) - s.w, 0.0f), z = fmaxf(fabsf(s.z) - s.w, 0.0f); \
                at += fminf(0.25f * sqrtf(x * x + y * y + z * z + 1e-6f), 1.0f);                \
            }                                                                                   \
        } else {                                                                                \
            _Pragma("unroll 1") for (int i = 0; i < int(steps); i++) {                          \
                const float x = at - s.x;                                                       \
                at += fminf(0.25f * fabsf(sqrtf(x * x + s.y * s.y + s.z * s.z) - s.w), 1.0f);   \
            }                                                                                   \
        }                                                                                       \
        out[item] = at;                                                                         \
    }

TRACE(trace_as_they_come)
TRACE(trace_sorted_by_shape)

// ---- unfused multiply-adds: beams of an array of antennas; -fmad=false or not ---------------------

// A thread has a direction: its phasor turns by the same angle from one antenna to the next.
#define BEAMS(NAME)                                                                             \
    KERNEL __launch_bounds__(1024, 2)                                                           \
    NAME(const float2* signals, float* power, long long antennas, double spread) {              \
        const float t = float(place() % 4096) * float(spread);                                  \
        const float re = (1 - t * t) / (1 + t * t), im = 2 * t / (1 + t * t);                   \
        float x = 1, y = 0, a = 0, b = 0;                                                       \
        _Pragma("unroll 4") for (int i = 0; i < int(antennas); i++) {                           \
            const float2 s = signals[i];                                                        \
            a += s.x * x;                                                                       \
            a -= s.y * y;                                                                       \
            b += s.x * y;                                                                       \
            b += s.y * x;                                                                       \
            const float turned = x * re - y * im;                                               \
            y = x * im + y * re;                                                                \
            x = turned;                                                                         \
        }                                                                                       \
        power[place()] = a * a + b * b;                                                         \
    }

BEAMS(beams_unfused)
BEAMS(beams_fused)

// ---- spills: the best path through a left-to-right hidden Markov model of 64 states ---------------

#define STATES 64

// -maxrregcount=48 or not. All states of a sequence are live.
#define VITERBI(NAME)                                                                           \
    KERNEL NAME(const float* scores, float* best, long long frames, double decay) {             \
        float state[STATES];                                                                    \
        _Pragma("unroll") for (int s = 0; s < STATES; s++)                                      \
            state[s] = float((u32(place()) * 7 + s * 5) & 31);                                  \
        _Pragma("unroll 1") for (int frame = 0; frame < int(frames); frame++) {                 \
            const float stay = scores[frame] * float(decay), go = stay - 0.5f;                  \
            _Pragma("unroll") for (int s = STATES - 1; s; s--)                                  \
                state[s] = fmaxf(state[s] + stay, state[s - 1] + go);                           \
            state[0] += stay;                                                                   \
        }                                                                                       \
        float sum = 0;                                                                          \
        _Pragma("unroll") for (int s = 0; s < STATES; s++) sum += state[s] * (s + 1);           \
        best[place()] = sum;                                                                    \
    }

VITERBI(viterbi_48_registers)
VITERBI(viterbi_all_registers)
