// Counts the symbols of blocks of a text, as an entropy coder does: each thread counts a stretch of its own.
#include "common.h"

constexpr int SYMBOLS = 32, THREADS = 128, BLOCKS = 4096, CHUNKS = 16;

__global__ void count(const uint4 *text, unsigned *counts) {
    unsigned mine[SYMBOLS] = {};
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
        uint4 some = text[(size_t(blockIdx.x) * CHUNKS + chunk) * THREADS + threadIdx.x];
        unsigned words[4] = {some.x, some.y, some.z, some.w};
        for (unsigned word : words)
            for (int byte = 0; byte < 32; byte += 8)
                ++mine[word >> byte & (SYMBOLS - 1)];
    }
    for (int symbol = 0; symbol < SYMBOLS; ++symbol)
        counts[(size_t(blockIdx.x) * SYMBOLS + symbol) * THREADS + threadIdx.x] = mine[symbol];
}

__global__ void count_shared(const uint4 *text, unsigned *counts) {
    __shared__ unsigned all[SYMBOLS][THREADS];
    for (int symbol = 0; symbol < SYMBOLS; ++symbol) all[symbol][threadIdx.x] = 0;
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
        uint4 some = text[(size_t(blockIdx.x) * CHUNKS + chunk) * THREADS + threadIdx.x];
        unsigned words[4] = {some.x, some.y, some.z, some.w};
        for (unsigned word : words)
            for (int byte = 0; byte < 32; byte += 8) ++all[word >> byte & (SYMBOLS - 1)][threadIdx.x];
    }
    for (int symbol = 0; symbol < SYMBOLS; ++symbol)
        counts[(size_t(blockIdx.x) * SYMBOLS + symbol) * THREADS + threadIdx.x] = all[symbol][threadIdx.x];
}

__global__ void fill(unsigned *text) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    text[i] = unsigned(i) * 2654435761u;
}

int main(int argc, char **argv) {
    turn();
    uint4 *text;
    unsigned *counts;
    size_t words = size_t(BLOCKS) * CHUNKS * THREADS * 4, numbers = size_t(BLOCKS) * SYMBOLS * THREADS;
    CHECK(cudaMalloc(&text, words * sizeof(unsigned)));
    CHECK(cudaMalloc(&counts, numbers * sizeof(unsigned)));
    fill<<<words / 256, 256>>>(reinterpret_cast<unsigned *>(text));
    return measure("private_counts", argc, argv, 40, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                count_shared<<<BLOCKS, THREADS>>>(text, counts);
            else
                count<<<BLOCKS, THREADS>>>(text, counts);
        }
        std::vector<unsigned> some(THREADS);
        CHECK(cudaMemcpy(some.data(), counts, THREADS * sizeof(unsigned), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (unsigned value : some) sum += value;
        return sum;
    });
}
