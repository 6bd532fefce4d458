// Lets gases burn in the cells of a flame: in each cell, species turn into each other, faster where it is hot.
#include "common.h"

constexpr int CELLS = 1 << 21, SPECIES = 32, THREADS = 256;

// Where the amount of a species in a cell lies: cell after cell, or species after species.
template <bool BY_SPECIES>
__device__ size_t place(int cell, int species) {
    return BY_SPECIES ? size_t(species) * CELLS + cell : size_t(cell) * SPECIES + species;
}

__global__ void warm(float *heat, int step) {
    int cell = blockIdx.x * THREADS + threadIdx.x;
    heat[cell] = 0.5f + 0.4f * sinf(1e-5f * cell + 0.1f * step);
}

// Each species loses to the next one on its way round, by a rate of its own.
template <bool BY_SPECIES>
__global__ void react(const float *__restrict__ before, const float *__restrict__ heat, const float *__restrict__ rates,
                      float *__restrict__ after, float dt) {
    int cell = blockIdx.x * THREADS + threadIdx.x;
    float hot = heat[cell];
    float last = before[place<BY_SPECIES>(cell, SPECIES - 1)];
    float flow = dt * rates[SPECIES - 1] * hot * last;
    for (int s = 0; s < SPECIES; ++s) {
        float amount = before[place<BY_SPECIES>(cell, s)];
        float lost = dt * rates[s] * hot * amount;
        after[place<BY_SPECIES>(cell, s)] = amount + flow - lost;
        flow = lost;
    }
}

template <bool BY_SPECIES>
__global__ void fill(float *amounts) {
    int cell = blockIdx.x * THREADS + threadIdx.x;
    for (int s = 0; s < SPECIES; ++s) {
        unsigned key = (unsigned(cell) * SPECIES + s) * 2654435761u;
        amounts[place<BY_SPECIES>(cell, s)] = (key >> 8) * (1.0f / (1 << 24));
    }
}

// The first species of some cells.
template <bool BY_SPECIES>
__global__ void look(const float *amounts, float *seen) {
    int k = blockIdx.x * THREADS + threadIdx.x;
    seen[k] = amounts[place<BY_SPECIES>(k * 64, k % SPECIES)];
}

struct Flame {
    static constexpr int SEEN = CELLS / 64;
    float *now, *next, *heat, *rates, *seen;

    Flame() {
        CHECK(cudaMalloc(&now, size_t(CELLS) * SPECIES * sizeof(float)));
        CHECK(cudaMalloc(&next, size_t(CELLS) * SPECIES * sizeof(float)));
        CHECK(cudaMalloc(&heat, CELLS * sizeof(float)));
        CHECK(cudaMalloc(&rates, SPECIES * sizeof(float)));
        CHECK(cudaMalloc(&seen, SEEN * sizeof(float)));
        float speeds[SPECIES];
        for (int s = 0; s < SPECIES; ++s) speeds[s] = 0.2f + 0.05f * (s * 7 % SPECIES);
        CHECK(cudaMemcpy(rates, speeds, sizeof speeds, cudaMemcpyHostToDevice));
    }

    template <bool BY_SPECIES>
    double burn(int steps) {
        fill<BY_SPECIES><<<CELLS / THREADS, THREADS>>>(now);
        for (int step = 0; step < steps; ++step) {
            warm<<<CELLS / THREADS, THREADS>>>(heat, step);
            react<BY_SPECIES><<<CELLS / THREADS, THREADS>>>(now, heat, rates, next, 0.01f);
            std::swap(now, next);
        }
        look<BY_SPECIES><<<SEEN / THREADS, THREADS>>>(now, seen);
        CHECK(cudaGetLastError());
        std::vector<float> some(SEEN);
        CHECK(cudaMemcpy(some.data(), seen, SEEN * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float amount : some) sum += amount;
        return sum / SEEN;
    }
};

int main(int argc, char **argv) {
    turn();
    Flame flame;
    return measure("burner_flames", argc, argv, 800,
                   [&](bool repaired, int steps) { return repaired ? flame.burn<true>(steps) : flame.burn<false>(steps); });
}
