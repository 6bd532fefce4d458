// Solves many small triangular systems, as a filter for each receiver of an antenna array does: a warp takes 32 rows of numbers.
#include "common.h"

constexpr int SIZE = 32, SYSTEMS = 1 << 15, ROUNDS = 8;

template <int STRIDE>
__global__ void solve(const float *matrices, const float *right, float *x) {
    __shared__ float a[2][SIZE * STRIDE];
    __shared__ float b[2][SIZE];
    int lane = threadIdx.x, slot = threadIdx.y;
    size_t system = size_t(blockIdx.x) * 2 + slot;
    for (int row = 0; row < SIZE; ++row) a[slot][row * STRIDE + lane] = matrices[system * SIZE * SIZE + row * SIZE + lane];
    float mine = right[system * SIZE + lane];
    __syncwarp();
    // forward substitution, again with what came out: a few rounds of refinement
    for (int round = 0; round < ROUNDS; ++round) {
        float rest = mine;
        for (int k = 0; k < SIZE; ++k) {
            float solved = __shfl_sync(~0u, rest, k) / a[slot][k * STRIDE + k];
            float weight = a[slot][lane * STRIDE + k];
            if (lane > k) rest -= weight * solved;
            if (lane == k) b[slot][k] = solved;
        }
        __syncwarp();
        mine += 0.125f * (b[slot][lane] - mine);
    }
    x[system * SIZE + lane] = b[slot][lane];
}

__global__ void fill(float *matrices, float *right) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    int row = i / SIZE % SIZE, column = i % SIZE;
    matrices[i] = row == column ? 4 + row % 3 : column < row ? 0.01f * ((i * 7) % 11) : 0;
    if (column == 0) right[i / SIZE] = 1 + i / SIZE % 13;
}

int main(int argc, char **argv) {
    turn();
    size_t numbers = size_t(SYSTEMS) * SIZE * SIZE;
    float *matrices, *right, *x;
    CHECK(cudaMalloc(&matrices, numbers * sizeof(float)));
    CHECK(cudaMalloc(&right, size_t(SYSTEMS) * SIZE * sizeof(float)));
    CHECK(cudaMalloc(&x, size_t(SYSTEMS) * SIZE * sizeof(float)));
    fill<<<numbers / 256, 256>>>(matrices, right);
    CHECK(cudaDeviceSynchronize());
    return measure("row_solver", argc, argv, 150, [&](bool repaired, int steps) {
        dim3 threads(SIZE, 2);
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                solve<SIZE + 1><<<SYSTEMS / 2, threads>>>(matrices, right, x);
            else
                solve<SIZE><<<SYSTEMS / 2, threads>>>(matrices, right, x);
        }
        CHECK(cudaGetLastError());
        std::vector<float> some(1 << 12);
        CHECK(cudaMemcpy(some.data(), x, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum;
    });
}
