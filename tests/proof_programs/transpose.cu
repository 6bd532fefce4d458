// Transposes a matrix through a tile in shared memory.
#include "common.h"

constexpr int N = 8192, TILE = 32;

template <int PITCH>
__global__ void transpose(const float *in, float *out) {
    __shared__ float tile[TILE][PITCH];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int i = 0; i < TILE; i += 8) tile[threadIdx.y + i][threadIdx.x] = in[(y + i) * N + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x, y = blockIdx.x * TILE + threadIdx.y;
    for (int i = 0; i < TILE; i += 8) out[(y + i) * N + x] = tile[threadIdx.x][threadIdx.y + i];
}

__global__ void fill(float *x, size_t n) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) x[i] = float(i % 1021);
}

int main(int argc, char **argv) {
    turn();
    float *in, *out;
    CHECK(cudaMalloc(&in, sizeof(float) * N * N));
    CHECK(cudaMalloc(&out, sizeof(float) * N * N));
    fill<<<1024, 256>>>(in, size_t(N) * N);
    return measure("transpose", argc, argv, 200, [&](bool repaired, int steps) {
        dim3 grid(N / TILE, N / TILE), block(TILE, 8);
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                transpose<TILE + 1><<<grid, block>>>(in, out);
            else
                transpose<TILE><<<grid, block>>>(in, out);
        }
        float last;
        CHECK(cudaMemcpy(&last, out + N + 5, sizeof last, cudaMemcpyDeviceToHost));
        return double(last);
    });
}
