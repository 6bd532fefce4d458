// Advances a wave equation on a small grid in many steps.
#include "common.h"

constexpr int N = 512;

__global__ void advance(const float *now, const float *before, float *next) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, i = y * N + x;
    int l = y * N + max(x - 1, 0), r = y * N + min(x + 1, N - 1), u = max(y - 1, 0) * N + x, d = min(y + 1, N - 1) * N + x;
    next[i] = 2 * now[i] - before[i] + 0.1f * (now[l] + now[r] + now[u] + now[d] - 4 * now[i]);
}

__global__ void fill(float *x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = (i % 37) * 0.01f;
}

int main(int argc, char **argv) {
    turn();
    float *grids[3];
    for (float *&grid : grids) CHECK(cudaMalloc(&grid, sizeof(float) * N * N));
    return measure("wait_each", argc, argv, 3000, [&](bool repaired, int steps) {
        for (float *grid : grids) fill<<<N * N / 256, 256>>>(grid);
        for (int step = 0; step < steps; ++step) {
            advance<<<dim3(N / 256, N), 256>>>(grids[step % 3], grids[(step + 2) % 3], grids[(step + 1) % 3]);
            if (!repaired) CHECK(cudaDeviceSynchronize());
        }
        std::vector<float> some(4096);
        CHECK(cudaMemcpy(some.data(), grids[steps % 3], some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float c : some) sum += c;
        return sum;
    });
}
