// Names the minerals of a rock from the spectra of its spots: two looks into a table that each block keeps in shared memory.
#include "common.h"

constexpr int ENTRIES = 24 << 10, SPOTS = 1 << 26;  // a table of 96 KB

struct Spot {
    unsigned short line, band;
};

__global__ void name_minerals(const Spot *spots, const float *table, float *likely, float drift) {
    extern __shared__ float known[];
    for (int i = threadIdx.x; i < ENTRIES; i += blockDim.x) known[i] = table[i];
    __syncthreads();
#pragma unroll 1
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < SPOTS; i += gridDim.x * blockDim.x) {
        Spot spot = spots[i];
        float first = known[spot.line % ENTRIES];
        float second = known[(spot.band + int(first * 64)) % ENTRIES];
        likely[i] = first * second + drift;
    }
}

__global__ void fill(Spot *spots) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    unsigned random = unsigned(i) * 2654435761u;
    spots[i] = {static_cast<unsigned short>(random >> 16), static_cast<unsigned short>(random >> 9)};
}

// How a rock is looked at: the table is loaded once by each of the blocks that are there at the same time.
struct Microscope {
    Spot *spots;
    float *table, *likely;
    int processors;

    Microscope() {
        CHECK(cudaMalloc(&spots, SPOTS * sizeof(Spot)));
        CHECK(cudaMalloc(&likely, SPOTS * sizeof(float)));
        CHECK(cudaMalloc(&table, ENTRIES * sizeof(float)));
        std::vector<float> entries(ENTRIES);
        for (int i = 0; i < ENTRIES; ++i) entries[i] = (i * 7919 % 1000) * 0.001f;
        CHECK(cudaMemcpy(table, entries.data(), ENTRIES * sizeof(float), cudaMemcpyHostToDevice));
        CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
        CHECK(cudaFuncSetAttribute(name_minerals, cudaFuncAttributeMaxDynamicSharedMemorySize, ENTRIES * sizeof(float)));
        fill<<<SPOTS / 256, 256>>>(spots);
        CHECK(cudaDeviceSynchronize());
    }

    void look(int threads, float drift) {
        int blocks = 2 * processors;
        name_minerals<<<blocks, threads, ENTRIES * sizeof(float)>>>(spots, table, likely, drift);
    }
};

int main(int argc, char **argv) {
    turn();
    Microscope microscope;
    return measure("mineral_spectra", argc, argv, 1500, [&](bool repaired, int steps) {
        int threads = repaired ? 1024 : 256;
        for (int step = 0; step < steps; ++step) microscope.look(threads, 0.01f * (step % 5));
        CHECK(cudaGetLastError());
        std::vector<float> some(1 << 16);
        CHECK(cudaMemcpy(some.data(), microscope.likely + SPOTS / 2, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum / some.size();
    });
}
