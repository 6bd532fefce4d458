// Finds the height of a landscape in a cloud of points: the lowest point in each cell of a grid, and how many points there are.
#include "common.h"

constexpr int POINTS = 1 << 24, CELLS = 1 << 12;

// What a laser scanner tells of a point; the heights alone are of interest here.
struct Point {
    float x, y, height, intensity;
    float red, green, blue, time;
};

__global__ void make(Point *points, float *heights) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    Point p = {float(i % 977), float(i % 1013), float(i * 37ll % 9973) * 0.01f, 1, 0, 0, 0, float(i)};
    points[i] = p;
    heights[i] = p.height;
}

__global__ void lowest_of_points(const Point *points, float *lowest, int per_cell) {
    __shared__ float part[8];
    float least = 1e30f;
    for (int i = threadIdx.x; i < per_cell; i += blockDim.x)
        least = fminf(least, points[size_t(blockIdx.x) * per_cell + i].height);
    for (int step = 16; step; step /= 2) least = fminf(least, __shfl_xor_sync(~0u, least, step));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = least;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < 8; ++warp) least = fminf(least, part[warp]);
        lowest[blockIdx.x] = least;
    }
}

__global__ void lowest_of_heights(const float *heights, float *lowest, int per_cell) {
    __shared__ float part[8];
    float least = 1e30f;
    for (int i = threadIdx.x; i < per_cell; i += blockDim.x)
        least = fminf(least, heights[size_t(blockIdx.x) * per_cell + i]);
    for (int step = 16; step; step /= 2) least = fminf(least, __shfl_xor_sync(~0u, least, step));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = least;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < 8; ++warp) least = fminf(least, part[warp]);
        lowest[blockIdx.x] = least;
    }
}

int main(int argc, char **argv) {
    turn();
    Point *points;
    float *heights, *lowest;
    CHECK(cudaMalloc(&points, POINTS * sizeof(Point)));
    CHECK(cudaMalloc(&heights, POINTS * sizeof(float)));
    CHECK(cudaMalloc(&lowest, CELLS * sizeof(float)));
    make<<<POINTS / 256, 256>>>(points, heights);
    CHECK(cudaDeviceSynchronize());
    return measure("whole_points", argc, argv, 1000, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                lowest_of_heights<<<CELLS, 256>>>(heights, lowest, POINTS / CELLS);
            else
                lowest_of_points<<<CELLS, 256>>>(points, lowest, POINTS / CELLS);
        }
        std::vector<float> all(CELLS);
        CHECK(cudaMemcpy(all.data(), lowest, CELLS * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : all) sum += value;
        return sum;
    });
}
