// Normalises the rows of a matrix: a thread for each row.
#include "common.h"

constexpr int ROWS = 1 << 17, COLUMNS = 512;

__global__ void normalise(const float *in, float *out) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int c = 0; c < COLUMNS; ++c)
        sum += in[size_t(row) * COLUMNS + c];
    for (int c = 0; c < COLUMNS; ++c)
        out[size_t(row) * COLUMNS + c] = in[size_t(row) * COLUMNS + c] / sum;
}

__global__ void normalise_by_warp(const float *in, float *out) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    float sum = 0;
    for (int c = lane; c < COLUMNS; c += 32) sum += in[size_t(row) * COLUMNS + c];
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    for (int c = lane; c < COLUMNS; c += 32) out[size_t(row) * COLUMNS + c] = in[size_t(row) * COLUMNS + c] / sum;
}

__global__ void fill(float *x) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    x[i] = 1 + i % 7;
}

int main(int argc, char **argv) {
    turn();
    float *in, *out;
    size_t bytes = size_t(ROWS) * COLUMNS * sizeof(float);
    CHECK(cudaMalloc(&in, bytes));
    CHECK(cudaMalloc(&out, bytes));
    fill<<<ROWS / 256 * COLUMNS, 256>>>(in);
    return measure("row_shares", argc, argv, 40, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                normalise_by_warp<<<ROWS / 8, 256>>>(in, out);
            else
                normalise<<<ROWS / 256, 256>>>(in, out);
        }
        float last;
        CHECK(cudaMemcpy(&last, out + 511, sizeof(float), cudaMemcpyDeviceToHost));
        return double(last);
    });
}
