// Simulates waves on a part of a sea; after each step the columns at its sides go to the host, for the neighbours, and theirs come in.
#include "common.h"

constexpr int N = 4096, HALO = 2;

__global__ void wave(const float *before, const float *now, float *next, float speed) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < HALO || y < HALO || x >= N - HALO || y >= N - HALO) return;
    size_t i = size_t(y) * N + x;
    float bend = -0.0833f * (now[i - 2] + now[i + 2] + now[i - 2 * N] + now[i + 2 * N]) +
                 1.3333f * (now[i - 1] + now[i + 1] + now[i - N] + now[i + N]) - 5 * now[i];
    next[i] = 2 * now[i] - before[i] + speed * bend;
}

__global__ void pack(const float *sea, float *sides) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, y = i / (2 * HALO), k = i % (2 * HALO);
    sides[i] = sea[size_t(y) * N + (k < HALO ? HALO + k : N - 3 * HALO + k)];
}

__global__ void unpack(const float *sides, float *sea) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, y = i / (2 * HALO), k = i % (2 * HALO);
    sea[size_t(y) * N + (k < HALO ? k : N - 2 * HALO + k)] = sides[i];
}

__global__ void start(float *sea) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    float dx = (x - 300) * 0.02f, dy = (y - 2000) * 0.02f;
    sea[size_t(y) * N + x] = expf(-dx * dx - dy * dy);
}

int main(int argc, char **argv) {
    turn();
    size_t bytes = size_t(N) * N * sizeof(float), row = N * sizeof(float), width = HALO * sizeof(float);
    float *seas[3], *sides, *host;
    for (float *&sea : seas) CHECK(cudaMalloc(&sea, bytes));
    CHECK(cudaMalloc(&sides, 2 * N * width));
    CHECK(cudaMallocHost(&host, 2 * N * width));
    dim3 threads(64, 4), blocks(N / 64, N / 4);
    return measure("halo_columns", argc, argv, 400, [&](bool repaired, int steps) {
        for (float *sea : seas) start<<<blocks, threads>>>(sea);
        for (int step = 0; step < steps; ++step) {
            float *before = seas[step % 3], *now = seas[(step + 1) % 3], *next = seas[(step + 2) % 3];
            wave<<<blocks, threads>>>(before, now, next, 0.1f);
            // the sea is closed to a ring here: what leaves on one side comes in on the other
            if (repaired) {
                pack<<<2 * HALO * N / 256, 256>>>(next, sides);
                CHECK(cudaMemcpyAsync(host, sides, 2 * N * width, cudaMemcpyDeviceToHost));
                CHECK(cudaDeviceSynchronize());
                for (int y = 0; y < N; ++y)
                    for (int k = 0; k < HALO; ++k) std::swap(host[y * 2 * HALO + k], host[y * 2 * HALO + HALO + k]);
                CHECK(cudaMemcpyAsync(sides, host, 2 * N * width, cudaMemcpyHostToDevice));
                unpack<<<2 * HALO * N / 256, 256>>>(sides, next);
            } else {
                float *left = host, *right = host + N * HALO;
                CHECK(cudaMemcpy2DAsync(left, width, next + HALO, row, width, N, cudaMemcpyDeviceToHost));
                CHECK(cudaMemcpy2DAsync(right, width, next + N - 2 * HALO, row, width, N, cudaMemcpyDeviceToHost));
                CHECK(cudaDeviceSynchronize());
                CHECK(cudaMemcpy2DAsync(next + N - HALO, row, left, width, width, N, cudaMemcpyHostToDevice));
                CHECK(cudaMemcpy2DAsync(next, row, right, width, width, N, cudaMemcpyHostToDevice));
            }
        }
        CHECK(cudaGetLastError());
        std::vector<float> some(N);
        CHECK(cudaMemcpy(some.data(), seas[(steps + 1) % 3] + size_t(2000) * N, row, cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value * value;
        return sum;
    });
}
