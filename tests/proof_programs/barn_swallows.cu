// Weighs how swallows of a barn fly: energy of all of them, summed each moment, while the air slows them down.
#include "common.h"

constexpr int SWALLOWS = 1 << 22, THREADS = 256;

__global__ void fly(float *speeds, float share) {
    int bird = blockIdx.x * THREADS + threadIdx.x;
    speeds[bird] = share * speeds[bird] + 0.001f * (bird & 15);
}

__global__ void energy_each(const float *speeds, double *sum) {
    int bird = blockIdx.x * THREADS + threadIdx.x;
    float half = 0.5f * speeds[bird] * speeds[bird];
    atomicAdd(sum, double(half));
}

__global__ void energy_by_block(const float *speeds, double *sum) {
    __shared__ float parts[THREADS / 32];
    int bird = blockIdx.x * THREADS + threadIdx.x;
    float half = 0.5f * speeds[bird] * speeds[bird];
    for (int off = 16; off; off /= 2) half += __shfl_down_sync(~0u, half, off);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = half;
    __syncthreads();
    if (threadIdx.x) return;
    double total = 0;
    for (float part : parts) total += part;
    atomicAdd(sum, total);
}

int main(int argc, char **argv) {
    turn();
    float *speeds;
    double *sum;
    CHECK(cudaMalloc(&speeds, SWALLOWS * sizeof(float)));
    CHECK(cudaMalloc(&sum, sizeof(double)));
    return measure("barn_swallows", argc, argv, 200, [&](bool repaired, int steps) {
        CHECK(cudaMemset(speeds, 0, SWALLOWS * sizeof(float)));
        for (int moment = 0; moment < steps; ++moment) {
            CHECK(cudaMemsetAsync(sum, 0, sizeof(double)));
            fly<<<SWALLOWS / THREADS, THREADS>>>(speeds, 0.99f);
            if (repaired)
                energy_by_block<<<SWALLOWS / THREADS, THREADS>>>(speeds, sum);
            else
                energy_each<<<SWALLOWS / THREADS, THREADS>>>(speeds, sum);
        }
        CHECK(cudaGetLastError());
        double found = 0;
        CHECK(cudaMemcpy(&found, sum, sizeof(double), cudaMemcpyDeviceToHost));
        return found / SWALLOWS;
    });
}
