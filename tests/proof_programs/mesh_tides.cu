// Moves the water of a bay by tides on an irregular mesh: each cell takes from its neighbours by weights of their borders.
#include "common.h"

constexpr int CELLS = 1 << 21, NEIGHBOURS = 20;

// Neighbours and weights of a cell one after another.
__global__ void flow_by_cell(const int *table, const float *weights, const float *level, float *next) {
    int cell = blockIdx.x * blockDim.x + threadIdx.x;
    if (cell >= CELLS) return;
    float here = level[cell], change = 0;
    for (int k = 0; k < NEIGHBOURS; ++k)
        change += weights[cell * NEIGHBOURS + k] * (level[table[cell * NEIGHBOURS + k]] - here);
    next[cell] = here + change;
}

// The first neighbour of all cells, then the second of all, and so on.
__global__ void flow_by_neighbour(const int *table, const float *weights, const float *level, float *next) {
    int cell = blockIdx.x * blockDim.x + threadIdx.x;
    if (cell >= CELLS) return;
    float here = level[cell], change = 0;
    for (int k = 0; k < NEIGHBOURS; ++k)
        change += weights[k * CELLS + cell] * (level[table[k * CELLS + cell]] - here);
    next[cell] = here + change;
}

struct Mesh {
    int *table;
    float *weights;
};

// Neighbours lie within some thousand cells; borders are from 0 to 1/NEIGHBOURS.
Mesh make(bool cell_first) {
    std::vector<int> table(size_t(CELLS) * NEIGHBOURS);
    std::vector<float> weights(table.size());
    for (int cell = 0; cell < CELLS; ++cell)
        for (int k = 0; k < NEIGHBOURS; ++k) {
            size_t at = cell_first ? size_t(cell) * NEIGHBOURS + k : size_t(k) * CELLS + cell;
            int row = (k % 5 - 2) * 1448, side = k / 5 * 2 - 3;
            table[at] = (cell + row + side + CELLS) % CELLS;
            weights[at] = float((unsigned(cell) * 2654435761u >> 20) % 97) / (97.0f * NEIGHBOURS);
        }
    Mesh mesh;
    CHECK(cudaMalloc(&mesh.table, table.size() * sizeof(int)));
    CHECK(cudaMalloc(&mesh.weights, weights.size() * sizeof(float)));
    CHECK(cudaMemcpy(mesh.table, table.data(), table.size() * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(mesh.weights, weights.data(), weights.size() * sizeof(float), cudaMemcpyHostToDevice));
    return mesh;
}

int main(int argc, char **argv) {
    turn();
    Mesh by_cell = make(true), by_neighbour = make(false);
    std::vector<float> start(CELLS);
    for (int cell = 0; cell < CELLS; ++cell) start[cell] = float(cell % 1448) / 1448 + float(cell % 7);
    float *level, *next;
    CHECK(cudaMalloc(&level, CELLS * sizeof(float)));
    CHECK(cudaMalloc(&next, CELLS * sizeof(float)));
    return measure("mesh_tides", argc, argv, 2000, [&](bool repaired, int steps) {
        CHECK(cudaMemcpy(level, start.data(), CELLS * sizeof(float), cudaMemcpyHostToDevice));
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                flow_by_neighbour<<<CELLS / 256, 256>>>(by_neighbour.table, by_neighbour.weights, level, next);
            else
                flow_by_cell<<<CELLS / 256, 256>>>(by_cell.table, by_cell.weights, level, next);
            std::swap(level, next);
        }
        CHECK(cudaGetLastError());
        std::vector<float> some(65536);
        CHECK(cudaMemcpy(some.data(), level, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum / some.size();
    });
}
