// Mixes tracks of sound, buffer by buffer; a function of a library chooses the grid for the GPU it finds.
#include "common.h"

constexpr int SAMPLES = 1 << 18, TRACKS = 16, THREADS = 256;

__global__ void mix(const float *tracks, const float *gains, float *out) {
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < SAMPLES; i += gridDim.x * THREADS) {
        float sum = 0;
        for (int t = 0; t < TRACKS; ++t) sum += gains[t] * tracks[size_t(t) * SAMPLES + i];
        out[i] = sum / (1 + fabsf(sum));
    }
}

__global__ void fill(float *tracks, float *gains) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    tracks[i] = (i * 7 % 201) * 0.01f - 1;
    if (i < TRACKS) gains[i] = 0.1f + 0.01f * i;
}

int blocks_of_device() {
    int device;
    CHECK(cudaGetDevice(&device));
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, device));
    return properties.multiProcessorCount * (properties.maxThreadsPerMultiProcessor / THREADS);
}

int main(int argc, char **argv) {
    turn();
    float *tracks, *gains, *out;
    CHECK(cudaMalloc(&tracks, size_t(SAMPLES) * TRACKS * sizeof(float)));
    CHECK(cudaMalloc(&gains, TRACKS * sizeof(float)));
    CHECK(cudaMalloc(&out, SAMPLES * sizeof(float)));
    fill<<<size_t(SAMPLES) * TRACKS / 256, 256>>>(tracks, gains);
    CHECK(cudaDeviceSynchronize());
    int known = blocks_of_device();
    return measure("ask_device", argc, argv, 800, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            int blocks = repaired ? known : blocks_of_device();
            mix<<<blocks, THREADS>>>(tracks, gains, out);
        }
        CHECK(cudaGetLastError());
        std::vector<float> made(SAMPLES);
        CHECK(cudaMemcpy(made.data(), out, SAMPLES * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : made) sum += std::abs(value);
        return sum;
    });
}
