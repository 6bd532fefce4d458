// Density round each particle of a fluid (SPH): neighbours are found in the cells round it.
#include "common.h"

constexpr int SIDE = 32, CELLS = SIDE * SIDE * SIDE, EACH = 24, PARTICLES = CELLS * EACH, THREADS = 128;

__device__ float weight(float4 a, float4 b) {
    float dx = a.x - b.x, dy = a.y - b.y, dz = a.z - b.z;
    float near = 1 - (dx * dx + dy * dy + dz * dz);
    return near > 0 ? near * near * near : 0;
}

__device__ int cell_of(float4 p, int dx, int dy, int dz) {
    int x = int(p.x) + dx, y = int(p.y) + dy, z = int(p.z) + dz;
    bool outside = min(x, min(y, z)) < 0 || max(x, max(y, z)) >= SIDE;
    return outside ? -1 : (z * SIDE + y) * SIDE + x;
}

template <bool RANGES>
__global__ void densities(const float4 *particles, const int *heads, const int *next, const int *starts, float *density) {
    int i = blockIdx.x * THREADS + threadIdx.x;
    float4 me = particles[i];
    float sum = 0;
    for (int k = 0; k < 27; ++k) {
        int cell = cell_of(me, k % 3 - 1, k / 3 % 3 - 1, k / 9 - 1);
        if (cell < 0) continue;
        if (RANGES) {
            int end = starts[cell + 1];
            for (int j = starts[cell]; j < end; ++j) sum += weight(me, particles[j]);
        } else {
            for (int j = heads[cell]; j >= 0; j = next[j]) sum += weight(me, particles[j]);
        }
    }
    density[i] = sum;
}

int main(int argc, char **argv) {
    turn();
    std::vector<float4> sorted(PARTICLES), any(PARTICLES);
    std::vector<int> order(PARTICLES), first(CELLS, -1), after(PARTICLES), from(CELLS + 1);
    unsigned random = 1;
    auto next_random = [&] { return (random = random * 1664525u + 1013904223u) >> 8; };
    auto part = [&] { return next_random() * (0.999f / 16777216); };
    for (int i = 0; i < PARTICLES; ++i) {
        int cell = i / EACH;
        sorted[i] = {cell % SIDE + part(), cell / SIDE % SIDE + part(), cell / (SIDE * SIDE) + part(), 0};
        order[i] = i;
    }
    for (int i = PARTICLES - 1; i > 0; --i) std::swap(order[i], order[next_random() % (i + 1)]);
    for (int i = 0; i < PARTICLES; ++i) {  // particles in any order, each the first of its cell when it comes
        any[i] = sorted[order[i]];
        int cell = order[i] / EACH;
        after[i] = first[cell], first[cell] = i;
    }
    for (int cell = 0; cell <= CELLS; ++cell) from[cell] = cell * EACH;
    float4 *in_any_order, *by_cell;
    int *heads, *next, *starts;
    float *density;
    CHECK(cudaMalloc(&in_any_order, PARTICLES * sizeof(float4)));
    CHECK(cudaMalloc(&by_cell, PARTICLES * sizeof(float4)));
    CHECK(cudaMalloc(&heads, CELLS * sizeof(int)));
    CHECK(cudaMalloc(&next, PARTICLES * sizeof(int)));
    CHECK(cudaMalloc(&starts, (CELLS + 1) * sizeof(int)));
    CHECK(cudaMalloc(&density, PARTICLES * sizeof(float)));
    CHECK(cudaMemcpy(in_any_order, any.data(), PARTICLES * sizeof(float4), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(by_cell, sorted.data(), PARTICLES * sizeof(float4), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(heads, first.data(), CELLS * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(next, after.data(), PARTICLES * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(starts, from.data(), (CELLS + 1) * sizeof(int), cudaMemcpyHostToDevice));
    return measure("linked_cells", argc, argv, 40, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                densities<true><<<PARTICLES / THREADS, THREADS>>>(by_cell, heads, next, starts, density);
            else
                densities<false><<<PARTICLES / THREADS, THREADS>>>(in_any_order, heads, next, starts, density);
        }
        CHECK(cudaGetLastError());
        std::vector<float> found(PARTICLES);
        CHECK(cudaMemcpy(found.data(), density, PARTICLES * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : found) sum += value;
        return sum;
    });
}
