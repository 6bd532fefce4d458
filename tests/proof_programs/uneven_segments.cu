// Sums the segments of a long list, shortest first, with as many blocks as fit on the GPU.
#include <cmath>
#include "common.h"

constexpr int SEGMENTS = 1 << 16, BLOCKS = 1056;

__global__ void sum_segments(const float *x, const int *starts, float *sums, bool dealt) {
    __shared__ float part[8];
    int share = SEGMENTS / BLOCKS + 1;
    int first = dealt ? blockIdx.x : blockIdx.x * share;
    int last = dealt ? SEGMENTS : min(first + share, SEGMENTS);
    for (int s = first; s < last; s += dealt ? BLOCKS : 1) {
        float sum = 0;
        for (int i = starts[s] + threadIdx.x; i < starts[s + 1]; i += blockDim.x)
            sum += x[i];
        for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int i = 1; i < 8; ++i) sum += part[i];
            sums[s] = sum;
        }
        __syncthreads();
    }
}

__global__ void fill(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = i % 3;
}

int main(int argc, char **argv) {
    turn();
    std::vector<int> starts(SEGMENTS + 1);
    for (int s = 0; s < SEGMENTS; ++s) {
        double part = double(s) / SEGMENTS;
        starts[s + 1] = starts[s] + 256 + int(8192 * std::pow(part, 8));
    }
    int numbers = starts[SEGMENTS], *on_gpu;
    float *x, *sums;
    CHECK(cudaMalloc(&x, numbers * sizeof(float)));
    CHECK(cudaMalloc(&sums, SEGMENTS * sizeof(float)));
    CHECK(cudaMalloc(&on_gpu, starts.size() * sizeof(int)));
    CHECK(cudaMemcpy(on_gpu, starts.data(), starts.size() * sizeof(int), cudaMemcpyHostToDevice));
    fill<<<numbers / 256 + 1, 256>>>(x, numbers);
    return measure("uneven_segments", argc, argv, 60, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) sum_segments<<<BLOCKS, 256>>>(x, on_gpu, sums, repaired);
        std::vector<float> part(SEGMENTS);
        CHECK(cudaMemcpy(part.data(), sums, SEGMENTS * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : part) sum += value;
        return sum;
    });
}
