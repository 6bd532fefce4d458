// Counts the values of an 8-bit image whose pixels are mostly dark.
#include "common.h"

constexpr int N = 1 << 26;

__global__ void histogram(const unsigned char *pixels, unsigned *bins) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += gridDim.x * blockDim.x) {
        atomicAdd(&bins[pixels[i]], 1u);
    }
}

__global__ void histogram_by_block(const unsigned char *pixels, unsigned *bins) {
    __shared__ unsigned mine[8][256];
    unsigned *own = mine[threadIdx.x / 32];
    for (int i = threadIdx.x % 32; i < 256; i += 32) own[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += gridDim.x * blockDim.x) {
        atomicAdd(&own[pixels[i]], 1u);
    }
    __syncthreads();
    unsigned sum = 0;
    for (int w = 0; w < 8; ++w) sum += mine[w][threadIdx.x];
    atomicAdd(&bins[threadIdx.x], sum);
}

__global__ void fill(unsigned char *x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned h = i * 2654435761u;
    x[i] = static_cast<unsigned char>((h >> 28) & (h >> 24) & 15);
}

int main(int argc, char **argv) {
    turn();
    unsigned char *pixels;
    unsigned *bins;
    CHECK(cudaMalloc(&pixels, N));
    CHECK(cudaMalloc(&bins, 256 * sizeof(unsigned)));
    fill<<<N / 256, 256>>>(pixels);
    return measure("histogram", argc, argv, 40, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            CHECK(cudaMemsetAsync(bins, 0, 256 * sizeof(unsigned)));
            if (repaired)
                histogram_by_block<<<132 * 8, 256>>>(pixels, bins);
            else
                histogram<<<132 * 8, 256>>>(pixels, bins);
        }
        unsigned counts[256];
        CHECK(cudaMemcpy(counts, bins, sizeof counts, cudaMemcpyDeviceToHost));
        double sum = 0;
        for (int i = 0; i < 256; ++i) sum += double(counts[i]) * (i + 1);
        return sum;
    });
}
