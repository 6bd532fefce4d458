// Scales the rows of a speech encoder's states to the same size before its next layer, all of a batch at once.
#include <cuda_fp16.h>
#include "common.h"

constexpr int ROWS = 1500 * 128, WIDTH = 1280, PIECES = WIDTH / 8, LANES = 32;

__device__ float squares(uint4 piece) {
    const __half2 *pairs = reinterpret_cast<const __half2 *>(&piece);
    float sum = 0;
    for (int k = 0; k < 4; ++k) {
        float2 two = __half22float2(pairs[k]);
        sum += two.x * two.x + two.y * two.y;
    }
    return sum;
}

__device__ uint4 scaled(uint4 piece, uint4 weight, float by) {
    __half2 *pairs = reinterpret_cast<__half2 *>(&piece);
    const __half2 *weights = reinterpret_cast<const __half2 *>(&weight);
    for (int k = 0; k < 4; ++k) {
        float2 two = __half22float2(pairs[k]), w = __half22float2(weights[k]);
        pairs[k] = __floats2half2_rn(two.x * by * w.x, two.y * by * w.y);
    }
    return piece;
}

__device__ float of_warp(float value) {
    for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

// One block for a row.
__global__ void rmsnorm(const uint4 *x, const uint4 *weights, uint4 *y) {
    __shared__ float sums[512 / LANES];
    __shared__ float by;
    const uint4 *row = x + size_t(blockIdx.x) * PIECES;
    float sum = 0;
    for (int p = threadIdx.x; p < PIECES; p += blockDim.x) sum += squares(row[p]);
    sum = of_warp(sum);
    if (threadIdx.x % LANES == 0) sums[threadIdx.x / LANES] = sum;
    __syncthreads();
    if (threadIdx.x < LANES) {
        sum = of_warp(threadIdx.x < blockDim.x / LANES ? sums[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) by = rsqrtf(sum / WIDTH + 1e-6f);
    }
    __syncthreads();
    for (int p = threadIdx.x; p < PIECES; p += blockDim.x)
        y[size_t(blockIdx.x) * PIECES + p] = scaled(row[p], weights[p], by);
}

// One warp for a row.
__global__ void rmsnorm_rows(const uint4 *x, const uint4 *weights, uint4 *y) {
    size_t at = (size_t(blockIdx.x) * (blockDim.x / LANES) + threadIdx.x / LANES) * PIECES;
    uint4 held[PIECES / LANES];
    float sum = 0;
    for (int k = 0; k < PIECES / LANES; ++k) held[k] = x[at + k * LANES + threadIdx.x % LANES];
    for (int k = 0; k < PIECES / LANES; ++k) sum += squares(held[k]);
    float by = rsqrtf(of_warp(sum) / WIDTH + 1e-6f);
    for (int k = 0; k < PIECES / LANES; ++k) {
        int p = k * LANES + threadIdx.x % LANES;
        y[at + p] = scaled(held[k], weights[p], by);
    }
}

__global__ void set_up(__half *x, __half *weights) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    unsigned h = unsigned(i) * 2654435761u;
    x[i] = __float2half(((h >> 16) - 32768.0f) / 16384.0f);
    if (i < WIDTH) weights[i] = __float2half(1.0f + (h >> 28) * 0.03125f);
}

int main(int argc, char **argv) {
    turn();
    uint4 *x, *weights, *y;
    constexpr size_t BYTES = size_t(ROWS) * WIDTH * sizeof(__half);
    CHECK(cudaMalloc(&x, BYTES));
    CHECK(cudaMalloc(&y, BYTES));
    CHECK(cudaMalloc(&weights, WIDTH * sizeof(__half)));
    set_up<<<size_t(ROWS) * WIDTH / 256, 256>>>(reinterpret_cast<__half *>(x), reinterpret_cast<__half *>(weights));
    CHECK(cudaDeviceSynchronize());
    return measure("speech_norms", argc, argv, 2000, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step)
            if (repaired)
                rmsnorm_rows<<<ROWS / 8, 256>>>(x, weights, y);
            else
                rmsnorm<<<ROWS, 512>>>(x, weights, y);
        CHECK(cudaGetLastError());
        std::vector<__half> some(64 * WIDTH);
        CHECK(cudaMemcpy(some.data(), y, some.size() * sizeof(__half), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (__half value : some) sum += std::abs(__half2float(value));
        return sum / some.size();
    });
}
