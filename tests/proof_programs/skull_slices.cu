// Makes pictures of slices of a skull from what a scanner saw on its way round it (filtered back projection).
#include "common.h"

constexpr int SIDE = 1024, ANGLES = 360, BINS = 1536, THREADS = 256;

__device__ float2 direction(int k) {
    float2 d;
    sincosf(k * (3.14159265f / ANGLES), &d.y, &d.x);
    return d;
}

__device__ float seen(const float *row, float2 d, float x, float y) {
    float at = x * d.x + y * d.y + BINS / 2;
    int bin = int(at);
    float part = at - bin;
    return row[bin] + part * (row[bin + 1] - row[bin]);
}

__global__ void project_back(const float *scan, float *slice) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = i % SIDE - SIDE / 2 + 0.5f, y = i / SIDE - SIDE / 2 + 0.5f, sum = 0;
    for (int k = 0; k < ANGLES; ++k) {
        float2 d = direction(k);
        sum += seen(scan + k * BINS, d, x, y);
    }
    slice[i] = sum * (3.14159265f / ANGLES);
}

__global__ void project_back_along(const float *scan, const float2 *directions, float *slice) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = i % SIDE - SIDE / 2 + 0.5f, y = i / SIDE - SIDE / 2 + 0.5f, sum = 0;
    for (int k = 0; k < ANGLES; ++k) {
        float2 d = directions[k];
        sum += seen(scan + k * BINS, d, x, y);
    }
    slice[i] = sum * (3.14159265f / ANGLES);
}

__global__ void look_round(float2 *directions) { directions[threadIdx.x] = direction(threadIdx.x); }

__global__ void scan_skull(float *scan) {
    int k = blockIdx.x;
    float2 d = direction(k);
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x) {
        float far = bin - BINS / 2 - 60 * d.x - 25 * d.y, wide = 300 + 60 * d.x;
        float inner = 1 - far * far / (wide * wide);
        scan[k * BINS + bin] = (inner > 0 ? sqrtf(inner) : 0) + 0.01f * (bin * 31 % 17);
    }
}

int main(int argc, char **argv) {
    turn();
    float *scan, *slice;
    float2 *directions;
    CHECK(cudaMalloc(&scan, ANGLES * BINS * sizeof(float)));
    CHECK(cudaMalloc(&slice, SIDE * SIDE * sizeof(float)));
    CHECK(cudaMalloc(&directions, ANGLES * sizeof(float2)));
    scan_skull<<<ANGLES, THREADS>>>(scan);
    look_round<<<1, ANGLES>>>(directions);
    CHECK(cudaDeviceSynchronize());
    return measure("skull_slices", argc, argv, 1500, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step)
            if (repaired)
                project_back_along<<<SIDE * SIDE / THREADS, THREADS>>>(scan, directions, slice);
            else
                project_back<<<SIDE * SIDE / THREADS, THREADS>>>(scan, slice);
        CHECK(cudaGetLastError());
        std::vector<float> some(SIDE * SIDE);
        CHECK(cudaMemcpy(some.data(), slice, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum / some.size();
    });
}
