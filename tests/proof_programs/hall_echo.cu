// Lets music sound like in a hall: each sample becomes a weighted sum of 128 samples side by side.
#include "common.h"

constexpr int SAMPLES = 1 << 26, TAPS = 128, EACH = 8;

__constant__ float taps[TAPS];

// A thread has one sample.
__global__ void echo_single(const float *sound, float *out) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    float sum = 0;
#pragma unroll 16
    for (int tap = 0; tap < TAPS; ++tap) sum += taps[tap] * sound[i + tap];
    out[i] = sum;
}

// A thread has eight samples side by side, and keeps those that several of them need in registers.
__global__ void echo_several(const float *sound, float *out) {
    size_t i = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) * EACH;
    const float4 *from = reinterpret_cast<const float4 *>(sound + i);
    float near[2 * EACH], sum[EACH] = {};
    *reinterpret_cast<float4 *>(near) = from[0];
    *reinterpret_cast<float4 *>(near + 4) = from[1];
#pragma unroll 2
    for (int tap = 0; tap < TAPS; tap += EACH) {
        *reinterpret_cast<float4 *>(near + EACH) = from[tap / 4 + 2];
        *reinterpret_cast<float4 *>(near + EACH + 4) = from[tap / 4 + 3];
#pragma unroll
        for (int k = 0; k < EACH; ++k)
#pragma unroll
            for (int j = 0; j < EACH; ++j) sum[j] += taps[tap + k] * near[k + j];
#pragma unroll
        for (int j = 0; j < EACH; ++j) near[j] = near[j + EACH];
    }
    float4 *to = reinterpret_cast<float4 *>(out + i);
    to[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    to[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
}

__global__ void fill(float *sound) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < SAMPLES + TAPS + EACH) sound[i] = float((unsigned(i) * 2654435761u >> 16) & 255) / 256.0f;
}

int main(int argc, char **argv) {
    turn();
    float *sound, *out;
    CHECK(cudaMalloc(&sound, size_t(SAMPLES + 4096) * sizeof(float)));
    CHECK(cudaMalloc(&out, size_t(SAMPLES) * sizeof(float)));
    fill<<<SAMPLES / 256 + 1, 256>>>(sound);
    std::vector<float> drawn(TAPS);
    for (int tap = 0; tap < TAPS; ++tap) drawn[tap] = 0.5f / (tap + 1) + 0.01f * (tap % 7);
    CHECK(cudaMemcpyToSymbol(taps, drawn.data(), TAPS * sizeof(float)));
    CHECK(cudaDeviceSynchronize());
    return measure("hall_echo", argc, argv, 500, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step)
            if (repaired)
                echo_several<<<SAMPLES / EACH / 256, 256>>>(sound, out);
            else
                echo_single<<<SAMPLES / 256, 256>>>(sound, out);
        CHECK(cudaGetLastError());
        std::vector<float> some(1 << 16);
        CHECK(cudaMemcpy(some.data(), out, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum / some.size();
    });
}
