// Marches rays through a field of distances: most leave the scene soon, some graze a surface for long.
#include "common.h"

constexpr int RAYS = 1 << 20;

__global__ void march(const int *order, const float *origin, float *depth) {
    int ray = order[blockIdx.x * blockDim.x + threadIdx.x];
    float at = origin[ray], travelled = 0;
    int bumps = ray * 2654435761u >> 28 ? 64 : 2048;  // one ray in 16 grazes
    for (int step = 0; step < bumps; ++step) {
        float distance = 0.3f + 0.2f * __sinf(at) * __cosf(0.7f * at + travelled);
        travelled += distance;
        at += 0.1f * distance;
    }
    depth[ray] = travelled;
}

int main(int argc, char **argv) {
    turn();
    std::vector<int> as_they_come(RAYS), grouped;
    std::vector<float> start(RAYS);
    for (int ray = 0; ray < RAYS; ++ray) {
        as_they_come[ray] = ray;
        start[ray] = ray % 100 * 0.01f;
    }
    grouped = as_they_come;
    std::stable_partition(grouped.begin(), grouped.end(), [](int ray) { return ray * 2654435761u >> 28 == 0; });
    int *orders[2];
    float *origin, *depth;
    CHECK(cudaMalloc(&origin, RAYS * sizeof(float)));
    CHECK(cudaMalloc(&depth, RAYS * sizeof(float)));
    for (int repaired = 0; repaired < 2; ++repaired) {
        CHECK(cudaMalloc(&orders[repaired], RAYS * sizeof(int)));
        const auto &order = repaired ? grouped : as_they_come;
        CHECK(cudaMemcpy(orders[repaired], order.data(), RAYS * sizeof(int), cudaMemcpyHostToDevice));
    }
    CHECK(cudaMemcpy(origin, start.data(), RAYS * sizeof(float), cudaMemcpyHostToDevice));
    return measure("mixed_rays", argc, argv, 20, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step)
            march<<<RAYS / 128, 128>>>(orders[repaired], origin, depth);
        float some[256];
        CHECK(cudaMemcpy(some, depth, sizeof(some), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum;
    });
}
