// Counts how bright the pixels of photographs of galaxies are, to stretch the dark ones apart later.
#include "common.h"

constexpr int PHOTOS = 32, PIXELS = 2048 * 1024, LEVELS = 256, THREADS = 256, BLOCKS = 32;

// One row of blocks for each photo; four pixels for each thread at a time.
__global__ void count_levels(const uchar4 *pixels, unsigned *counts) {
    const uchar4 *photo = pixels + size_t(blockIdx.y) * (PIXELS / 4);
    unsigned *mine = counts + blockIdx.y * LEVELS;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < PIXELS / 4; i += gridDim.x * blockDim.x) {
        uchar4 four = photo[i];
        unsigned char levels[4] = {four.x, four.y, four.z, four.w};
        for (int k = 0; k < 4; ++k) atomicAdd(&mine[levels[k]], 1u);
    }
}

__global__ void count_levels_of_blocks(const uchar4 *pixels, unsigned *counts) {
    __shared__ unsigned here[LEVELS];
    const uchar4 *photo = pixels + size_t(blockIdx.y) * (PIXELS / 4);
    for (int level = threadIdx.x; level < LEVELS; level += blockDim.x) here[level] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < PIXELS / 4; i += gridDim.x * blockDim.x) {
        uchar4 four = photo[i];
        unsigned char levels[4] = {four.x, four.y, four.z, four.w};
        for (int k = 0; k < 4; ++k) atomicAdd(&here[levels[k]], 1u);
    }
    __syncthreads();
    for (int level = threadIdx.x; level < LEVELS; level += blockDim.x)
        atomicAdd(&counts[blockIdx.y * LEVELS + level], here[level]);
}

__device__ unsigned char level_of(unsigned seed) {
    unsigned sum = 0;
    for (int k = 0; k < 4; ++k) {
        seed = (seed ^ (seed >> 15)) * 2246822519u + 374761393u;
        sum += seed >> 26;
    }
    return sum;
}

__global__ void expose(uchar4 *pixels) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    unsigned seed = unsigned(i) * 2654435761u;
    pixels[i] = make_uchar4(level_of(seed), level_of(seed + 1), level_of(seed + 2), level_of(seed + 3));
}

int main(int argc, char **argv) {
    turn();
    uchar4 *pixels;
    unsigned *counts;
    constexpr size_t BYTES = PHOTOS * LEVELS * sizeof(unsigned);
    CHECK(cudaMalloc(&pixels, size_t(PHOTOS) * PIXELS));
    CHECK(cudaMalloc(&counts, BYTES));
    expose<<<PHOTOS * (PIXELS / 4) / 256, 256>>>(pixels);
    CHECK(cudaDeviceSynchronize());
    return measure("galaxy_photos", argc, argv, 800, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            CHECK(cudaMemsetAsync(counts, 0, BYTES));
            if (repaired)
                count_levels_of_blocks<<<dim3(BLOCKS, PHOTOS), THREADS>>>(pixels, counts);
            else
                count_levels<<<dim3(BLOCKS, PHOTOS), THREADS>>>(pixels, counts);
        }
        CHECK(cudaGetLastError());
        std::vector<unsigned> seen(PHOTOS * LEVELS);
        CHECK(cudaMemcpy(seen.data(), counts, BYTES, cudaMemcpyDeviceToHost));
        double sum = 0;
        for (int at = 0; at < PHOTOS * LEVELS; ++at) sum += double(seen[at]) * (at % LEVELS) * (1 + at % 3);
        return sum / PIXELS;
    });
}
