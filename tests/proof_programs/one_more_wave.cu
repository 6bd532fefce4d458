// Simulates many prices by chance (Monte Carlo); a block keeps the days of its paths in shared memory and fills a multiprocessor.
#include "common.h"

constexpr int PATHS = 1 << 23, DAYS = 96, THREADS = 512, KEPT = DAYS * THREADS * sizeof(float);

__device__ unsigned next(unsigned &state) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

// Pays what the price at its best was above the mean of the days after.
__device__ float payment(const float *days) {
    float highest = 0;
    int best = 0;
    for (int day = 0; day < DAYS; ++day) {
        float price = days[day * THREADS];
        if (price > highest) highest = price, best = day;
    }
    float mean = 0;
    for (int day = best; day < DAYS; ++day) mean += days[day * THREADS];
    return highest - mean / (DAYS - best);
}

__global__ void simulate(float *sums, int per_block) {
    extern __shared__ float kept[];
    float *days = kept + threadIdx.x, sum = 0;
    int first = blockIdx.x * per_block, last = min(first + per_block, PATHS);
    for (int path = first + threadIdx.x; path < last; path += blockDim.x) {
        unsigned state = path * 2654435761u + 12345u;
        float price = 100;
        for (int day = 0; day < DAYS; ++day) {
            float chance = (next(state) >> 8) * (1.0f / 16777216) - 0.5f;
            price *= 1 + 0.02f * chance;
            days[day * THREADS] = price;
        }
        sum += payment(days);
    }
    atomicAdd(&sums[threadIdx.x % 32], sum);
}

// A table of sizes that were good for an earlier GPU has 148 blocks in it.
int blocks_for(bool repaired) {
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    return repaired ? device.multiProcessorCount : 148;
}

int main(int argc, char **argv) {
    turn();
    float *sums;
    CHECK(cudaMalloc(&sums, 32 * sizeof(float)));
    CHECK(cudaFuncSetAttribute(simulate, cudaFuncAttributeMaxDynamicSharedMemorySize, KEPT));
    int blocks[2] = {blocks_for(false), blocks_for(true)};
    return measure("one_more_wave", argc, argv, 50, [&](bool repaired, int steps) {
        int number = blocks[repaired], per_block = (PATHS + number - 1) / number;
        for (int step = 0; step < steps; ++step) {
            CHECK(cudaMemsetAsync(sums, 0, 32 * sizeof(float)));
            simulate<<<number, THREADS, KEPT>>>(sums, per_block);
        }
        CHECK(cudaGetLastError());
        float all[32];
        CHECK(cudaMemcpy(all, sums, sizeof(all), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : all) sum += value;
        return sum / PATHS;
    });
}
