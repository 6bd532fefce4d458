// Second set: defects of memory accesses and their repaired twins, compiled by NVRTC (no headers).
// Both of a pair compute the same values.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void

__device__ __forceinline__ u64 place() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }

template <typename T>
__device__ __forceinline__ T across_warp(T v) {
#pragma unroll
    for (int lanes = 16; lanes; lanes /= 2) v += __shfl_down_sync(0xFFFFFFFFu, v, lanes);
    return v;
}

// ---- uncoalesced loads: y = A x, A of rows (rows, columns) in FP64 ------------------------------

KERNEL gemv_thread_per_row(const double* a, const double* x, double* y, long long columns) {
    const double* from = a + place() * columns;
    double sum = 0;
    for (int k = 0; k < int(columns); k++) sum += from[k] * x[k];
    y[place()] = sum;
}

KERNEL gemv_warp_per_row(const double* a, const double* x, double* y, long long columns) {
    const u64 row = place() / 32;
    double sum = 0;
    for (int k = threadIdx.x % 32; k < int(columns); k += 32) sum += a[row * columns + k] * x[k];
    sum = across_warp(sum);
    if (threadIdx.x % 32 == 0) y[row] = sum;
}

// ---- uncoalesced stores: keys (tokens, dims) go into a cache (dims, tokens), two bytes each ------

// Lanes are neighbours in `dims`: each stores into a row of its own. Block of 256, 8 tokens.
KERNEL cache_keys_by_dims(const u16* in, u16* out, long long tokens, long long dims) {
    const u64 dim = u64(blockIdx.y) * 256 + threadIdx.x, token = u64(blockIdx.x) * 8;
    u16 v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = in[(token + i) * dims + dim];
#pragma unroll
    for (int i = 0; i < 8; i++) out[dim * tokens + token + i] = v[i];
}

// Through a tile of 64 x 64: lanes are neighbours in `tokens` when they store. Block 32 x 8.
KERNEL cache_keys_by_tokens(const u16* in, u16* out, long long tokens, long long dims) {
    __shared__ u16 tile[64][65];
    const u64 token = u64(blockIdx.x) * 64, dim = u64(blockIdx.y) * 64;
    const int lane = threadIdx.x;
#pragma unroll
    for (int r = threadIdx.y; r < 64; r += 8) {
        const u32 two = *(const u32*)(in + (token + r) * dims + dim + 2 * lane);
        tile[r][2 * lane] = u16(two);
        tile[r][2 * lane + 1] = u16(two >> 16);
    }
    __syncthreads();
#pragma unroll
    for (int d = threadIdx.y; d < 64; d += 8) {
        const u32 two = tile[2 * lane][d] | u32(tile[2 * lane + 1][d]) << 16;
        *(u32*)(out + (dim + d) * tokens + token + 2 * lane) = two;
    }
}

// ---- bank conflicts: C = A B^T by hand, A (m, k), B (n, k), tiles of 32 x 32 ---------------------

// Each lane walks along its row of `right`: rows 32 words apart start in the same bank.
#define PRODUCT(NAME, PITCH)                                                                     \
    KERNEL __launch_bounds__(1024, 2) NAME(const float* a, const float* b, float* c,             \
                                           long long n, long long k) {                           \
        __shared__ float left[32][32], right[32][PITCH];                                         \
        const int x = threadIdx.x, y = threadIdx.y;                                              \
        const u64 row = u64(blockIdx.y) * 32 + y, first = u64(blockIdx.x) * 32;                  \
        float sum = 0;                                                                           \
        for (int step = 0; step < int(k); step += 32) {                                          \
            left[y][x] = a[row * k + step + x];                                                  \
            right[y][x] = b[(first + y) * k + step + x];                                         \
            __syncthreads();                                                                     \
            _Pragma("unroll") for (int i = 0; i < 32; i++) sum += left[y][i] * right[x][i];      \
            __syncthreads();                                                                     \
        }                                                                                        \
        c[row * n + first + x] = sum;                                                            \
    }

PRODUCT(product_rows_32_apart, 32)
PRODUCT(product_rows_33_apart, 33)

// ---- L2 thrashing: scores of a few queries (FP32) against many keys (bf16), 512 values each ------

__device__ __forceinline__ float low(u32 two) { return __uint_as_float(two << 16); }
__device__ __forceinline__ float high(u32 two) { return __uint_as_float(two & 0xFFFF0000u); }

__device__ __forceinline__ float dot(u32 two, const float* with) {
    return low(two) * with[0] + high(two) * with[1];
}

// A block has a chunk of 32 keys, each of its 8 warps 4 of them; a key is 64 vectors of 16 bytes.
__device__ __forceinline__ void score(const uint4* keys, const float* queries, float* out,
                                      u64 all_keys, u64 chunk, u64 query) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u64 key = chunk * 32 + warp * 4;
    uint4 v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = keys[(key + i / 2) * 64 + i % 2 * 32 + lane];
    float sums[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float* with = queries + query * 512 + (i % 2 * 32 + lane) * 8;
        sums[i / 2] += dot(v[i].x, with) + dot(v[i].y, with + 2) + dot(v[i].z, with + 4) +
                       dot(v[i].w, with + 6);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float sum = across_warp(sums[i]);
        if (lane == 0) out[query * all_keys + key + i] = sum;
    }
}

// All keys for the first query, then all of them for the next one.
KERNEL scores_query_by_query(const uint4* keys, const float* queries, float* out,
                             long long chunks, long long count) {
    score(keys, queries, out, u64(chunks) * 32, blockIdx.x % u64(chunks), blockIdx.x / u64(chunks));
}

// All queries for a chunk of keys, then the next chunk.
KERNEL scores_chunk_by_chunk(const uint4* keys, const float* queries, float* out,
                             long long chunks, long long count) {
    score(keys, queries, out, u64(chunks) * 32, blockIdx.x / u64(count), blockIdx.x % u64(count));
}

// ---- atomics: how many of the labels are of each of 16 classes; 8 labels a thread ----------------

KERNEL count_classes_in_memory(const u32* labels, u32* counts) {
    const u64 first = u64(blockIdx.x) * (8 * blockDim.x) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < 8; i++) atomicAdd(counts + (labels[first + i * blockDim.x] & 15), 1u);
}

// Each warp of the block (of 256) counts in shared memory of its own.
KERNEL count_classes_in_shared(const u32* labels, u32* counts) {
    __shared__ u32 own[8][16];
    const u64 first = u64(blockIdx.x) * (8 * blockDim.x) + threadIdx.x;
    if (threadIdx.x < 128) own[threadIdx.x / 16][threadIdx.x % 16] = 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; i++)
        atomicAdd(&own[threadIdx.x / 32][labels[first + i * blockDim.x] & 15], 1u);
    __syncthreads();
    if (threadIdx.x < 16) {
        u32 sum = 0;
#pragma unroll
        for (int warp = 0; warp < 8; warp++) sum += own[warp][threadIdx.x];
        atomicAdd(counts + threadIdx.x, sum);
    }
}

// ---- imbalance: sums of squares of sequences of unequal length, a block for each piece -----------

// Piece p is values[first[p]] up to values[first[p + 1]], and belongs to sequence owner[p].
#define RAGGED(NAME)                                                                             \
    KERNEL NAME(const int* values, const long long* first, const long long* owner, u64* sums) {  \
        __shared__ u64 parts[8];                                                                 \
        const u64 end = first[blockIdx.x + 1];                                                   \
        u64 sum = 0;                                                                             \
        for (u64 i = first[blockIdx.x] + threadIdx.x; i < end; i += 256) {                       \
            const long long v = values[i];                                                       \
            sum += u64(v * v);                                                                   \
        }                                                                                        \
        sum = across_warp(sum);                                                                  \
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;                                \
        __syncthreads();                                                                         \
        if (threadIdx.x == 0) {                                                                  \
            u64 all = 0;                                                                         \
            _Pragma("unroll") for (int i = 0; i < 8; i++) all += parts[i];                       \
            atomicAdd(sums + owner[blockIdx.x], all);                                            \
        }                                                                                        \
    }

RAGGED(squares_of_sequences)
RAGGED(squares_of_pieces)
