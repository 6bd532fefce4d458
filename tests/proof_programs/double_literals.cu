// Prices options with the formula of Black and Scholes, and says how they react (the greeks).
#include <cmath>
#include "common.h"

constexpr int OPTIONS = 1 << 22, REPEATS = 4;

struct Greeks {
    float price, delta, gamma, vega;
};

// Somebody wrote the constants of the formula as C++ takes them without an f: as double.
__device__ float normal_double(float x) {
    return 0.5 * (1.0 + erf(x * 0.70710678118654752));
}

__device__ float density_double(float x) {
    return 0.3989422804014327 * exp(-0.5 * x * x);
}

__device__ float normal_float(float x) {
    return 0.5f * (1.0f + erff(x * 0.70710678f));
}

__device__ float density_float(float x) {
    return 0.39894228f * expf(-0.5f * x * x);
}

__global__ void price_double(const float *spot, const float *strike, const float *years, Greeks *out, float rate, float sigma) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float s = spot[i], k = strike[i], t = years[i], root = sigma * sqrtf(t);
    Greeks sum = {0, 0, 0, 0};
    for (int shift = 0; shift < REPEATS; ++shift) {
        float bumped = s * (1.0f + 0.01f * shift);
        float d1 = (logf(bumped / k) + (rate + 0.5f * sigma * sigma) * t) / root, d2 = d1 - root;
        float n1 = normal_double(d1), n2 = normal_double(d2), density = density_double(d1);
        sum.price += bumped * n1 - k * expf(-rate * t) * n2;
        sum.delta += n1;
        sum.gamma += density / (bumped * root);
        sum.vega += bumped * density * sqrtf(t);
    }
    out[i] = sum;
}

__global__ void price_float(const float *spot, const float *strike, const float *years, Greeks *out, float rate, float sigma) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float s = spot[i], k = strike[i], t = years[i], root = sigma * sqrtf(t);
    Greeks sum = {0, 0, 0, 0};
    for (int shift = 0; shift < REPEATS; ++shift) {
        float bumped = s * (1.0f + 0.01f * shift);
        float d1 = (logf(bumped / k) + (rate + 0.5f * sigma * sigma) * t) / root, d2 = d1 - root;
        float n1 = normal_float(d1), n2 = normal_float(d2), density = density_float(d1);
        sum.price += bumped * n1 - k * expf(-rate * t) * n2;
        sum.delta += n1;
        sum.gamma += density / (bumped * root);
        sum.vega += bumped * density * sqrtf(t);
    }
    out[i] = sum;
}

int main(int argc, char **argv) {
    turn();
    std::vector<float> spot(OPTIONS), strike(OPTIONS), years(OPTIONS);
    for (int i = 0; i < OPTIONS; ++i) spot[i] = 90 + i % 21, strike[i] = 85 + i % 31, years[i] = 0.25f + i % 8 * 0.25f;
    float *on_gpu[3];
    Greeks *out;
    const std::vector<float> *columns[] = {&spot, &strike, &years};
    for (int c = 0; c < 3; ++c) {
        CHECK(cudaMalloc(&on_gpu[c], OPTIONS * sizeof(float)));
        CHECK(cudaMemcpy(on_gpu[c], columns[c]->data(), OPTIONS * sizeof(float), cudaMemcpyHostToDevice));
    }
    CHECK(cudaMalloc(&out, OPTIONS * sizeof(Greeks)));
    return measure("double_literals", argc, argv, 400, [&](bool repaired, int steps) {
        auto price = repaired ? price_float : price_double;
        for (int step = 0; step < steps; ++step)
            price<<<OPTIONS / 256, 256>>>(on_gpu[0], on_gpu[1], on_gpu[2], out, 0.02f + 0.001f * (step % 4), 0.2f);
        std::vector<Greeks> some(1000);
        CHECK(cudaMemcpy(some.data(), out, some.size() * sizeof(Greeks), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (const Greeks &one : some) sum += one.price + one.delta + one.gamma + one.vega;
        return sum;
    });
}
