// Forces between atoms of a liquid, with a potential of any two exponents (Mie); here they are those of Lennard-Jones.
#include "common.h"

constexpr int ATOMS = 1 << 16, THREADS = 128;

struct Potential {
    float size, depth, repel, attract;
};

__device__ float by_powers(float squared, Potential p) {
    float ratio = p.size * rsqrtf(squared);
    return p.depth * (p.repel * powf(ratio, p.repel) - p.attract * powf(ratio, p.attract)) / squared;
}

__device__ float by_products(float squared, Potential p) {
    float ratio = p.size * p.size / squared, six = ratio * ratio * ratio;
    return p.depth * (12 * six * six - 6 * six) / squared;
}

template <bool PRODUCTS>
__global__ void forces(const float4 *atoms, float4 *force, Potential p) {
    __shared__ float4 tile[THREADS];
    float4 me = atoms[blockIdx.x * THREADS + threadIdx.x];
    float x = 0, y = 0, z = 0;
    for (int first = 0; first < ATOMS; first += THREADS) {
        __syncthreads();
        tile[threadIdx.x] = atoms[first + threadIdx.x];
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < THREADS; ++k) {
            float dx = me.x - tile[k].x, dy = me.y - tile[k].y, dz = me.z - tile[k].z;
            float squared = dx * dx + dy * dy + dz * dz + 0.5f;
            float push = PRODUCTS ? by_products(squared, p) : by_powers(squared, p);
            x += push * dx, y += push * dy, z += push * dz;
        }
    }
    force[blockIdx.x * THREADS + threadIdx.x] = {x, y, z, 0};
}

int main(int argc, char **argv) {
    turn();
    std::vector<float4> places(ATOMS);
    unsigned random = 1;
    auto next = [&] { return (random = random * 1664525u + 1013904223u) * (30.0f / 4294967296.0f); };
    for (float4 &place : places) place = {next(), next(), next(), 0};
    float4 *atoms, *force;
    CHECK(cudaMalloc(&atoms, ATOMS * sizeof(float4)));
    CHECK(cudaMalloc(&force, ATOMS * sizeof(float4)));
    CHECK(cudaMemcpy(atoms, places.data(), ATOMS * sizeof(float4), cudaMemcpyHostToDevice));
    Potential argon{0.8f, 1.0f, 12.0f, 6.0f};
    return measure("pair_powers", argc, argv, 6, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                forces<true><<<ATOMS / THREADS, THREADS>>>(atoms, force, argon);
            else
                forces<false><<<ATOMS / THREADS, THREADS>>>(atoms, force, argon);
        }
        CHECK(cudaGetLastError());
        std::vector<float4> found(ATOMS);
        CHECK(cudaMemcpy(found.data(), force, ATOMS * sizeof(float4), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float4 f : found) sum += std::abs(f.x) + std::abs(f.y) + std::abs(f.z);
        return sum;
    });
}
