// Corrects what gauges in a dam measured: pressures from voltages and the drift of each day, for years of them.
#include "common.h"

constexpr int READINGS = 1 << 26, THREADS = 256, RUN = 64;
constexpr int BLOCKS = READINGS / RUN / THREADS;

__device__ float correct(float voltage, float drift) {
    float x = voltage - drift;
    return 0.3f + x * (12.5f + x * (0.02f - 0.0007f * x));
}

// Each thread has a run of readings.
__global__ void pressures_runs(const float *voltages, float *pressures, float drift) {
    int begin = (blockIdx.x * blockDim.x + threadIdx.x) * RUN;
    for (int i = begin; i < begin + RUN; ++i) {
        float voltage = voltages[i];
        pressures[i] = correct(voltage, drift);
    }
}

// Threads take readings in turns.
__global__ void pressures_turns(const float *voltages, float *pressures, float drift) {
    int threads = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < READINGS; i += threads) {
        pressures[i] = correct(voltages[i], drift);
    }
}

__global__ void lay_out(float *voltages) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    voltages[i] = (i * 2654435761u >> 16) * (5.0f / 65536);
}

int main(int argc, char **argv) {
    turn();
    float *voltages, *pressures;
    CHECK(cudaMalloc(&voltages, READINGS * sizeof(float)));
    CHECK(cudaMalloc(&pressures, READINGS * sizeof(float)));
    lay_out<<<READINGS / THREADS, THREADS>>>(voltages);
    CHECK(cudaDeviceSynchronize());
    return measure("dam_pressures", argc, argv, 2000, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            float drift = 0.001f * (step % 50);
            if (repaired)
                pressures_turns<<<BLOCKS, THREADS>>>(voltages, pressures, drift);
            else
                pressures_runs<<<BLOCKS, THREADS>>>(voltages, pressures, drift);
        }
        CHECK(cudaGetLastError());
        std::vector<float> some(1 << 16);
        CHECK(cudaMemcpy(some.data(), pressures, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum / some.size();
    });
}
