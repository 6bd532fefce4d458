// Defects that leave an SM few warps, and their repaired twins, compiled by NVRTC (no headers).
//
// All of them sum an array that DRAM delivers, one load in flight a thread: only many warps hide
// its latency. Loads are volatile assembly, so that none moves across another or out of the loop.

typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void
#define HELD 160

__device__ __forceinline__ float load(const float* from) {
    float v;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(from) : "memory");
    return v;
}

__device__ __forceinline__ float load(const float4* from) {
    float4 v;
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from) : "memory");
    return v.x + v.y + v.z + v.w;
}

// Sums in[thread], in[thread + threads of the grid], ...: `count` values of one thread.
template <typename T>
__device__ __forceinline__ float stream(const T* in, long long count) {
    const u64 threads = u64(gridDim.x) * blockDim.x;
    const T* from = in + u64(blockIdx.x) * blockDim.x + threadIdx.x;
    float sum = 0;
#pragma unroll 1
    for (int i = 0; i < int(count); i++, from += threads) sum += load(from);
    return sum;
}

__device__ __forceinline__ void store(float* out, float value) {
    out[u64(blockIdx.x) * blockDim.x + threadIdx.x] = value;
}

// ---- registers: 160 coefficients a thread, needed only behind the loop ---------------------------

KERNEL sum_then_series_held(const float4* in, const float* coefficients, float* out,
                            long long count) {
    float held[HELD];
#pragma unroll
    for (int i = 0; i < HELD; i++) held[i] = load(coefficients + i * 256 + threadIdx.x);
    float sum = stream(in, count);
#pragma unroll
    for (int i = 0; i < HELD; i++) sum = fmaf(sum, 0.5f, held[i]);
    store(out, sum);
}

KERNEL sum_then_series_loaded(const float4* in, const float* coefficients, float* out,
                              long long count) {
    float sum = stream(in, count);
#pragma unroll 8
    for (int i = 0; i < HELD; i++) sum = fmaf(sum, 0.5f, load(coefficients + i * 256 + threadIdx.x));
    store(out, sum);
}

// ---- shared memory: a block of 128 asks for far more than the 512 bytes that it uses -------------

#define BLOCK_SUMS(NAME)                                                         \
    KERNEL NAME(const float4* in, float* out, long long count) {                 \
        extern __shared__ float parts[];                                         \
        parts[threadIdx.x] = stream(in, count);                                  \
        __syncthreads();                                                         \
        for (int step = blockDim.x / 2; step; step /= 2) {                       \
            if (threadIdx.x < step) parts[threadIdx.x] += parts[threadIdx.x + step]; \
            __syncthreads();                                                     \
        }                                                                        \
        if (threadIdx.x == 0) out[blockIdx.x] = parts[0];                        \
    }

BLOCK_SUMS(block_sums_large_buffer)
BLOCK_SUMS(block_sums_small_buffer)

// ---- blocks: an SM holds 32 of them, however small; and a grid of few blocks ---------------------

#define SUMS(NAME, TYPE) \
    KERNEL NAME(const TYPE* in, float* out, long long count) { store(out, stream(in, count)); }

SUMS(sums_blocks_of_32, float)
SUMS(sums_blocks_of_256, float)
SUMS(sums_few_blocks, float4)
SUMS(sums_many_blocks, float4)
