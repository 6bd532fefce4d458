// Scores how alike pairs of genes are (Smith-Waterman), diagonal by diagonal of a table for each pair.
#include "common.h"
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

constexpr int LENGTH = 512, PAIRS = 264, THREADS = 128;

__device__ int cell(const char *a, const char *b, const int *last, const int *older, int d, int i) {
    int j = d - i, score = a[i] == b[j] ? 3 : -2, best = 0;
    if (i > 0 && j > 0) best = max(best, older[i - 1] + score);
    else best = max(best, score);
    if (i > 0) best = max(best, last[i - 1] - 4);
    if (j > 0) best = max(best, last[i] - 4);
    return best;
}

// All blocks work on one pair.
__global__ void together(const char *a, const char *b, int *rows, int *best) {
    cg::grid_group grid = cg::this_grid();
    int at = grid.thread_rank(), found = 0;
    for (int d = 0; d < 2 * LENGTH - 1; ++d) {
        int *now = rows + d % 3 * LENGTH, *last = rows + (d + 2) % 3 * LENGTH, *older = rows + (d + 1) % 3 * LENGTH;
        for (int i = max(0, d - LENGTH + 1) + at; i <= min(d, LENGTH - 1); i += grid.size()) {
            now[i] = cell(a, b, last, older, d, i);
            found = max(found, now[i]);
        }
        grid.sync();
    }
    if (found) atomicMax(best, found);
}

// A block has a pair for itself.
__global__ void apart(const char *left, const char *right, int *best) {
    __shared__ int rows[3 * LENGTH];
    const char *a = left + blockIdx.x * LENGTH, *b = right + blockIdx.x * LENGTH;
    int found = 0;
    for (int d = 0; d < 2 * LENGTH - 1; ++d) {
        int *now = rows + d % 3 * LENGTH, *last = rows + (d + 2) % 3 * LENGTH, *older = rows + (d + 1) % 3 * LENGTH;
        for (int i = max(0, d - LENGTH + 1) + threadIdx.x; i <= min(d, LENGTH - 1); i += blockDim.x) {
            now[i] = cell(a, b, last, older, d, i);
            found = max(found, now[i]);
        }
        __syncthreads();
    }
    if (found) atomicMax(&best[blockIdx.x], found);
}

int main(int argc, char **argv) {
    turn();
    std::vector<char> genes(2 * PAIRS * LENGTH);
    unsigned seed = 1;
    for (char &letter : genes) letter = "ACGT"[(seed = seed * 1664525u + 1013904223u) >> 30];
    char *left, *right;
    int *rows, *best;
    CHECK(cudaMalloc(&left, genes.size()));
    CHECK(cudaMalloc(&rows, 3 * LENGTH * sizeof(int)));
    CHECK(cudaMalloc(&best, PAIRS * sizeof(int)));
    CHECK(cudaMemcpy(left, genes.data(), genes.size(), cudaMemcpyHostToDevice));
    right = left + PAIRS * LENGTH;
    return measure("alignment_barriers", argc, argv, 2, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            CHECK(cudaMemsetAsync(best, 0, PAIRS * sizeof(int)));
            if (repaired) {
                apart<<<PAIRS, THREADS>>>(left, right, best);
            } else {
                for (int pair = 0; pair < PAIRS; ++pair) {
                    char *a = left + pair * LENGTH, *b = right + pair * LENGTH;
                    int *found = best + pair;
                    void *arguments[] = {&a, &b, &rows, &found};
                    CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void *>(together), 4, THREADS, arguments, 0, nullptr));
                }
            }
        }
        CHECK(cudaGetLastError());
        std::vector<int> all(PAIRS);
        CHECK(cudaMemcpy(all.data(), best, PAIRS * sizeof(int), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (int value : all) sum += value;
        return sum;
    });
}
