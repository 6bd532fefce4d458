// Defects of memory accesses and their repaired twins, compiled by NVRTC (no headers).
// Both of a pair compute the same values; targets/defects/memory.py says what each costs and why.

typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void

// ---- uncoalesced loads: out = transpose of in, (n, n) ------------------------------------------

// A block reads 1024 rows of one column: each lane of a warp touches a sector of its own.
KERNEL transpose_by_columns(const float* in, float* out, long long n) {
    const u64 column = blockIdx.x, first = u64(blockIdx.y) * (4 * blockDim.x) + threadIdx.x;
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = in[(first + i * blockDim.x) * n + column];
#pragma unroll
    for (int i = 0; i < 4; i++) out[column * n + first + i * blockDim.x] = v[i];
}

// The same through a tile of shared memory: rows are read, and rows are written. Block 32 x 8.
KERNEL transpose_by_tiles(const float* in, float* out, long long n) {
    __shared__ float tile[32][33];
    const u64 x = u64(blockIdx.x) * 32, y = u64(blockIdx.y) * 32;
#pragma unroll
    for (int i = 0; i < 32; i += 8)
        tile[threadIdx.y + i][threadIdx.x] = in[(y + threadIdx.y + i) * n + x + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 32; i += 8)
        out[(x + threadIdx.y + i) * n + y + threadIdx.x] = tile[threadIdx.x][threadIdx.y + i];
}

// ---- uncoalesced stores: one field of records of eight, or an array of its own -----------------

#define SCALE(NAME, WIDTH)                                                           \
    KERNEL NAME(const float* in, float* out, float factor) {                         \
        const u64 first = u64(blockIdx.x) * (4 * blockDim.x) + threadIdx.x;          \
        float v[4];                                                                  \
        _Pragma("unroll") for (int i = 0; i < 4; i++) v[i] = in[first + i * blockDim.x]; \
        _Pragma("unroll") for (int i = 0; i < 4; i++)                                \
            out[(first + i * blockDim.x) * WIDTH] = v[i] * factor;                   \
    }

SCALE(scale_into_records, 8)
SCALE(scale_into_array, 1)

// ---- bank conflicts: each thread reads its own row of a tile in shared memory ------------------

#define COLUMNS 16

// With a pitch of 16 words, the 32 lanes meet in two banks; with 17, each has a bank of its own.
#define ROW_SUMS(NAME, PITCH)                                                                   \
    KERNEL NAME(const float* in, float* out, long long rounds) {                                \
        __shared__ float tile[256 * PITCH];                                                     \
        const u64 first = u64(blockIdx.x) * 256 * COLUMNS;                                      \
        for (int i = threadIdx.x; i < 256 * COLUMNS; i += 256)                                  \
            tile[i / COLUMNS * PITCH + i % COLUMNS] = in[first + i];                            \
        __syncthreads();                                                                        \
        const float* row = tile + threadIdx.x * PITCH;                                          \
        float sum = 0;                                                                          \
        _Pragma("unroll 1") for (int round = 0; round < int(rounds); round++)                   \
            _Pragma("unroll") for (int c = 0; c < COLUMNS; c++)                                 \
                sum = fmaf(sum, 0.5f, row[c ^ (round & (COLUMNS - 1))]);                        \
        out[u64(blockIdx.x) * 256 + threadIdx.x] = sum;                                         \
    }

ROW_SUMS(row_sums_pitch_16, 16)
ROW_SUMS(row_sums_pitch_17, 17)

// ---- L2 thrashing: each chunk of 32 KiB is read `sweeps` times, with other weights --------------

__device__ __forceinline__ float across_warp(float v) {
#pragma unroll
    for (int lanes = 16; lanes; lanes /= 2) v += __shfl_down_sync(0xFFFFFFFFu, v, lanes);
    return v;
}

__device__ __forceinline__ void weigh(const float4* in, float* out, u64 chunk, u64 sweep) {
    const float4* from = in + chunk * (8 * 256) + threadIdx.x;
    const float weight = float(sweep + 1);
    float4 v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = from[i * 256];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) sum += v[i].x * weight + v[i].y * v[i].z + v[i].w;
    sum = across_warp(sum);
    if (threadIdx.x % 32 == 0) out[u64(blockIdx.x) * 8 + threadIdx.x / 32] = sum;
}

// All chunks, and then all of them again: the first has left the L2 when it is needed again.
KERNEL weigh_sweep_by_sweep(const float4* in, float* out, long long chunks, long long sweeps) {
    weigh(in, out, blockIdx.x % u64(chunks), blockIdx.x / u64(chunks));
}

// All sweeps of a chunk, and then the next chunk.
KERNEL weigh_chunk_by_chunk(const float4* in, float* out, long long chunks, long long sweeps) {
    weigh(in, out, blockIdx.x / u64(sweeps), blockIdx.x % u64(sweeps));
}

// ---- atomics: the sum of an array ----------------------------------------------------------------

__device__ __forceinline__ float sum_of_eight(const float4* in) {
    const u64 first = u64(blockIdx.x) * (2 * blockDim.x) + threadIdx.x;
    const float4 a = in[first], b = in[first + blockDim.x];
    return a.x + a.y + a.z + a.w + b.x + b.y + b.z + b.w;
}

KERNEL sum_atomic_per_thread(const float4* in, float* out) { atomicAdd(out, sum_of_eight(in)); }

KERNEL sum_atomic_per_block(const float4* in, float* out) {
    __shared__ float parts[8];
    const float mine = across_warp(sum_of_eight(in));
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
        float all = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) all += parts[i];
        atomicAdd(out, all);
    }
}
