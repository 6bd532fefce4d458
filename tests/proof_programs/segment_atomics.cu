// Adds up what sensors measured, station by station; the readings are sorted by station already.
#include "common.h"

constexpr int READINGS = 1 << 26, STATIONS = 1 << 14, EACH = 64;

__device__ float quality(float value, int kind) {
    return kind % 16 == 3 ? 0.5f * value : value;
}

// One reading after another goes to the sum of its station.
__global__ void add_each(const float *values, const int *stations, float *sums) {
    int first = (blockIdx.x * blockDim.x + threadIdx.x) / 32 * 32 * EACH + threadIdx.x % 32;
    for (int k = 0; k < EACH; ++k) {
        int i = first + k * 32;
        atomicAdd(&sums[stations[i]], quality(values[i], i));
    }
}

// Readings of one station that follow one another are summed in a register first.
__global__ void add_runs(const float *values, const int *stations, float *sums) {
    int first = (blockIdx.x * blockDim.x + threadIdx.x) / 32 * 32 * EACH + threadIdx.x % 32;
    int station = stations[first];
    float sum = 0;
    for (int k = 0; k < EACH; ++k) {
        int i = first + k * 32, next = stations[i];
        if (next != station) {
            atomicAdd(&sums[station], sum);
            station = next;
            sum = 0;
        }
        sum += quality(values[i], i);
    }
    atomicAdd(&sums[station], sum);
}

__global__ void fill(float *values, int *stations) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    values[i] = (i % 9) * 0.125f;
    stations[i] = int(size_t(i) * STATIONS / READINGS);
}

int main(int argc, char **argv) {
    turn();
    float *values, *sums;
    int *stations;
    CHECK(cudaMalloc(&values, size_t(READINGS) * sizeof(float)));
    CHECK(cudaMalloc(&stations, size_t(READINGS) * sizeof(int)));
    CHECK(cudaMalloc(&sums, STATIONS * sizeof(float)));
    fill<<<READINGS / 256, 256>>>(values, stations);
    CHECK(cudaDeviceSynchronize());
    return measure("segment_atomics", argc, argv, 100, [&](bool repaired, int steps) {
        int blocks = READINGS / EACH / 256;
        for (int step = 0; step < steps; ++step) {
            CHECK(cudaMemsetAsync(sums, 0, STATIONS * sizeof(float)));
            if (repaired)
                add_runs<<<blocks, 256>>>(values, stations, sums);
            else
                add_each<<<blocks, 256>>>(values, stations, sums);
        }
        CHECK(cudaGetLastError());
        std::vector<float> all(STATIONS);
        CHECK(cudaMemcpy(all.data(), sums, STATIONS * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : all) sum += value;
        return sum;
    });
}
