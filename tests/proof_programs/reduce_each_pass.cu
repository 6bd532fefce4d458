// Compares spectra of stars with a template: the sum of the weighted squares of the differences, a block for each star.
#include "common.h"

constexpr int STARS = 1 << 13, CHANNELS = 1 << 14, THREADS = 128;

// The sum of what the threads of a block have, for all of them.
__device__ float sum_of_block(float mine) {
    __shared__ float warps[THREADS / 32];
    for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(~0u, mine, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < THREADS / 32; ++k) sum += warps[k];
    return sum;
}

template <bool EACH>
__global__ void compare(const float *spectra, const float *wanted, const float *weights, float *out) {
    const float *mine = spectra + size_t(blockIdx.x) * CHANNELS;
    float total = 0;
    for (int start = 0; start < CHANNELS; start += THREADS) {
        int k = start + threadIdx.x;
        float differ = mine[k] - wanted[k], square = weights[k] * differ * differ;
        total += EACH ? sum_of_block(square) : square;
    }
    if (!EACH) total = sum_of_block(total);
    if (threadIdx.x == 0) out[blockIdx.x] = total;
}

__global__ void fill(float *values) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    values[i] = (i * 2654435761u >> 10 & 1023) * 0.001f;
}

int main(int argc, char **argv) {
    turn();
    float *spectra, *wanted, *weights, *out;
    CHECK(cudaMalloc(&spectra, size_t(STARS) * CHANNELS * sizeof(float)));
    CHECK(cudaMalloc(&wanted, CHANNELS * sizeof(float)));
    CHECK(cudaMalloc(&weights, CHANNELS * sizeof(float)));
    CHECK(cudaMalloc(&out, STARS * sizeof(float)));
    fill<<<size_t(STARS) * CHANNELS / 256, 256>>>(spectra);
    fill<<<CHANNELS / 256, 256>>>(wanted);
    fill<<<CHANNELS / 256, 256>>>(weights);
    CHECK(cudaDeviceSynchronize());
    return measure("reduce_each_pass", argc, argv, 300, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step)
            if (repaired)
                compare<false><<<STARS, THREADS>>>(spectra, wanted, weights, out);
            else
                compare<true><<<STARS, THREADS>>>(spectra, wanted, weights, out);
        CHECK(cudaGetLastError());
        std::vector<float> all(STARS);
        CHECK(cudaMemcpy(all.data(), out, STARS * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : all) sum += value;
        return sum;
    });
}
