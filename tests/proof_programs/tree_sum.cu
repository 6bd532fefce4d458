// Sums the energy of a long signal.
#include "common.h"

constexpr int N = 1 << 26;

__global__ void energy(const float *x, float *sums) {
    __shared__ float part[256];
    int at = threadIdx.x;
    float value = x[blockIdx.x * blockDim.x + at];
    part[at] = value * value;
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
        if (at % (2 * step) == 0) part[at] += part[at + step];
        __syncthreads();
    }
    if (at == 0) sums[blockIdx.x] = part[0];
}

__global__ void energy_by_warp(const float4 *x, float *sums) {
    __shared__ float part[8];
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < N / 4; i += gridDim.x * blockDim.x) {
        float4 v = x[i];
        sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < 8; ++i) sum += part[i];
        sums[blockIdx.x] = sum;
    }
}

__global__ void fill(float *x) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    x[i] = i % 3;
}

int main(int argc, char **argv) {
    turn();
    float *x, *sums;
    CHECK(cudaMalloc(&x, size_t(N) * sizeof(float)));
    CHECK(cudaMalloc(&sums, N / 256 * sizeof(float)));
    fill<<<N / 256, 256>>>(x);
    return measure("tree_sum", argc, argv, 120, [&](bool repaired, int steps) {
        int blocks = repaired ? 2112 : N / 256;
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                energy_by_warp<<<blocks, 256>>>(reinterpret_cast<float4 *>(x), sums);
            else
                energy<<<blocks, 256>>>(x, sums);
        }
        std::vector<float> part(blocks);
        CHECK(cudaMemcpy(part.data(), sums, blocks * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : part) sum += value;
        return sum;
    });
}
