// Follows how salt spreads in a bay, over a mesh of triangles whose nodes know the numbers of those beside them.
#include "common.h"

constexpr int WIDE = 8192, HIGH = 4096, NODES = WIDE * HIGH, NEAR = 6, THREADS = 256, SOME = 1 << 16;

// The number of a node: as the mesher gave them, by chance, or along the lines of the bay.
__host__ __device__ int number(int node, bool along) {
    if (along) return node;
    unsigned n = node;
    n = (n * 2654435761u + 12345u) & (NODES - 1);
    n ^= n >> 13;
    n = (n * 2246822519u) & (NODES - 1);
    return n ^ (n >> 11);
}

__global__ void spread(const int *near, const float *salt, float *after) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float own = salt[i], sum = 0;
#pragma unroll
    for (int k = 0; k < NEAR; ++k) sum += salt[near[size_t(k) * NODES + i]];
    after[i] = own + 0.1f * (sum - NEAR * own);
}

__global__ void mesh(int *near, float *salt, bool along) {
    int node = blockIdx.x * blockDim.x + threadIdx.x, own = number(node, along);
    int x = node % WIDE, y = node / WIDE;
    constexpr int right[NEAR] = {1, -1, 0, 0, 1, -1}, down[NEAR] = {0, 0, 1, -1, 1, -1};
#pragma unroll
    for (int k = 0; k < NEAR; ++k) {
        int other = ((y + down[k]) & (HIGH - 1)) * WIDE + ((x + right[k]) & (WIDE - 1));
        near[size_t(k) * NODES + own] = number(other, along);
    }
    salt[own] = (unsigned(node) * 3266489917u >> 20) * (1.0f / 4096);
}

// Takes the salt at some nodes, wherever they are.
__global__ void look(const float *salt, float *some, bool along) {
    int node = blockIdx.x * blockDim.x + threadIdx.x;
    some[node] = salt[number(node, along)];
}

int main(int argc, char **argv) {
    turn();
    int *near[2];
    float *start[2], *salt, *after, *seen;
    CHECK(cudaMalloc(&salt, NODES * sizeof(float)));
    CHECK(cudaMalloc(&after, NODES * sizeof(float)));
    CHECK(cudaMalloc(&seen, SOME * sizeof(float)));
    for (int along = 0; along < 2; ++along) {
        CHECK(cudaMalloc(&near[along], size_t(NEAR) * NODES * sizeof(int)));
        CHECK(cudaMalloc(&start[along], NODES * sizeof(float)));
        mesh<<<NODES / THREADS, THREADS>>>(near[along], start[along], along);
    }
    CHECK(cudaDeviceSynchronize());
    return measure("bay_currents", argc, argv, 400, [&](bool repaired, int steps) {
        CHECK(cudaMemcpyAsync(salt, start[repaired], NODES * sizeof(float), cudaMemcpyDeviceToDevice));
        for (int step = 0; step < steps; ++step) {
            spread<<<NODES / THREADS, THREADS>>>(near[repaired], salt, after);
            std::swap(salt, after);
        }
        look<<<SOME / THREADS, THREADS>>>(salt, seen, repaired);
        CHECK(cudaGetLastError());
        std::vector<float> some(SOME);
        CHECK(cudaMemcpy(some.data(), seen, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum / some.size();
    });
}
