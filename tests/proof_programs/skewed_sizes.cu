// Adds up how many bytes a server has sent, by kind of answer; nearly all answers are of one kind.
#include "common.h"

constexpr int KINDS = 16, THREADS = 256, ANSWERS = 1 << 26, BLOCKS = 1056;

template <int COPIES>
__global__ void add_up(const unsigned char *kinds, const unsigned short *sizes, unsigned long long *totals) {
    __shared__ unsigned sums[KINDS * COPIES];
    for (int i = threadIdx.x; i < KINDS * COPIES; i += THREADS) sums[i] = 0;
    __syncthreads();
    int copy = threadIdx.x % COPIES;
    for (size_t i = size_t(blockIdx.x) * THREADS + threadIdx.x; i < ANSWERS; i += size_t(gridDim.x) * THREADS)
        atomicAdd(&sums[kinds[i] * COPIES + copy], unsigned(sizes[i]));
    __syncthreads();
    if (threadIdx.x < KINDS) {
        unsigned long long total = 0;
        for (int k = 0; k < COPIES; ++k) total += sums[threadIdx.x * COPIES + k];
        atomicAdd(&totals[threadIdx.x], total);
    }
}

__global__ void fill(unsigned char *kinds, unsigned short *sizes) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    unsigned random = unsigned(i) * 2654435761u >> 16;
    kinds[i] = random % 100 < 96 ? 3 : random % KINDS;
    sizes[i] = 200 + random % 1000;
}

int main(int argc, char **argv) {
    turn();
    unsigned char *kinds;
    unsigned short *sizes;
    unsigned long long *totals;
    CHECK(cudaMalloc(&kinds, ANSWERS));
    CHECK(cudaMalloc(&sizes, ANSWERS * sizeof(unsigned short)));
    CHECK(cudaMalloc(&totals, KINDS * sizeof(unsigned long long)));
    fill<<<ANSWERS / 256, 256>>>(kinds, sizes);
    CHECK(cudaDeviceSynchronize());
    return measure("skewed_sizes", argc, argv, 150, [&](bool repaired, int steps) {
        CHECK(cudaMemset(totals, 0, KINDS * sizeof(unsigned long long)));
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                add_up<32><<<BLOCKS, THREADS>>>(kinds, sizes, totals);
            else
                add_up<1><<<BLOCKS, THREADS>>>(kinds, sizes, totals);
        }
        CHECK(cudaGetLastError());
        unsigned long long found[KINDS];
        CHECK(cudaMemcpy(found, totals, sizeof(found), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (int kind = 0; kind < KINDS; ++kind) sum += (kind + 1) * (double(found[kind]) / steps);
        return sum;
    });
}
