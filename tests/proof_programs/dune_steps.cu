// Lets wind move the sand of dunes: four short kernels for each moment, with as many blocks as suit the GPU.
#include "common.h"

constexpr int SIDE = 1024, CELLS = SIDE * SIDE;

// How many blocks a kernel gets: four for each multiprocessor.
struct Launcher {
    bool remembers;
    int known = 0;

    int blocks() {
        if (remembers && known) return known;
        int device;
        CHECK(cudaGetDevice(&device));
        cudaDeviceProp properties;
        CHECK(cudaGetDeviceProperties(&properties, device));
        return known = 4 * properties.multiProcessorCount;
    }
};

__global__ void lift(const float *sand, float *moving, float wind) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < CELLS; i += gridDim.x * blockDim.x)
        moving[i] = sand[i] * wind;
}

__global__ void carry(const float *moving, float *arrived, int way) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < CELLS; i += gridDim.x * blockDim.x)
        arrived[i] = moving[(i + CELLS - way) % CELLS];
}

__global__ void settle(float *sand, const float *moving, const float *arrived) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < CELLS; i += gridDim.x * blockDim.x)
        sand[i] += arrived[i] - moving[i];
}

__global__ void slide(const float *sand, float *next) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < CELLS; i += gridDim.x * blockDim.x) {
        int before = (i + CELLS - SIDE) % CELLS, after = (i + SIDE) % CELLS;
        next[i] = sand[i] + 0.1f * (sand[before] + sand[after] - 2 * sand[i]);
    }
}

int main(int argc, char **argv) {
    turn();
    float *sand, *next, *moving, *arrived;
    for (float **field : {&sand, &next, &moving, &arrived}) CHECK(cudaMalloc(field, CELLS * sizeof(float)));
    std::vector<float> heights(CELLS);
    for (int i = 0; i < CELLS; ++i) heights[i] = 1.0f + (i * 7919ll % 1000) * 0.001f;
    return measure("dune_steps", argc, argv, 400, [&](bool repaired, int steps) {
        Launcher launcher{repaired};
        CHECK(cudaMemcpy(sand, heights.data(), CELLS * sizeof(float), cudaMemcpyHostToDevice));
        for (int step = 0; step < steps; ++step) {
            lift<<<launcher.blocks(), 256>>>(sand, moving, 0.01f + 0.001f * (step % 9));
            carry<<<launcher.blocks(), 256>>>(moving, arrived, 1 + step % 3);
            settle<<<launcher.blocks(), 256>>>(sand, moving, arrived);
            slide<<<launcher.blocks(), 256>>>(sand, next);
            std::swap(sand, next);
        }
        CHECK(cudaGetLastError());
        std::vector<float> some(CELLS);
        CHECK(cudaMemcpy(some.data(), sand, CELLS * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum / CELLS;
    });
}
