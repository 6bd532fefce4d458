// Spreads heat over a plate with a source in its middle, in small steps of time.
#include "common.h"

constexpr int N = 8192;

__global__ void spread(const float *now, float *next, float rate) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    size_t i = size_t(y) * N + x;
    if (x == 0 || y == 0 || x == N - 1 || y == N - 1) {
        next[i] = now[i];
        return;
    }
    float middle = now[i];
    next[i] = middle + rate * (now[i - 1] + now[i + 1] + now[i - N] + now[i + N] - 4 * middle);
}

__global__ void start(float *plate) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    bool hot = abs(x - N / 2) < 500 && abs(y - N / 2) < 300;
    plate[size_t(y) * N + x] = hot ? 90 + (x ^ y) % 16 : 20;
}

int main(int argc, char **argv) {
    turn();
    size_t bytes = size_t(N) * N * sizeof(float);
    float *now, *next;
    CHECK(cudaMalloc(&now, bytes));
    CHECK(cudaMalloc(&next, bytes));
    dim3 threads(64, 4), blocks(N / 64, N / 4);
    return measure("heat_copy_back", argc, argv, 1500, [&](bool repaired, int steps) {
        start<<<blocks, threads>>>(now);
        for (int step = 0; step < steps; ++step) {
            spread<<<blocks, threads>>>(now, next, 0.2f);
            if (repaired)
                std::swap(now, next);
            else
                CHECK(cudaMemcpyAsync(now, next, bytes, cudaMemcpyDeviceToDevice));
        }
        CHECK(cudaGetLastError());
        std::vector<float> row(N);
        CHECK(cudaMemcpy(row.data(), now + size_t(N / 2 + 299) * N, N * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : row) sum += value;
        return sum;
    });
}
