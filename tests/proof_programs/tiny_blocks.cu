// Gathers from a large table in blocks of 32 threads.
#include "common.h"

constexpr int TABLE = 1 << 26, N = 1 << 24;

__global__ void gather(const int *index, const float *table, float *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 8; ++k) sum += table[(index[i] + k * 8191) & (TABLE - 1)];
    out[i] = sum;
}

__global__ void fill(int *index, float *table) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) index[i] = int(i * 2654435761u >> 6);
    table[i] = i % 5;
}

int main(int argc, char **argv) {
    turn();
    int *index;
    float *table, *out;
    CHECK(cudaMalloc(&index, N * sizeof(int)));
    CHECK(cudaMalloc(&table, TABLE * sizeof(float)));
    CHECK(cudaMalloc(&out, N * sizeof(float)));
    fill<<<TABLE / 256, 256>>>(index, table);
    return measure("tiny_blocks", argc, argv, 20, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                gather<<<N / 256, 256>>>(index, table, out);
            else
                gather<<<N / 32, 32>>>(index, table, out);
        }
        float last;
        CHECK(cudaMemcpy(&last, out + 9, sizeof(float), cudaMemcpyDeviceToHost));
        return double(last);
    });
}
