// Eight independent chains of small kernels, each on its own stream, with a counter that is raised after each round.
#include "common.h"

constexpr int CHAINS = 8, ROUNDS = 20, N = 1 << 16;

__global__ void relax(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    for (int k = 0; k < 2000; ++k) v = v * 0.999f + 0.001f;
    x[i] = v;
}

__global__ void count(int *rounds) { ++*rounds; }

int main(int argc, char **argv) {
    turn();
    float *x[CHAINS];
    int *rounds;
    cudaStream_t streams[CHAINS], counter;
    CHECK(cudaMalloc(&rounds, sizeof(int)));
    CHECK(cudaMemset(rounds, 0, sizeof(int)));
    CHECK(cudaStreamCreateWithFlags(&counter, cudaStreamNonBlocking));
    for (int c = 0; c < CHAINS; ++c) {
        CHECK(cudaMalloc(&x[c], N * sizeof(float)));
        CHECK(cudaMemset(x[c], 0, N * sizeof(float)));
        CHECK(cudaStreamCreate(&streams[c]));
    }
    return measure("mixed_streams", argc, argv, 20, [&](bool repaired, int steps) {
        for (int step = 0; step < steps * ROUNDS; ++step)
            for (int c = 0; c < CHAINS; ++c) {
                relax<<<N / 4096, 256, 0, streams[c]>>>(x[c], N / 16);
                if (repaired)
                    count<<<1, 1, 0, counter>>>(rounds);
                else
                    count<<<1, 1>>>(rounds);
            }
        CHECK(cudaDeviceSynchronize());
        float first;
        CHECK(cudaMemcpy(&first, x[1] + 5, sizeof(float), cudaMemcpyDeviceToHost));
        return double(first);
    });
}
