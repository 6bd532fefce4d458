// Takes a part out of each large picture, which lies in pinned memory, and sharpens it on the GPU.
#include "common.h"

constexpr int ROWS = 2048, WIDTH = 4096, WHOLE = 3 * WIDTH;

__global__ void sharpen(const float *in, float *out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    const float *row = in + size_t(y) * WIDTH;
    float left = row[max(x - 1, 0)], right = row[min(x + 1, WIDTH - 1)];
    float above = in[size_t(max(y - 1, 0)) * WIDTH + x], below = in[size_t(min(y + 1, ROWS - 1)) * WIDTH + x];
    out[size_t(y) * WIDTH + x] = 2 * row[x] - 0.25f * (left + right + above + below);
}

int main(int argc, char **argv) {
    turn();
    float *picture, *in, *out;
    size_t bytes = WIDTH * sizeof(float);
    CHECK(cudaMallocHost(&picture, size_t(ROWS) * WHOLE * sizeof(float)));
    CHECK(cudaMalloc(&in, ROWS * bytes));
    CHECK(cudaMalloc(&out, ROWS * bytes));
    for (size_t i = 0; i < size_t(ROWS) * WHOLE; ++i) picture[i] = i % 13;
    return measure("row_copies", argc, argv, 10, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            const float *part = picture + WIDTH;
            if (repaired)
                CHECK(cudaMemcpy2DAsync(in, bytes, part, WHOLE * sizeof(float), bytes, ROWS, cudaMemcpyHostToDevice));
            else
                for (int y = 0; y < ROWS; ++y)
                    CHECK(cudaMemcpyAsync(in + size_t(y) * WIDTH, part + size_t(y) * WHOLE, bytes, cudaMemcpyHostToDevice));
            sharpen<<<dim3(WIDTH / 256, ROWS), 256>>>(in, out);
        }
        float some[64];
        CHECK(cudaMemcpy(some, out + WIDTH * 7, sizeof(some), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum;
    });
}
