// Lets magma flow in a crust: heat, melting, gas and pressure of each cell, each of which needs a few numbers of the cell.
#include "common.h"

constexpr int CELLS = 1 << 23, THREADS = 256, FIELDS = 12;
enum Field { HEAT, MELT, GAS, PRESSURE, ROCK, WATER, IRON, SILICA, DEPTH, POROUS, STRAIN, AGE };

// Numbers of a cell side by side, cell after cell.
struct ByCell {
    float *numbers;
    __device__ float &operator()(int cell, Field field) const { return numbers[size_t(cell) * FIELDS + field]; }
};

// Numbers of a field side by side, field after field.
struct ByField {
    float *numbers;
    __device__ float &operator()(int cell, Field field) const { return numbers[size_t(field) * CELLS + cell]; }
};

template <class Layout>
__global__ void melt(Layout at, float hot) {
    int cell = blockIdx.x * THREADS + threadIdx.x;
    float heat = at(cell, HEAT), share = 1 / (1 + __expf(hot - heat));
    at(cell, MELT) = share;
}

template <class Layout>
__global__ void rise(Layout at) {
    int cell = blockIdx.x * THREADS + threadIdx.x;
    float melted = at(cell, MELT), gas = at(cell, GAS);
    at(cell, GAS) = gas + 0.1f * (melted - gas);
}

template <class Layout>
__global__ void cool(Layout at, float share) {
    int cell = blockIdx.x * THREADS + threadIdx.x;
    at(cell, HEAT) -= share * at(cell, GAS);
}

template <class Layout>
__global__ void begin(Layout at) {
    int cell = blockIdx.x * THREADS + threadIdx.x;
    unsigned key = cell * 2654435761u;
    for (int field = 0; field < FIELDS; ++field) {
        key = (key ^ key >> 15) * 2246822519u + field;
        at(cell, Field(field)) = (key >> 8) * (2.0f / (1 << 24));
    }
}

// How much gas is in all cells.
template <class Layout>
__global__ void weigh(Layout at, double *sum) {
    int cell = blockIdx.x * THREADS + threadIdx.x;
    double gas = at(cell, GAS);
    for (int off = 16; off; off /= 2) gas += __shfl_down_sync(~0u, gas, off);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, gas);
}

template <class Layout>
double run(Layout at, int steps) {
    double *sum, found = 0;
    CHECK(cudaMalloc(&sum, sizeof(double)));
    CHECK(cudaMemset(sum, 0, sizeof(double)));
    begin<<<CELLS / THREADS, THREADS>>>(at);
    for (int year = 0; year < steps; ++year) {
        melt<<<CELLS / THREADS, THREADS>>>(at, 1.0f + 0.01f * (year % 10));
        rise<<<CELLS / THREADS, THREADS>>>(at);
        cool<<<CELLS / THREADS, THREADS>>>(at, 0.001f);
    }
    weigh<<<CELLS / THREADS, THREADS>>>(at, sum);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&found, sum, sizeof(double), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(sum));
    return found / CELLS;
}

int main(int argc, char **argv) {
    turn();
    float *numbers;
    CHECK(cudaMalloc(&numbers, size_t(CELLS) * FIELDS * sizeof(float)));
    return measure("magma_flow", argc, argv, 600, [&](bool repaired, int steps) {
        return repaired ? run(ByField{numbers}, steps) : run(ByCell{numbers}, steps);
    });
}
