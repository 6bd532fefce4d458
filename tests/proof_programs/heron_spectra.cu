// Follows calls of herons by pitch: each recording goes through a bank of filters, whose states are kept while it is read.
#include "common.h"

constexpr int RECORDINGS = 1 << 20, MOMENTS = 64, MOST = 32, THREADS = 256;

struct Bank {
    float decays[MOST], gains[MOST];
};

// Loudness in the loudest band of each recording; COUNT bands, or as many as asked for where it is 0.
template <int COUNT>
__global__ void listen(const float *heard, float *loud, Bank bank, int asked) {
    int at = blockIdx.x * THREADS + threadIdx.x;
    int bands = COUNT ? COUNT : asked;
    float states[COUNT ? COUNT : MOST], powers[COUNT ? COUNT : MOST];
#pragma unroll
    for (int band = 0; band < bands; ++band) states[band] = powers[band] = 0;
    for (int moment = 0; moment < MOMENTS; ++moment) {
        float sound = heard[moment * RECORDINGS + at];
#pragma unroll
        for (int band = 0; band < bands; ++band) {
            states[band] = bank.decays[band] * states[band] + bank.gains[band] * sound;
            powers[band] += states[band] * states[band];
        }
    }
    float most = 0;
#pragma unroll
    for (int band = 0; band < bands; ++band) most = fmaxf(most, powers[band]);
    loud[at] += most;
}

__global__ void record(float *heard) {
    int at = blockIdx.x * THREADS + threadIdx.x, moment = blockIdx.y;
    heard[moment * RECORDINGS + at] = __sinf(0.001f * (at % 3001) * moment + 0.1f * (at % 7));
}

int main(int argc, char **argv) {
    turn();
    float *heard, *loud;
    CHECK(cudaMalloc(&heard, size_t(MOMENTS) * RECORDINGS * sizeof(float)));
    CHECK(cudaMalloc(&loud, RECORDINGS * sizeof(float)));
    record<<<dim3(RECORDINGS / THREADS, MOMENTS), THREADS>>>(heard);
    int bands = 16;
    return measure("heron_spectra", argc, argv, 600, [&](bool repaired, int steps) {
        CHECK(cudaMemsetAsync(loud, 0, RECORDINGS * sizeof(float)));
        for (int night = 0; night < steps; ++night) {
            Bank bank;
            for (int band = 0; band < MOST; ++band) {
                bank.decays[band] = 0.5f + 0.4f * ((band + night) % bands) / bands;
                bank.gains[band] = 1.0f - bank.decays[band];
            }
            if (repaired && bands == 16)
                listen<16><<<RECORDINGS / THREADS, THREADS>>>(heard, loud, bank, bands);
            else
                listen<0><<<RECORDINGS / THREADS, THREADS>>>(heard, loud, bank, bands);
        }
        CHECK(cudaGetLastError());
        std::vector<float> found(RECORDINGS);
        CHECK(cudaMemcpy(found.data(), loud, found.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float one : found) sum += one;
        return sum / RECORDINGS / steps;
    });
}
