// Compares faces: products of all feature vectors of one set with all of another, on tensor cores.
#include "common.h"
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

constexpr int FACES = 4096, FEATURES = 2048, TILE = 128, DEPTH = 64, THREADS = 256;

// Takes TILE rows of DEPTH numbers to shared memory, where a row begins each PITCH numbers.
template <int PITCH>
__device__ void take(const half *from, half *to) {
    for (int i = threadIdx.x; i < TILE * DEPTH / 8; i += THREADS) {
        int row = i / (DEPTH / 8), column = i % (DEPTH / 8) * 8;
        *reinterpret_cast<uint4 *>(to + row * PITCH + column) =
            *reinterpret_cast<const uint4 *>(from + size_t(row) * FEATURES + column);
    }
}

// A block makes a tile of 128 by 128 products, each of its eight warps 64 by 32 of them.
template <int PITCH>
__global__ void __launch_bounds__(THREADS, 2) compare(const half *left, const half *right, float *alike) {
    __shared__ __align__(16) half a[TILE * PITCH], b[TILE * PITCH];
    int warp = threadIdx.x / 32, down = warp / 4 * 64, across = warp % 4 * 32;
    left += size_t(blockIdx.y) * TILE * FEATURES;
    right += size_t(blockIdx.x) * TILE * FEATURES;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[4][2];
    for (auto &row : sums)
        for (auto &sum : row) wmma::fill_fragment(sum, 0.0f);
    for (int start = 0; start < FEATURES; start += DEPTH) {
        take<PITCH>(left + start, a);
        take<PITCH>(right + start, b);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; k += 16) {
            wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> columns[2];
            for (int j = 0; j < 2; ++j) wmma::load_matrix_sync(columns[j], b + (across + 16 * j) * PITCH + k, PITCH);
            for (int i = 0; i < 4; ++i) {
                wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> rows;
                wmma::load_matrix_sync(rows, a + (down + 16 * i) * PITCH + k, PITCH);
                for (int j = 0; j < 2; ++j) wmma::mma_sync(sums[i][j], rows, columns[j], sums[i][j]);
            }
        }
        __syncthreads();
    }
    alike += (size_t(blockIdx.y) * TILE + down) * FACES + blockIdx.x * TILE + across;
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 2; ++j)
            wmma::store_matrix_sync(alike + size_t(16 * i) * FACES + 16 * j, sums[i][j], FACES, wmma::mem_row_major);
}

__global__ void fill(half *numbers, unsigned seed) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    unsigned random = (unsigned(i) + seed) * 2654435761u;
    numbers[i] = __float2half(float(random >> 16 & 255) / 256.0f);
}

int main(int argc, char **argv) {
    turn();
    size_t numbers = size_t(FACES) * FEATURES;
    half *left, *right;
    float *alike;
    CHECK(cudaMalloc(&left, numbers * sizeof(half)));
    CHECK(cudaMalloc(&right, numbers * sizeof(half)));
    CHECK(cudaMalloc(&alike, size_t(FACES) * FACES * sizeof(float)));
    fill<<<numbers / 256, 256>>>(left, 1);
    fill<<<numbers / 256, 256>>>(right, 99);
    CHECK(cudaDeviceSynchronize());
    dim3 blocks(FACES / TILE, FACES / TILE);
    return measure("face_products", argc, argv, 1200, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step)
            if (repaired)
                compare<DEPTH + 8><<<blocks, THREADS>>>(left, right, alike);
            else
                compare<DEPTH><<<blocks, THREADS>>>(left, right, alike);
        CHECK(cudaGetLastError());
        std::vector<float> some(1 << 16);
        CHECK(cudaMemcpy(some.data(), alike, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum / some.size();
    });
}
