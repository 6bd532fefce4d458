// Products of single-precision matrices, as in a solver that may not round to fewer bits.
#include "common.h"

constexpr int N = 2048, TILE = 64, DEPTH = 16, EACH = 4;

__global__ void product(const float *a, const float *b, float *c) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0;
    for (int k = 0; k < N; ++k)
        sum += a[row * N + k] * b[k * N + column];
    c[row * N + column] = sum;
}

__global__ void product_by_tiles(const float *a, const float *b, float *c) {
    __shared__ float left[DEPTH][TILE + 4], right[DEPTH][TILE];
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    const float *a_rows = a + size_t(blockIdx.y) * TILE * N, *b_columns = b + blockIdx.x * TILE;
    float sum[EACH][EACH] = {};
    for (int start = 0; start < N; start += DEPTH) {
        for (int i = threadIdx.x; i < TILE * DEPTH; i += blockDim.x) {
            left[i % DEPTH][i / DEPTH] = a_rows[i / DEPTH * N + start + i % DEPTH];
            right[i / TILE][i % TILE] = b_columns[(start + i / TILE) * N + i % TILE];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            float4 l = *reinterpret_cast<float4 *>(&left[k][y * EACH]), r = *reinterpret_cast<float4 *>(&right[k][x * EACH]);
            float ls[EACH] = {l.x, l.y, l.z, l.w}, rs[EACH] = {r.x, r.y, r.z, r.w};
#pragma unroll
            for (int i = 0; i < EACH; ++i)
#pragma unroll
                for (int j = 0; j < EACH; ++j) sum[i][j] += ls[i] * rs[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < EACH; ++i)
        for (int j = 0; j < EACH; ++j)
            c[size_t(blockIdx.y * TILE + y * EACH + i) * N + blockIdx.x * TILE + x * EACH + j] = sum[i][j];
}

__global__ void fill(float *x, int period) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = i % period * 0.125f;
}

int main(int argc, char **argv) {
    turn();
    float *a, *b, *c;
    for (float **x : {&a, &b, &c}) CHECK(cudaMalloc(x, size_t(N) * N * sizeof(float)));
    fill<<<N * N / 256, 256>>>(a, 7);
    fill<<<N * N / 256, 256>>>(b, 5);
    return measure("naive_product", argc, argv, 20, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                product_by_tiles<<<dim3(N / TILE, N / TILE), 256>>>(a, b, c);
            else
                product<<<dim3(N / 32, N / 8), dim3(32, 8)>>>(a, b, c);
        }
        float some[64];
        CHECK(cudaMemcpy(some, c + 5 * N, sizeof(some), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum;
    });
}
