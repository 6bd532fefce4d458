// Prices options by Black and Scholes in single precision.
#include "common.h"

constexpr int N = 1 << 24;

template <bool REPAIRED>
__global__ void price(const float *spot, const float *strike, float *call) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float s = spot[i], k = strike[i], t = 0.5f, v = 0.3f, r = 0.02f;
    if (REPAIRED) {
        float root = v * sqrtf(t);
        float d1 = (logf(s / k) + (r + 0.5f * v * v) * t) / root, d2 = d1 - root;
        call[i] = s * 0.5f * (1.0f + erff(d1 * 0.70710678f)) - k * expf(-r * t) * 0.5f * (1.0f + erff(d2 * 0.70710678f));
    } else {
        float root = v * sqrtf(t);
        float d1 = (logf(s / k) + (r + 0.5f * v * v) * t) / root, d2 = d1 - root;
        call[i] = s * 0.5 * (1.0 + erf(d1 * 0.70710678)) - k * exp(-1.0 * r * t) * 0.5 * (1.0 + erf(d2 * 0.70710678));
    }
}

__global__ void fill(float *spot, float *strike) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    spot[i] = 50 + i % 97, strike[i] = 60 + i % 89;
}

int main(int argc, char **argv) {
    turn();
    float *spot, *strike, *call;
    CHECK(cudaMalloc(&spot, sizeof(float) * N));
    CHECK(cudaMalloc(&strike, sizeof(float) * N));
    CHECK(cudaMalloc(&call, sizeof(float) * N));
    fill<<<N / 256, 256>>>(spot, strike);
    return measure("options", argc, argv, 300, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                price<true><<<N / 256, 256>>>(spot, strike, call);
            else
                price<false><<<N / 256, 256>>>(spot, strike, call);
        }
        std::vector<float> some(4096);
        CHECK(cudaMemcpy(some.data(), call, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float c : some) sum += c;
        return sum;
    });
}
