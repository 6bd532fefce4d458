// Lets seeds in water draw each other near and push each other off: forces of all pairs within groups of 1,024.
#include "common.h"

constexpr int SEEDS = 1 << 16, GROUP = 1024, THREADS = 256;

__device__ float push_by_powers(float apart) {
    float near = powf(1.0f / apart, 7.0f), nearer = powf(1.0f / apart, 13.0f);
    return 12 * (nearer - near);
}

__device__ float push_by_products(float apart) {
    float inverse = 1.0f / apart, square = inverse * inverse, sixth = square * square * square;
    return 12 * (sixth * sixth - sixth) * inverse;
}

template <bool PRODUCTS>
__global__ void push(const float3 *places, float3 *forces) {
    __shared__ float3 others[THREADS];
    int seed = blockIdx.x * THREADS + threadIdx.x, begin = seed / GROUP * GROUP;
    float3 here = places[seed], force = {0, 0, 0};
    for (int first = 0; first < GROUP; first += THREADS) {
        others[threadIdx.x] = places[begin + first + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < THREADS; ++k) {
            float3 other = others[k];
            float x = here.x - other.x, y = here.y - other.y, z = here.z - other.z;
            float apart = sqrtf(x * x + y * y + z * z + 1.0f);
            float share = (PRODUCTS ? push_by_products(apart) : push_by_powers(apart)) / apart;
            force.x += share * x;
            force.y += share * y;
            force.z += share * z;
        }
        __syncthreads();
    }
    forces[seed] = force;
}

__global__ void drift(float3 *places, const float3 *forces, float share) {
    int seed = blockIdx.x * THREADS + threadIdx.x;
    places[seed].x += share * forces[seed].x;
    places[seed].y += share * forces[seed].y;
    places[seed].z += share * forces[seed].z;
}

int main(int argc, char **argv) {
    turn();
    float3 *places, *forces;
    CHECK(cudaMalloc(&places, SEEDS * sizeof(float3)));
    CHECK(cudaMalloc(&forces, SEEDS * sizeof(float3)));
    std::vector<float3> begin(SEEDS);
    for (int i = 0; i < SEEDS; ++i) begin[i] = {0.7f * (i % 10), 0.7f * (i / 10 % 10), 0.7f * (i % GROUP / 100)};
    return measure("seed_clusters", argc, argv, 500, [&](bool repaired, int steps) {
        CHECK(cudaMemcpy(places, begin.data(), SEEDS * sizeof(float3), cudaMemcpyHostToDevice));
        for (int k = 0; k < steps; ++k) {
            if (repaired)
                push<true><<<SEEDS / THREADS, THREADS>>>(places, forces);
            else
                push<false><<<SEEDS / THREADS, THREADS>>>(places, forces);
            drift<<<SEEDS / THREADS, THREADS>>>(places, forces, 1e-6f);
        }
        CHECK(cudaGetLastError());
        std::vector<float3> found(SEEDS);
        CHECK(cudaMemcpy(found.data(), places, SEEDS * sizeof(float3), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float3 place : found) sum += place.x + place.y + place.z;
        return sum / SEEDS;
    });
}
