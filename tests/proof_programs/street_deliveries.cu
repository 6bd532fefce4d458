// Lists, for each shop of a town, the doors that a courier can reach in time, out of travel times from shops to all doors.
#include "common.h"

constexpr int SHOPS = 8192, DOORS = 16384, THREADS = 256;
constexpr int REACHED = 1024;  // no shop reaches more
constexpr int ROOM = 16384;    // room for all doors

__device__ float travel(unsigned shop, unsigned door) {
    unsigned key = shop * 2654435761u ^ door * 2246822519u;
    key = (key ^ key >> 15) * 3266489917u;
    key = (key ^ key >> 13) * 668265263u;
    return (key >> 8) * (1.0f / (1 << 24));
}

__global__ void measure_streets(float *times) {
    times[size_t(blockIdx.y) * DOORS + blockIdx.x * THREADS + threadIdx.x] =
        travel(blockIdx.y, blockIdx.x * THREADS + threadIdx.x);
}

// A block has a shop: it collects doors and times in shared memory, and then writes how many, and what they cost.
__global__ void collect(const float *times, float limit, int *counts, float *costs, int room) {
    extern __shared__ float kept[];
    int *doors = reinterpret_cast<int *>(kept + room);
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    const float *row = times + size_t(blockIdx.x) * DOORS;
    for (int door = threadIdx.x; door < DOORS; door += THREADS) {
        float time = row[door];
        if (time < limit) {
            int place = atomicAdd(&count, 1);
            if (place < room) kept[place] = time, doors[place] = door;
        }
    }
    __syncthreads();
    float cost = 0;
    for (int k = threadIdx.x; k < min(count, room); k += THREADS) cost += kept[k] * (1 + doors[k] % 7);
    for (int far = 16; far > 0; far /= 2) cost += __shfl_down_sync(~0u, cost, far);
    if (threadIdx.x % 32 == 0) atomicAdd(&costs[blockIdx.x], cost);
    if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

struct Town {
    float *times, *costs;
    int *counts;

    Town() {
        CHECK(cudaMalloc(&times, size_t(SHOPS) * DOORS * sizeof(float)));
        CHECK(cudaMalloc(&costs, SHOPS * sizeof(float)));
        CHECK(cudaMalloc(&counts, SHOPS * sizeof(int)));
        measure_streets<<<dim3(DOORS / THREADS, SHOPS), THREADS>>>(times);
        CHECK(cudaFuncSetAttribute(collect, cudaFuncAttributeMaxDynamicSharedMemorySize, ROOM * 8));
        CHECK(cudaDeviceSynchronize());
    }

    double run(bool tight, int steps) {
        int room = tight ? REACHED : ROOM;
        for (int step = 0; step < steps; ++step) {
            CHECK(cudaMemsetAsync(costs, 0, SHOPS * sizeof(float)));
            float limit = 0.02f + 0.001f * (step % 10);
            collect<<<SHOPS, THREADS, size_t(room) * 8>>>(times, limit, counts, costs, room);
        }
        CHECK(cudaGetLastError());
        std::vector<float> found(SHOPS);
        CHECK(cudaMemcpy(found.data(), costs, SHOPS * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float cost : found) sum += cost;
        return sum / SHOPS;
    }
};

int main(int argc, char **argv) {
    turn();
    Town town;
    return measure("street_deliveries", argc, argv, 300,
                   [&](bool repaired, int steps) { return town.run(repaired, steps); });
}
