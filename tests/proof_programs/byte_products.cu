// Compares fingerprints of songs: products of vectors of bytes, a stored one for each thread with all that are asked for.
#include "common.h"

constexpr int WORDS = 16, STORED = 1 << 20, ASKED = 64, THREADS = 128;

// Bytes stand for numbers about a zero of their own, as quantised networks have them.
__device__ int by_bytes(int a, int b, int zero_a, int zero_b, int sum) {
    for (int k = 0; k < 32; k += 8)
        sum += (int(static_cast<signed char>(a >> k)) - zero_a) * (int(static_cast<signed char>(b >> k)) - zero_b);
    return sum;
}

template <bool FOUR>
__global__ void compare(const int *stored, const int *asked, int zero_a, int zero_b, int *best) {
    constexpr int ONES = 0x01010101;
    __shared__ int wanted[ASKED * WORDS], sums[ASKED];
    for (int i = threadIdx.x; i < ASKED * WORDS; i += THREADS) wanted[i] = asked[i];
    __syncthreads();
    if (FOUR && threadIdx.x < ASKED) {
        int sum = 0;
        for (int w = 0; w < WORDS; ++w) sum = __dp4a(wanted[threadIdx.x * WORDS + w], ONES, sum);
        sums[threadIdx.x] = sum;
    }
    __syncthreads();
    size_t i = size_t(blockIdx.x) * THREADS + threadIdx.x;
    int mine[WORDS], total = 0, most = -(1 << 30);
#pragma unroll
    for (int w = 0; w < WORDS; ++w) mine[w] = stored[w * size_t(STORED) + i];
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
        if (FOUR) total = __dp4a(mine[w], ONES, total);
    for (int q = 0; q < ASKED; ++q) {
        int sum = FOUR ? 4 * WORDS * zero_a * zero_b - zero_b * total - zero_a * sums[q] : 0;
#pragma unroll
        for (int w = 0; w < WORDS; ++w) {
            int other = wanted[q * WORDS + w];
            sum = FOUR ? __dp4a(mine[w], other, sum) : by_bytes(mine[w], other, zero_a, zero_b, sum);
        }
        most = max(most, sum);
    }
    best[i] = most;
}

__global__ void fill(int *words) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    unsigned x = unsigned(i) * 2654435761u + 12345;
    words[i] = x ^ x >> 15;
}

int main(int argc, char **argv) {
    turn();
    int *stored, *asked, *best;
    CHECK(cudaMalloc(&stored, size_t(STORED) * WORDS * sizeof(int)));
    CHECK(cudaMalloc(&asked, ASKED * WORDS * sizeof(int)));
    CHECK(cudaMalloc(&best, STORED * sizeof(int)));
    fill<<<size_t(STORED) * WORDS / 256, 256>>>(stored);
    fill<<<ASKED * WORDS / 256, 256>>>(asked);
    CHECK(cudaDeviceSynchronize());
    return measure("byte_products", argc, argv, 200, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                compare<true><<<STORED / THREADS, THREADS>>>(stored, asked, 3, -5, best);
            else
                compare<false><<<STORED / THREADS, THREADS>>>(stored, asked, 3, -5, best);
        }
        CHECK(cudaGetLastError());
        std::vector<int> found(STORED);
        CHECK(cudaMemcpy(found.data(), best, STORED * sizeof(int), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (int value : found) sum += value;
        return sum;
    });
}
