// Moves two kinds of particles, which lie mixed in memory: the heavy ones need many steps.
#include "common.h"

constexpr int N = 1 << 22;

__global__ void move(const int *kind, float *x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[i];
    if (kind[i] == 0) {
        for (int k = 0; k < 400; ++k) v = v * 0.999f + 0.001f;
    } else if (kind[i] == 1) {
        for (int k = 0; k < 400; ++k) v = v * 0.998f + 0.002f;
    } else if (kind[i] == 2) {
        for (int k = 0; k < 400; ++k) v = v * 0.997f + 0.003f;
    } else {
        for (int k = 0; k < 400; ++k) v = v * 0.996f + 0.004f;
    }
    x[i] = v;
}

__global__ void fill(int *mixed, int *sorted, float *x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    mixed[i] = (i * 2654435761u >> 16) % 4;
    sorted[i] = i / (N / 4);
    x[i] = 0;
}

int main(int argc, char **argv) {
    turn();
    int *mixed, *sorted;
    float *x;
    CHECK(cudaMalloc(&mixed, N * sizeof(int)));
    CHECK(cudaMalloc(&sorted, N * sizeof(int)));
    CHECK(cudaMalloc(&x, N * sizeof(float)));
    return measure("particles", argc, argv, 100, [&](bool repaired, int steps) {
        fill<<<N / 256, 256>>>(mixed, sorted, x);
        for (int step = 0; step < steps; ++step) move<<<N / 256, 256>>>(repaired ? sorted : mixed, x);
        float last;
        CHECK(cudaMemcpy(&last, x + N - 1, sizeof(float), cudaMemcpyDeviceToHost));
        return double(last > 0);
    });
}
