// Looks up how likely neutrons of many energies are to be absorbed, in a table with energies at uneven distances.
#include "common.h"
#include <cmath>

constexpr int NEUTRONS = 1 << 22, POINTS = 1024;

template <bool HALVES>
__device__ int find(const float *energies, float energy) {
    if (HALVES) {
        int low = 0;
        for (int step = POINTS / 2; step > 0; step /= 2)
            if (energies[low + step] <= energy) low += step;
        return low;
    }
    int at = 0;
    while (at < POINTS - 2 && energies[at + 1] <= energy) ++at;
    return at;
}

template <bool HALVES>
__global__ void absorb(const float *neutrons, const float *energies, const float *sections, float *out) {
    __shared__ float table[POINTS];
    for (int k = threadIdx.x; k < POINTS; k += blockDim.x) table[k] = energies[k];
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float energy = neutrons[i];
    int at = min(find<HALVES>(table, energy), POINTS - 2);
    float share = (energy - table[at]) / (table[at + 1] - table[at]);
    out[i] = sections[at] + share * (sections[at + 1] - sections[at]);
}

__global__ void fill(float *neutrons) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float u = (unsigned(i) * 2654435761u >> 8) * 0x1p-24f;
    neutrons[i] = expf(u * 6.8f);
}

int main(int argc, char **argv) {
    turn();
    float *neutrons, *energies, *sections, *out;
    CHECK(cudaMalloc(&neutrons, NEUTRONS * sizeof(float)));
    CHECK(cudaMalloc(&out, NEUTRONS * sizeof(float)));
    CHECK(cudaMalloc(&energies, POINTS * sizeof(float)));
    CHECK(cudaMalloc(&sections, POINTS * sizeof(float)));
    std::vector<float> e(POINTS), s(POINTS);
    for (int k = 0; k < POINTS; ++k) e[k] = k == 0 ? 1.0f : std::max(e[k - 1] + 1e-4f, std::exp(k * 6.9f / POINTS)), s[k] = 1 + k * 7 % 31;
    CHECK(cudaMemcpy(energies, e.data(), POINTS * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(sections, s.data(), POINTS * sizeof(float), cudaMemcpyHostToDevice));
    fill<<<NEUTRONS / 256, 256>>>(neutrons);
    CHECK(cudaDeviceSynchronize());
    return measure("energy_search", argc, argv, 400, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step)
            if (repaired)
                absorb<true><<<NEUTRONS / 256, 256>>>(neutrons, energies, sections, out);
            else
                absorb<false><<<NEUTRONS / 256, 256>>>(neutrons, energies, sections, out);
        CHECK(cudaGetLastError());
        std::vector<float> some(1 << 16);
        CHECK(cudaMemcpy(some.data(), out, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum;
    });
}
