// Lets air swing in bellows of an organ: slopes of pressure within elements of 32 by 32 points, by a small matrix.
#include "common.h"

constexpr int SIDE = 32, ELEMENTS = 1 << 14;

template <int PAD>
__global__ void slopes(const float *pressure, const float *matrix, float *out) {
    __shared__ float tile[SIDE][SIDE + PAD];
    __shared__ float shares[SIDE][SIDE];
    int x = threadIdx.x, begin = blockIdx.x * SIDE * SIDE;
    for (int y = threadIdx.y; y < SIDE; y += blockDim.y) {
        tile[y][x] = pressure[begin + y * SIDE + x];
        shares[y][x] = matrix[y * SIDE + x];
    }
    __syncthreads();
    for (int y = threadIdx.y; y < SIDE; y += blockDim.y) {
        float slope = 0;
        for (int k = 0; k < SIDE; ++k) slope += shares[y][k] * tile[x][k];
        out[begin + y * SIDE + x] = slope;
    }
}

__global__ void swing(float *pressure, const float *slope, float share) {
    int at = blockIdx.x * 256 + threadIdx.x;
    pressure[at] += share * (slope[at] - pressure[at]);
}

__global__ void begin_all(float *pressure) {
    int at = blockIdx.x * 256 + threadIdx.x;
    pressure[at] = __sinf(0.01f * (at & 4095));
}

int main(int argc, char **argv) {
    turn();
    constexpr int COUNT = ELEMENTS * SIDE * SIDE;
    float *pressure, *slope, *matrix;
    CHECK(cudaMalloc(&pressure, COUNT * sizeof(float)));
    CHECK(cudaMalloc(&slope, COUNT * sizeof(float)));
    CHECK(cudaMalloc(&matrix, SIDE * SIDE * sizeof(float)));
    std::vector<float> shares(SIDE * SIDE);
    for (int i = 0; i < SIDE * SIDE; ++i) shares[i] = (i % 7 - 3) / 64.0f;
    CHECK(cudaMemcpy(matrix, shares.data(), shares.size() * sizeof(float), cudaMemcpyHostToDevice));
    return measure("organ_bellows", argc, argv, 600, [&](bool repaired, int steps) {
        begin_all<<<COUNT / 256, 256>>>(pressure);
        for (int moment = 0; moment < steps; ++moment) {
            if (repaired)
                slopes<1><<<ELEMENTS, dim3(SIDE, 8)>>>(pressure, matrix, slope);
            else
                slopes<0><<<ELEMENTS, dim3(SIDE, 8)>>>(pressure, matrix, slope);
            swing<<<COUNT / 256, 256>>>(pressure, slope, 0.01f);
        }
        CHECK(cudaGetLastError());
        std::vector<float> found(1 << 20);
        CHECK(cudaMemcpy(found.data(), pressure, found.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float p : found) sum += std::abs(p);
        return sum / found.size();
    });
}
