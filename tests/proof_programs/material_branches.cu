// Lets particles of four kinds fly through matter; what happens to one depends on its kind.
#include "common.h"

constexpr int PARTICLES = 1 << 22, STEPS = 24;

__device__ float photon(float energy, int step) {
    for (int k = 0; k < 6; ++k) energy = energy * 0.999f + 0.001f * __sinf(energy + step + k);
    return energy;
}

__device__ float electron(float energy, int step) {
    for (int k = 0; k < 6; ++k) energy = sqrtf(energy * energy + 0.01f) - 0.002f * __cosf(energy * k + step);
    return energy;
}

__device__ float proton(float energy, int step) {
    for (int k = 0; k < 6; ++k) energy = energy - 0.01f * __logf(1.5f + energy) / (1 + k + step);
    return energy;
}

__device__ float neutron(float energy, int step) {
    for (int k = 0; k < 6; ++k) energy = 0.5f * (energy + __expf(-0.1f * energy - 0.01f * (k + step)));
    return energy;
}

__global__ void fly(const int *kinds, float *energies) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int kind = kinds[i];
    float energy = energies[i];
    for (int step = 0; step < STEPS; ++step) {
        switch (kind) {
            case 0: energy = photon(energy, step); break;
            case 1: energy = electron(energy, step); break;
            case 2: energy = proton(energy, step); break;
            default: energy = neutron(energy, step);
        }
    }
    energies[i] = 1 + 0.5f * energy;
}

int main(int argc, char **argv) {
    turn();
    std::vector<int> mixed(PARTICLES), sorted(PARTICLES);
    unsigned state = 1;
    for (int i = 0; i < PARTICLES; ++i) state = state * 1664525u + 1013904223u, mixed[i] = state >> 30;
    sorted = mixed;
    std::sort(sorted.begin(), sorted.end());
    int *kinds[2];
    float *energies;
    const std::vector<int> *orders[] = {&mixed, &sorted};
    for (int v = 0; v < 2; ++v) {
        CHECK(cudaMalloc(&kinds[v], PARTICLES * sizeof(int)));
        CHECK(cudaMemcpy(kinds[v], orders[v]->data(), PARTICLES * sizeof(int), cudaMemcpyHostToDevice));
    }
    std::vector<float> begin(PARTICLES, 2.0f);
    CHECK(cudaMalloc(&energies, PARTICLES * sizeof(float)));
    return measure("material_branches", argc, argv, 200, [&](bool repaired, int steps) {
        CHECK(cudaMemcpy(energies, begin.data(), PARTICLES * sizeof(float), cudaMemcpyHostToDevice));
        for (int step = 0; step < steps; ++step) fly<<<PARTICLES / 256, 256>>>(kinds[repaired], energies);
        CHECK(cudaGetLastError());
        std::vector<float> end(PARTICLES);
        CHECK(cudaMemcpy(end.data(), energies, PARTICLES * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : end) sum += value;
        return sum / PARTICLES;
    });
}
