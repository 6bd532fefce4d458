// Second set: defects that leave an SM few warps, and their repaired twins (NVRTC, no headers).

typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void
#define CHANNELS 64

__device__ __forceinline__ u64 place() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }

__device__ __forceinline__ double across_warp(double v) {
#pragma unroll
    for (int lanes = 16; lanes; lanes /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, lanes);
    return v;
}

// ---- registers: a warp walks along a linked list of pages of 512 bytes ---------------------------

// Returns this lane's part of the page and goes on to the next one, whose number is its first word.
__device__ __forceinline__ double visit(const float4* pages, int& page, int lane) {
    const float4 v = pages[u64(page) * 32 + lane];
    page = __shfl_sync(0xFFFFFFFFu, __float_as_int(v.x), 0);
    return double(v.y) + double(v.z) + double(v.w);
}

// Pages belong to 64 channels in turn. Each lane keeps sums of all channels: 128 registers.
KERNEL channel_sums_in_lanes(const float4* pages, const int* heads, double* out, long long rounds) {
    const u64 list = place() / 32;
    const int lane = threadIdx.x % 32;
    int page = heads[list];
    double sums[CHANNELS];
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) sums[c] = 0;
#pragma unroll 1
    for (int round = 0; round < int(rounds); round++) {
#pragma unroll
        for (int c = 0; c < CHANNELS; c++) sums[c] += visit(pages, page, lane);
    }
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) {
        const double sum = across_warp(sums[c]);
        if (lane == c % 32) out[list * CHANNELS + c] = sum;
    }
}

// The warp adds up each page at once, and a lane keeps two channels.
KERNEL __launch_bounds__(128, 16) channel_sums_in_warp(const float4* pages, const int* heads,
                                                       double* out, long long rounds) {
    const u64 list = place() / 32;
    const int lane = threadIdx.x % 32;
    int page = heads[list];
    double mine[CHANNELS / 32] = {0, 0};
#pragma unroll 1
    for (int round = 0; round < int(rounds); round++) {
#pragma unroll
        for (int slot = 0; slot < CHANNELS / 32; slot++) {
#pragma unroll 4
            for (int c = 0; c < 32; c++) {
                const double sum = across_warp(visit(pages, page, lane));
                if (lane == c) mine[slot] += sum;
            }
        }
    }
#pragma unroll
    for (int slot = 0; slot < CHANNELS / 32; slot++)
        out[list * CHANNELS + 32 * slot + lane] = mine[slot];
}

// ---- shared memory: digits of a radix pass, 256 bins, whatever space was asked for ---------------

#define DIGITS(NAME)                                                                   \
    KERNEL NAME(const uint4* keys, u32* counts, long long steps, long long shift) {    \
        extern __shared__ u32 bins[];                                                  \
        for (int i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;               \
        __syncthreads();                                                               \
        const u64 threads = u64(gridDim.x) * blockDim.x;                               \
        const uint4* from = keys + place();                                            \
        _Pragma("unroll 1") for (int i = 0; i < int(steps); i++, from += threads) {    \
            const uint4 v = *from;                                                     \
            atomicAdd(bins + (v.x >> shift & 255), 1u);                                \
            atomicAdd(bins + (v.y >> shift & 255), 1u);                                \
            atomicAdd(bins + (v.z >> shift & 255), 1u);                                \
            atomicAdd(bins + (v.w >> shift & 255), 1u);                                \
        }                                                                              \
        __syncthreads();                                                               \
        for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(counts + i, bins[i]); \
    }

DIGITS(count_digits_large_buffer)
DIGITS(count_digits_small_buffer)

// ---- few blocks: out = a x + y in FP64, by a loop over the grid ----------------------------------

#define AXPY(NAME)                                                                             \
    KERNEL NAME(const double* x, const double* y, double* out, long long count, double a) {    \
        const u64 threads = u64(gridDim.x) * blockDim.x;                                       \
        for (u64 i = place(); i < u64(count); i += threads) out[i] = a * x[i] + y[i];          \
    }

AXPY(axpy_block_per_sm)
AXPY(axpy_all_blocks)

// ---- blocks: a warp gathers rows of 512 bytes of an embedding, one after another -----------------

#define GATHER(NAME)                                                                           \
    KERNEL NAME(const uint4* table, const long long* ids, uint4* out, long long rows) {        \
        const u64 first = place() / 32 * u64(rows);                                            \
        const int lane = threadIdx.x % 32;                                                     \
        for (u64 row = first; row < first + u64(rows); row++)                                  \
            out[row * 32 + lane] = table[u64(ids[row]) * 32 + lane];                           \
    }

GATHER(gather_blocks_of_32)
GATHER(gather_blocks_of_256)
