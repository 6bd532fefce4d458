// Ranks pages by their links: products of a sparse matrix, stored row by row (CSR), with a vector, again and again.
#include "common.h"

constexpr int ROWS = 1 << 18, MOST = 96, THREADS = 256;

__global__ void row_for_thread(const int *starts, const int *columns, const float *values, const float *x, float *y) {
    int row = blockIdx.x * THREADS + threadIdx.x;
    float sum = 0;
    for (int k = starts[row]; k < starts[row + 1]; ++k) sum += values[k] * x[columns[k]];
    y[row] = 0.15f + 0.85f * sum;
}

__global__ void row_for_warp(const int *starts, const int *columns, const float *values, const float *x, float *y) {
    int row = (blockIdx.x * THREADS + threadIdx.x) / 32, lane = threadIdx.x % 32;
    float sum = 0;
    for (int k = starts[row] + lane; k < starts[row + 1]; k += 32) sum += values[k] * x[columns[k]];
    for (int ahead = 16; ahead; ahead /= 2) sum += __shfl_down_sync(~0u, sum, ahead);
    if (lane == 0) y[row] = 0.15f + 0.85f * sum;
}

int main(int argc, char **argv) {
    turn();
    std::vector<int> from(ROWS + 1), to;
    std::vector<float> share;
    unsigned random = 1;
    auto next = [&] { return (random = random * 1664525u + 1013904223u) >> 8; };
    for (int row = 0; row < ROWS; ++row) {
        int links = MOST - 8 + next() % 17;  // about as many in each row
        for (int k = 0; k < links; ++k) to.push_back((row + next() % 4096) % ROWS), share.push_back(1.0f / links);
        from[row + 1] = to.size();
    }
    int *starts, *columns;
    float *values, *x[2];
    CHECK(cudaMalloc(&starts, from.size() * sizeof(int)));
    CHECK(cudaMalloc(&columns, to.size() * sizeof(int)));
    CHECK(cudaMalloc(&values, share.size() * sizeof(float)));
    CHECK(cudaMemcpy(starts, from.data(), from.size() * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(columns, to.data(), to.size() * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(values, share.data(), share.size() * sizeof(float), cudaMemcpyHostToDevice));
    std::vector<float> ranks(ROWS);
    for (int row = 0; row < ROWS; ++row) ranks[row] = 0.5f + row % 10 * 0.1f;
    for (float *&vector : x) CHECK(cudaMalloc(&vector, ROWS * sizeof(float)));
    return measure("sparse_rows", argc, argv, 200, [&](bool repaired, int steps) {
        CHECK(cudaMemcpy(x[0], ranks.data(), ROWS * sizeof(float), cudaMemcpyHostToDevice));
        for (int step = 0; step < steps; ++step) {
            const float *now = x[step % 2];
            float *later = x[1 - step % 2];
            if (repaired)
                row_for_warp<<<ROWS / (THREADS / 32), THREADS>>>(starts, columns, values, now, later);
            else
                row_for_thread<<<ROWS / THREADS, THREADS>>>(starts, columns, values, now, later);
        }
        CHECK(cudaGetLastError());
        std::vector<float> found(ROWS);
        CHECK(cudaMemcpy(found.data(), x[steps % 2], ROWS * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : found) sum += value;
        return sum;
    });
}
