// Transforms tiles of 32 by 32 numbers: rows with a matrix, then columns with its transpose, as codecs do.
#include "common.h"

constexpr int TILES = 1 << 14, SIDE = 32;

template <int PITCH>
__global__ void transform(const float *in, float *out) {
    __shared__ float tile[SIDE][PITCH], half[SIDE][PITCH], weight[SIDE][PITCH];
    int x = threadIdx.x;
    const float *from = in + size_t(blockIdx.x) * SIDE * SIDE;
    float *to = out + size_t(blockIdx.x) * SIDE * SIDE;
    for (int y = threadIdx.y; y < SIDE; y += blockDim.y) {
        tile[y][x] = from[y * SIDE + x];
        weight[y][x] = (x * y % 5 - 2) / 16.0f;
    }
    __syncthreads();
    for (int y = threadIdx.y; y < SIDE; y += blockDim.y) {
        float sum = 0;
        for (int k = 0; k < SIDE; ++k)
            sum += tile[x][k] * weight[k][y];
        half[y][x] = sum;
    }
    __syncthreads();
    for (int y = threadIdx.y; y < SIDE; y += blockDim.y) {
        float sum = 0;
        for (int k = 0; k < SIDE; ++k)
            sum += half[y][k] * weight[k][x];
        to[y * SIDE + x] = sum;
    }
}

__global__ void fill(float *x) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    x[i] = i % 7;
}

int main(int argc, char **argv) {
    turn();
    float *in, *out;
    size_t numbers = size_t(TILES) * SIDE * SIDE;
    CHECK(cudaMalloc(&in, numbers * sizeof(float)));
    CHECK(cudaMalloc(&out, numbers * sizeof(float)));
    fill<<<numbers / 256, 256>>>(in);
    return measure("tile_transform", argc, argv, 100, [&](bool repaired, int steps) {
        dim3 threads(SIDE, 8);
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                transform<SIDE + 1><<<TILES, threads>>>(in, out);
            else
                transform<SIDE><<<TILES, threads>>>(in, out);
        }
        float some[64];
        CHECK(cudaMemcpy(some, out, sizeof(some), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum;
    });
}
