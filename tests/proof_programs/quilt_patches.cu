// The end of a layer of a model that tells patches of quilts apart: halves are scaled, cut at zero, and added to others.
#include "common.h"
#include <cuda_fp16.h>

constexpr int CHANNELS = 256, THREADS = 256, PATCHES = 64, SIDE = 88;
constexpr size_t VALUES = size_t(PATCHES) * SIDE * SIDE * CHANNELS;

__device__ float finished(float value, float scale, float shift, float other) {
    return fmaxf(value * scale + shift, 0.0f) + other;
}

// A thread has a number; channels of a place lie side by side.
__global__ void finish(const __half *x, const __half *others, const float *scale, const float *shift, __half *y) {
    size_t i = size_t(blockIdx.x) * THREADS + threadIdx.x;
    int c = i % CHANNELS;
    y[i] = __float2half(finished(__half2float(x[i]), scale[c], shift[c], __half2float(others[i])));
}

// The same, eight numbers for a thread.
__global__ void finish_eight(const uint4 *x, const uint4 *others, const float4 *scale, const float4 *shift, uint4 *y) {
    size_t i = size_t(blockIdx.x) * THREADS + threadIdx.x;
    int c = i % (CHANNELS / 8) * 2;
    uint4 values = x[i], adds = others[i], results;
    float4 scales[2] = {scale[c], scale[c + 1]}, shifts[2] = {shift[c], shift[c + 1]};
    const __half2 *a = reinterpret_cast<const __half2 *>(&values), *b = reinterpret_cast<const __half2 *>(&adds);
    __half2 *to = reinterpret_cast<__half2 *>(&results);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
        float2 p = __half22float2(a[2 * k]), q = __half22float2(a[2 * k + 1]);
        float2 r = __half22float2(b[2 * k]), s = __half22float2(b[2 * k + 1]);
        float4 m = scales[k], n = shifts[k];
        to[2 * k] = __floats2half2_rn(finished(p.x, m.x, n.x, r.x), finished(p.y, m.y, n.y, r.y));
        to[2 * k + 1] = __floats2half2_rn(finished(q.x, m.z, n.z, s.x), finished(q.y, m.w, n.w, s.y));
    }
    y[i] = results;
}

__global__ void fill(__half *numbers, unsigned seed) {
    size_t i = size_t(blockIdx.x) * THREADS + threadIdx.x;
    unsigned key = (unsigned(i) + seed) * 2654435761u;
    key = (key ^ key >> 15) * 2246822519u;
    numbers[i] = __float2half((key >> 8) * (2.0f / (1 << 24)) - 1);
}

struct Layer {
    __half *x, *others, *y;
    float *scale, *shift;

    Layer() {
        for (__half **numbers : {&x, &others, &y}) CHECK(cudaMalloc(numbers, VALUES * sizeof(__half)));
        for (float **numbers : {&scale, &shift}) CHECK(cudaMalloc(numbers, CHANNELS * sizeof(float)));
        std::vector<float> scales(CHANNELS), shifts(CHANNELS);
        for (int c = 0; c < CHANNELS; ++c) scales[c] = 0.5f + c % 7 * 0.1f, shifts[c] = c % 5 * 0.1f - 0.2f;
        CHECK(cudaMemcpy(scale, scales.data(), CHANNELS * sizeof(float), cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(shift, shifts.data(), CHANNELS * sizeof(float), cudaMemcpyHostToDevice));
        fill<<<VALUES / THREADS, THREADS>>>(x, 1);
        fill<<<VALUES / THREADS, THREADS>>>(others, 9876);
        CHECK(cudaDeviceSynchronize());
    }

    void end(bool eight) {
        if (!eight) {
            finish<<<VALUES / THREADS, THREADS>>>(x, others, scale, shift, y);
            return;
        }
        auto *in = reinterpret_cast<uint4 *>(x), *adds = reinterpret_cast<uint4 *>(others);
        auto *scales = reinterpret_cast<float4 *>(scale), *shifts = reinterpret_cast<float4 *>(shift);
        finish_eight<<<VALUES / 8 / THREADS, THREADS>>>(in, adds, scales, shifts, reinterpret_cast<uint4 *>(y));
    }
};

int main(int argc, char **argv) {
    turn();
    Layer layer;
    return measure("quilt_patches", argc, argv, 1500, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) layer.end(repaired);
        CHECK(cudaGetLastError());
        std::vector<__half> found(1 << 16);
        CHECK(cudaMemcpy(found.data(), layer.y, found.size() * sizeof(__half), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (__half value : found) sum += __half2float(value);
        return sum / found.size();
    });
}
