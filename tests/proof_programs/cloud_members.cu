// Turns waves of many forecasts of clouds into fields on circles of latitude: one matrix, in halves, for all members.
#include "common.h"
#include <cuda_fp16.h>
#include <mma.h>

constexpr int CIRCLES = 1024, WAVES = 1024, MEMBERS = 8192;
constexpr int TILE = 64, DEPTH = 32, THREADS = 256, PAD = 8;

// Both kernels: a block has 64 circles and 64 members, and takes 32 waves at a time through shared memory.
struct Tiles {
    alignas(32) __half a[TILE][DEPTH + PAD], b[DEPTH][TILE + PAD];

    __device__ void load(const __half *matrix, const __half *waves, int first) {
        int t = threadIdx.x, row = t / 4, col = t % 4 * 8;
        *reinterpret_cast<uint4 *>(&a[row][col]) =
            *reinterpret_cast<const uint4 *>(&matrix[size_t(blockIdx.y * TILE + row) * WAVES + first + col]);
        row = t / 8, col = t % 8 * 8;
        *reinterpret_cast<uint4 *>(&b[row][col]) =
            *reinterpret_cast<const uint4 *>(&waves[size_t(first + row) * MEMBERS + blockIdx.x * TILE + col]);
    }
};

// A thread has 4 by 4 numbers of the result, and adds up products one by one.
__global__ void fields(const __half *matrix, const __half *waves, float *result) {
    __shared__ Tiles tiles;
    int row = threadIdx.x / 16 * 4, col = threadIdx.x % 16 * 4;
    float sums[4][4] = {};
    for (int first = 0; first < WAVES; first += DEPTH) {
        tiles.load(matrix, waves, first);
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < DEPTH; ++k) {
            float left[4], right[4];
            for (int i = 0; i < 4; ++i) left[i] = __half2float(tiles.a[row + i][k]);
            for (int j = 0; j < 4; ++j) right[j] = __half2float(tiles.b[k][col + j]);
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j) sums[i][j] += left[i] * right[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i) {
        float4 sum = {sums[i][0], sums[i][1], sums[i][2], sums[i][3]};
        size_t at = size_t(blockIdx.y * TILE + row + i) * MEMBERS + blockIdx.x * TILE + col;
        *reinterpret_cast<float4 *>(&result[at]) = sum;
    }
}

// A warp has 16 by 32 numbers of the result, and multiplies pieces of 16 by 16 in tensor cores.
__global__ void fields_by_pieces(const __half *matrix, const __half *waves, float *result) {
    using namespace nvcuda::wmma;
    __shared__ Tiles tiles;
    int warp = threadIdx.x / 32, row = warp / 2 * 16, col = warp % 2 * 32;
    fragment<accumulator, 16, 16, 16, float> sums[2];
    for (auto &sum : sums) fill_fragment(sum, 0.0f);
    for (int first = 0; first < WAVES; first += DEPTH) {
        tiles.load(matrix, waves, first);
        __syncthreads();
        for (int k = 0; k < DEPTH; k += 16) {
            fragment<matrix_a, 16, 16, 16, __half, row_major> left;
            load_matrix_sync(left, &tiles.a[row][k], DEPTH + PAD);
            for (int j = 0; j < 2; ++j) {
                fragment<matrix_b, 16, 16, 16, __half, row_major> right;
                load_matrix_sync(right, &tiles.b[k][col + 16 * j], TILE + PAD);
                mma_sync(sums[j], left, right, sums[j]);
            }
        }
        __syncthreads();
    }
    for (int j = 0; j < 2; ++j) {
        size_t at = size_t(blockIdx.y * TILE + row) * MEMBERS + blockIdx.x * TILE + col + 16 * j;
        store_matrix_sync(&result[at], sums[j], MEMBERS, mem_row_major);
    }
}

__global__ void begin(__half *numbers, unsigned seed) {
    unsigned i = blockIdx.x * THREADS + threadIdx.x, key = (i + seed) * 2654435761u;
    key = (key ^ key >> 15) * 2246822519u;
    numbers[i] = __float2half((key >> 8) * (2.0f / (1 << 24)) - 1);
}

int main(int argc, char **argv) {
    turn();
    __half *matrix, *waves;
    float *result;
    CHECK(cudaMalloc(&matrix, size_t(CIRCLES) * WAVES * sizeof(__half)));
    CHECK(cudaMalloc(&waves, size_t(WAVES) * MEMBERS * sizeof(__half)));
    CHECK(cudaMalloc(&result, size_t(CIRCLES) * MEMBERS * sizeof(float)));
    begin<<<CIRCLES * WAVES / THREADS, THREADS>>>(matrix, 1);
    begin<<<WAVES * MEMBERS / THREADS, THREADS>>>(waves, 77777777);
    return measure("cloud_members", argc, argv, 400, [&](bool repaired, int steps) {
        dim3 blocks(MEMBERS / TILE, CIRCLES / TILE);
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                fields_by_pieces<<<blocks, THREADS>>>(matrix, waves, result);
            else
                fields<<<blocks, THREADS>>>(matrix, waves, result);
        }
        CHECK(cudaGetLastError());
        std::vector<float> found(1 << 16);
        CHECK(cudaMemcpy(found.data(), result, found.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : found) sum += std::abs(value);
        return sum / found.size();
    });
}
