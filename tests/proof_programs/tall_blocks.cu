// Smooths and sharpens the frames of a thermal camera, some pixels high and wide, in blocks of threads.
#include "common.h"

constexpr int WIDTH = 8192, HEIGHT = 4096;

__global__ void sharpen(const float *in, float *out, float amount) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0;
    for (int dy = -1; dy <= 1; ++dy)
        for (int dx = -1; dx <= 1; ++dx)
            sum += in[size_t(min(max(y + dy, 0), HEIGHT - 1)) * WIDTH + min(max(x + dx, 0), WIDTH - 1)];
    float middle = in[size_t(y) * WIDTH + x];
    out[size_t(y) * WIDTH + x] = middle + amount * (middle - sum / 9);
}

__global__ void fill(float *frame) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    frame[i] = 280 + (i * 2654435761u >> 12 & 511) * 0.1f;
}

int main(int argc, char **argv) {
    turn();
    size_t bytes = size_t(WIDTH) * HEIGHT * sizeof(float);
    float *in, *out;
    CHECK(cudaMalloc(&in, bytes));
    CHECK(cudaMalloc(&out, bytes));
    fill<<<size_t(WIDTH) * HEIGHT / 256, 256>>>(in);
    CHECK(cudaDeviceSynchronize());
    return measure("tall_blocks", argc, argv, 1200, [&](bool repaired, int steps) {
        dim3 threads = repaired ? dim3(64, 4) : dim3(2, 128);
        dim3 blocks(WIDTH / threads.x, HEIGHT / threads.y);
        for (int step = 0; step < steps; ++step) sharpen<<<blocks, threads>>>(in, out, 0.5f + step % 3 * 0.25f);
        CHECK(cudaGetLastError());
        std::vector<float> row(WIDTH);
        CHECK(cudaMemcpy(row.data(), out + bytes / 8, WIDTH * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : row) sum += value;
        return sum;
    });
}
