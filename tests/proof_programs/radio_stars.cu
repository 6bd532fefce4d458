// Listens to the sky: the power of each channel, summed over a while, goes to the host, which looks for peaks.
#include "common.h"

constexpr int CHANNELS = 1 << 18, SAMPLES = 2048, THREADS = 256;

// Sums the power of a channel; samples of all channels at one moment lie side by side.
__global__ void listen(const float *heard, float *power, float gain) {
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
#pragma unroll 8
    for (int k = 0; k < SAMPLES; ++k) {
        float x = heard[size_t(k) * CHANNELS + channel] * gain;
        sum += x * x;
    }
    power[channel] = sum;
}

__global__ void hear(float *heard) {
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < SAMPLES; ++k) {
        unsigned h = (channel * 2654435761u) ^ (k * 2246822519u);
        h = (h ^ (h >> 15)) * 3266489917u;
        heard[size_t(k) * CHANNELS + channel] = (h >> 16) * (1.0f / 65536) - 0.5f;
    }
}

// Returns the sum of the places where power is more than on both sides.
static double peaks(const float *power, float least) {
    double sum = 0;
    for (int k = 1; k < CHANNELS - 1; ++k)
        if (power[k] > least && power[k] > power[k - 1] && power[k] >= power[k + 1]) sum += k;
    return sum;
}

int main(int argc, char **argv) {
    turn();
    constexpr size_t bytes = CHANNELS * sizeof(float);
    float *heard, *power[2], *seen[2][2];
    cudaEvent_t done[2];
    CHECK(cudaMalloc(&heard, bytes * SAMPLES));
    for (int k = 0; k < 2; ++k) {
        CHECK(cudaMalloc(&power[k], bytes));
        CHECK(cudaHostAlloc(reinterpret_cast<void **>(&seen[0][k]), bytes, cudaHostAllocWriteCombined));
        CHECK(cudaHostAlloc(reinterpret_cast<void **>(&seen[1][k]), bytes, cudaHostAllocDefault));
        CHECK(cudaEventCreateWithFlags(&done[k], cudaEventDisableTiming));
    }
    hear<<<CHANNELS / THREADS, THREADS>>>(heard);
    CHECK(cudaDeviceSynchronize());
    return measure("radio_stars", argc, argv, 60, [&](bool repaired, int steps) {
        double sum = 0;
        // the GPU listens to the next piece while the host looks at the last one
        for (int step = 0; step <= steps; ++step) {
            int now = step % 2, last = 1 - now;
            if (step < steps) {
                listen<<<CHANNELS / THREADS, THREADS>>>(heard, power[now], 1 + 0.01f * (step % 5));
                CHECK(cudaMemcpyAsync(seen[repaired][now], power[now], bytes, cudaMemcpyDeviceToHost));
                CHECK(cudaEventRecord(done[now]));
            }
            if (step > 0) {
                CHECK(cudaEventSynchronize(done[last]));
                sum += peaks(seen[repaired][last], 178);
            }
        }
        CHECK(cudaGetLastError());
        return sum / CHANNELS / steps;
    });
}
