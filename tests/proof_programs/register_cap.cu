// Chemistry in each cell of a flame: many substances react with each other in small steps in time.
#include "common.h"

constexpr int SUBSTANCES = 40, THREADS = 256, CELLS = 1 << 18, ROUNDS = 24;

template <int RESIDENT>
__global__ void __launch_bounds__(THREADS, RESIDENT) react(float *amounts, float step) {
    size_t cell = size_t(blockIdx.x) * THREADS + threadIdx.x;
    float mine[SUBSTANCES];
#pragma unroll
    for (int s = 0; s < SUBSTANCES; ++s) mine[s] = amounts[s * size_t(CELLS) + cell];
    for (int round = 0; round < ROUNDS; ++round) {
#pragma unroll
        for (int s = 0; s < SUBSTANCES; ++s) {
            float rate = mine[s] * mine[(s + 7) % SUBSTANCES] - 0.5f * mine[(s + 13) % SUBSTANCES];
            mine[(s + 1) % SUBSTANCES] += step * rate;
            mine[s] -= step * rate;
        }
    }
#pragma unroll
    for (int s = 0; s < SUBSTANCES; ++s) amounts[s * size_t(CELLS) + cell] = mine[s];
}

__global__ void fill(float *amounts) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    amounts[i] = 0.2f + (i / CELLS * 37 + i % CELLS * 11) % 64 * 0.01f;
}

int main(int argc, char **argv) {
    turn();
    size_t numbers = size_t(CELLS) * SUBSTANCES;
    float *amounts;
    CHECK(cudaMalloc(&amounts, numbers * sizeof(float)));
    return measure("register_cap", argc, argv, 500, [&](bool repaired, int steps) {
        fill<<<numbers / 256, 256>>>(amounts);
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                react<2><<<CELLS / THREADS, THREADS>>>(amounts, 1e-4f);
            else
                react<8><<<CELLS / THREADS, THREADS>>>(amounts, 1e-4f);
        }
        CHECK(cudaGetLastError());
        std::vector<float> some(1 << 14);
        CHECK(cudaMemcpy(some.data(), amounts + numbers / 2, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum;
    });
}
