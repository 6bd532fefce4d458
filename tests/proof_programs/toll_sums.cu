// Tells what each toll gate had taken after each car of a day: running sums of its tolls.
#include "common.h"

constexpr int GATES = 1 << 15, CARS = 512, WARPS = CARS / 32;

// A block has a gate; each thread adds up all cars before its own.
__global__ void running_each(const float *tolls, float *taken) {
    __shared__ float paid[CARS];
    size_t at = size_t(blockIdx.x) * CARS + threadIdx.x;
    paid[threadIdx.x] = tolls[at];
    __syncthreads();
    float sum = 0;
    for (int car = 0; car <= int(threadIdx.x); ++car) sum += paid[car];
    taken[at] = sum;
}

__device__ float scan_warp(float sum, int lane) {
    for (int step = 1; step < 32; step *= 2) {
        float before = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += before;
    }
    return sum;
}

// The same with sums of pairs, fours, eights and so on (a scan), in each warp and then over warps.
__global__ void running_scan(const float *tolls, float *taken) {
    __shared__ float ends[32];
    size_t at = size_t(blockIdx.x) * CARS + threadIdx.x;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float sum = scan_warp(tolls[at], lane);
    if (lane == 31) ends[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        float end = scan_warp(lane < WARPS ? ends[lane] : 0.0f, lane);
        ends[lane] = end;
    }
    __syncthreads();
    taken[at] = warp ? sum + ends[warp - 1] : sum;
}

__global__ void pay(float *tolls) {
    size_t i = size_t(blockIdx.x) * CARS + threadIdx.x;
    tolls[i] = 1 + 0.5f * ((unsigned(i) * 2654435761u >> 24) % 9);
}

int main(int argc, char **argv) {
    turn();
    float *tolls, *taken;
    CHECK(cudaMalloc(&tolls, size_t(GATES) * CARS * sizeof(float)));
    CHECK(cudaMalloc(&taken, size_t(GATES) * CARS * sizeof(float)));
    pay<<<GATES, CARS>>>(tolls);
    CHECK(cudaDeviceSynchronize());
    return measure("toll_sums", argc, argv, 4000, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step)
            if (repaired)
                running_scan<<<GATES, CARS>>>(tolls, taken);
            else
                running_each<<<GATES, CARS>>>(tolls, taken);
        CHECK(cudaGetLastError());
        std::vector<float> some(1 << 16);
        CHECK(cudaMemcpy(some.data(), taken, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum / some.size();
    });
}
