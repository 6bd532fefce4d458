// Fits a polynomial to the teeth of each of many combs, by Newton's differences, and says how high combs are between teeth.
#include "common.h"

constexpr int COMBS = 1 << 22, THREADS = 256, TEETH = 16;

// Newton's differences of heights at whole numbers, in the array itself, and the value at a point.
template <int FIXED>
__device__ float value_at(float *heights, int teeth, float point) {
    const int count = FIXED ? FIXED : teeth;
#pragma unroll
    for (int level = 1; level < count; ++level) {
        float share = 1.0f / level;
#pragma unroll
        for (int tooth = count - 1; tooth >= level; --tooth)
            heights[tooth] = (heights[tooth] - heights[tooth - 1]) * share;
    }
    float value = heights[count - 1];
#pragma unroll
    for (int tooth = count - 2; tooth >= 0; --tooth) value = heights[tooth] + (point - tooth) * value;
    return value;
}

// Heights lie tooth by tooth, so that combs of a warp are side by side.
template <int FIXED>
__global__ void fit(const float *heights, const float *points, float *values, int teeth) {
    int comb = blockIdx.x * THREADS + threadIdx.x;
    float here[TEETH];
    const int count = FIXED ? FIXED : teeth;
#pragma unroll
    for (int tooth = 0; tooth < count; ++tooth) here[tooth] = heights[size_t(tooth) * COMBS + comb];
    values[comb] = value_at<FIXED>(here, teeth, points[comb]);
}

__global__ void begin(float *heights, float *points) {
    int comb = blockIdx.x * THREADS + threadIdx.x;
    unsigned key = comb * 2654435761u;
    for (int tooth = 0; tooth < TEETH; ++tooth) {
        key = (key ^ key >> 15) * 2246822519u + tooth;
        heights[size_t(tooth) * COMBS + comb] = 1 + (key >> 8) * (0.01f / (1 << 24));
    }
    points[comb] = TEETH / 2 + (key & 1023) / 1024.0f;
}

struct Combs {
    float *heights, *points, *values;

    Combs() {
        CHECK(cudaMalloc(&heights, size_t(TEETH) * COMBS * sizeof(float)));
        for (float **numbers : {&points, &values}) CHECK(cudaMalloc(numbers, COMBS * sizeof(float)));
        begin<<<COMBS / THREADS, THREADS>>>(heights, points);
    }

    double run(bool fixed, int steps) {
        for (int k = 0; k < steps; ++k) {
            if (fixed)
                fit<TEETH><<<COMBS / THREADS, THREADS>>>(heights, points, values, TEETH);
            else
                fit<0><<<COMBS / THREADS, THREADS>>>(heights, points, values, TEETH);
        }
        CHECK(cudaGetLastError());
        std::vector<float> found(1 << 20);
        CHECK(cudaMemcpy(found.data(), values, found.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : found) sum += value;
        return sum / found.size();
    }
};

int main(int argc, char **argv) {
    turn();
    Combs combs;
    return measure("comb_shapes", argc, argv, 800,
                   [&](bool repaired, int steps) { return combs.run(repaired, steps); });
}
