// Lets heat flow through the ice of a glacier: in each column an implicit step (Thomas algorithm) over its levels.
#include "common.h"

constexpr int COLUMNS = 1 << 20, LEVELS = 48;
constexpr size_t CELLS = size_t(COLUMNS) * LEVELS;
constexpr float FLOW = 0.4f;

// Factors of the elimination, the same for all columns: they depend on the level alone.
__constant__ float ratio[LEVELS];

// A column's levels lie one after another.
struct ByColumn {
    __device__ static size_t at(int column, int level) { return size_t(column) * LEVELS + level; }
};

// The cells of a level lie one after another.
struct ByLevel {
    __device__ static size_t at(int column, int level) { return size_t(level) * COLUMNS + column; }
};

template <class Order>
__global__ void diffuse(const float *heat, float *work, float *after) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    float before = 0;
    for (int level = 0; level < LEVELS; ++level) {
        float lower = level ? -FLOW : 0.0f;
        float pivot = 1 / (1 + 2 * FLOW - lower * (level ? ratio[level - 1] : 0.0f));
        before = (heat[Order::at(column, level)] - lower * before) * pivot;
        work[Order::at(column, level)] = before;
    }
    float next = 0;
    for (int level = LEVELS - 1; level >= 0; --level) {
        next = work[Order::at(column, level)] - (level < LEVELS - 1 ? ratio[level] * next : 0.0f);
        after[Order::at(column, level)] = next;
    }
}

template <class Order>
__global__ void fill(float *heat) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    for (int level = 0; level < LEVELS; ++level)
        heat[Order::at(column, level)] = -20.0f + 0.3f * level + (unsigned(column) * 2654435761u >> 24) * 0.02f;
}

template <class Order>
__global__ void add_up(const float *heat, double *sum) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    double mine = 0;
    for (int level = 0; level < LEVELS; ++level) mine += heat[Order::at(column, level)] * (level + 1);
    atomicAdd(sum, mine);
}

struct Glacier {
    float *heat, *work, *after;
    double *sum;

    Glacier() {
        CHECK(cudaMalloc(&heat, CELLS * sizeof(float)));
        CHECK(cudaMalloc(&work, CELLS * sizeof(float)));
        CHECK(cudaMalloc(&after, CELLS * sizeof(float)));
        CHECK(cudaMalloc(&sum, sizeof(double)));
        float factors[LEVELS];
        for (int level = 0; level < LEVELS; ++level)
            factors[level] = -FLOW / (1 + 2 * FLOW + (level ? FLOW * factors[level - 1] : 0.0f));
        CHECK(cudaMemcpyToSymbol(ratio, factors, sizeof(factors)));
    }

    template <class Order>
    double simulate(int steps) {
        fill<Order><<<COLUMNS / 256, 256>>>(heat);
        for (int step = 0; step < steps; ++step) {
            diffuse<Order><<<COLUMNS / 256, 256>>>(heat, work, after);
            std::swap(heat, after);
        }
        CHECK(cudaMemset(sum, 0, sizeof(double)));
        add_up<Order><<<COLUMNS / 256, 256>>>(heat, sum);
        CHECK(cudaGetLastError());
        double total;
        CHECK(cudaMemcpy(&total, sum, sizeof(total), cudaMemcpyDeviceToHost));
        return total / CELLS;
    }
};

int main(int argc, char **argv) {
    turn();
    Glacier glacier;
    return measure("glacier_columns", argc, argv, 1000, [&](bool repaired, int steps) {
        return repaired ? glacier.simulate<ByLevel>(steps) : glacier.simulate<ByColumn>(steps);
    });
}
