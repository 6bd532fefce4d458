// Third set: defects that leave an SM few warps, and their repaired twins (NVRTC, no headers).

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void

__device__ __forceinline__ u64 place() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }

// ---- registers: the few values beyond a limit take a long series ----------------------------------

#define TERMS 56
#define LIMIT 8.0f

__device__ __forceinline__ float soft(float x) { return x / (1 + fabsf(x)); }

__device__ __forceinline__ bool beyond(float2 v) { return fmaxf(fabsf(v.x), fabsf(v.y)) > LIMIT; }

// All terms are live at once.
__device__ __forceinline__ float series(float2 v, const float* table) {
    float term[TERMS];
#pragma unroll
    for (int i = 0; i < TERMS; i++) term[i] = table[i] * v.x;
#pragma unroll 1
    for (int round = 0; round < 4; round++) {
#pragma unroll
        for (int i = 0; i < TERMS; i++) term[i] = term[i] * 0.5f + term[(i + 1) % TERMS] * v.y;
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < TERMS; i++) sum += term[i];
    return sum;
}

__device__ __forceinline__ float2 softened(float2 v) {
    float2 to;
    to.x = soft(v.x);
    to.y = soft(v.y);
    return to;
}

KERNEL soften_with_series(const float2* in, float2* out, const float* table, long long steps) {
    const u64 threads = u64(gridDim.x) * blockDim.x;
    u64 at = place();
#pragma unroll 1
    for (int i = 0; i < int(steps); i++, at += threads) {
        const float2 v = in[at];
        float2 to = softened(v);
        if (beyond(v)) to.x = series(v, table);
        out[at] = to;
    }
}

// Lists the values beyond the limit for the kernel below.
KERNEL soften_and_list(const float2* in, float2* out, u64* listed, u32* count, long long steps) {
    const u64 threads = u64(gridDim.x) * blockDim.x;
    u64 at = place();
#pragma unroll 1
    for (int i = 0; i < int(steps); i++, at += threads) {
        const float2 v = in[at];
        if (beyond(v)) listed[atomicAdd(count, 1u)] = at;
        out[at] = softened(v);
    }
}

// One block; empties the list.
KERNEL series_of_listed(const float2* in, float2* out, const float* table, const u64* listed,
                        u32* count) {
    const u32 all = *count;
    for (u32 i = threadIdx.x; i < all; i += blockDim.x)
        out[listed[i]].x = series(in[listed[i]], table);
    __syncthreads();
    if (threadIdx.x == 0) *count = 0;
}

// ---- shared memory: a horizontal blur of radius 3, whatever space was asked for -------------------

// A block has 256 columns of `rows` rows of an image of gridDim.x x 256 columns.
#define BLUR(NAME)                                                                              \
    KERNEL NAME(const float* in, float* out, long long rows) {                                  \
        extern __shared__ float line[];                                                         \
        const int t = threadIdx.x;                                                              \
        const u64 width = u64(gridDim.x) * 256, x = place();                                    \
        const float* from = in + u64(blockIdx.y) * rows * width;                                \
        float* to = out + u64(blockIdx.y) * rows * width;                                       \
        _Pragma("unroll 1") for (int r = 0; r < int(rows); r++, from += width, to += width) {   \
            line[t + 3] = from[x];                                                              \
            if (t < 3) line[t] = from[x >= 3 ? x - 3 : 0];                                      \
            if (t >= 253) line[t + 6] = from[x + 3 < width ? x + 3 : width - 1];                \
            __syncthreads();                                                                    \
            const float near = line[t + 2] + line[t + 4], next = line[t + 1] + line[t + 5];     \
            to[x] = (line[t] + line[t + 6] + 6 * next + 15 * near + 20 * line[t + 3]) / 64;     \
            __syncthreads();                                                                    \
        }                                                                                       \
    }

BLUR(blur_large_buffer)
BLUR(blur_small_buffer)

// ---- few blocks: int8 weights become bf16, 8 at a time, by a loop over the grid -------------------

__device__ __forceinline__ u32 bf16(u32 packed, int byte, float scale) {
    const float v = float((int)(packed << (24 - 8 * byte)) >> 24) * scale;
    return (__float_as_uint(v) + 0x8000u) >> 16;
}

__device__ __forceinline__ u32 two(u32 packed, int byte, float scale) {
    return bf16(packed, byte, scale) | bf16(packed, byte + 1, scale) << 16;
}

// Rows of 2^row_bits vectors of 8 values have a scale each.
#define DEQUANTISE(NAME)                                                                        \
    KERNEL NAME(const uint2* in, const float* scales, uint4* out, long long count,              \
                long long row_bits) {                                                           \
        const u64 threads = u64(gridDim.x) * blockDim.x;                                        \
        for (u64 i = place(); i < u64(count); i += threads) {                                   \
            const uint2 v = in[i];                                                              \
            const float scale = scales[i >> row_bits];                                          \
            uint4 to;                                                                           \
            to.x = two(v.x, 0, scale);                                                          \
            to.y = two(v.x, 2, scale);                                                          \
            to.z = two(v.y, 0, scale);                                                          \
            to.w = two(v.y, 2, scale);                                                          \
            out[i] = to;                                                                        \
        }                                                                                       \
    }

DEQUANTISE(dequantise_block_per_sm)
DEQUANTISE(dequantise_all_blocks)

// ---- blocks: the cross entropy of rows of 256 bf16 logits, a warp for one row after another ------

__device__ __forceinline__ float low(u32 two) { return __uint_as_float(two << 16); }
__device__ __forceinline__ float high(u32 two) { return __uint_as_float(two & 0xFFFF0000u); }

#define ENTROPY(NAME)                                                                           \
    KERNEL NAME(const uint4* logits, const int* targets, float* losses, long long rows) {       \
        const u64 first = place() / 32 * u64(rows);                                             \
        const int lane = threadIdx.x % 32;                                                      \
        _Pragma("unroll 1") for (u64 row = first; row < first + u64(rows); row++) {             \
            const uint4 v = logits[row * 32 + lane];                                            \
            const u32 target = ((const u16*)logits)[row * 256 + targets[row]];                  \
            const float x[8] = {low(v.x), high(v.x), low(v.y), high(v.y),                       \
                                low(v.z), high(v.z), low(v.w), high(v.w)};                      \
            float most = x[0], sum = 0;                                                         \
            _Pragma("unroll") for (int i = 1; i < 8; i++) most = fmaxf(most, x[i]);             \
            _Pragma("unroll") for (int by = 16; by; by /= 2)                                    \
                most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, by));                     \
            _Pragma("unroll") for (int i = 0; i < 8; i++) sum += __expf(x[i] - most);           \
            _Pragma("unroll") for (int by = 16; by; by /= 2)                                    \
                sum += __shfl_xor_sync(0xFFFFFFFFu, sum, by);                                   \
            if (lane == 0) losses[row] = most + __logf(sum) - low(target);                      \
        }                                                                                       \
    }

ENTROPY(entropy_blocks_of_32)
ENTROPY(entropy_blocks_of_256)
