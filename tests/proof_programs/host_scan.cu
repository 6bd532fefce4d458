// Keeps the bright points of each frame of a telescope, in order: counts them in each block, then writes them where they belong.
#include "common.h"

constexpr int POINTS = 1 << 22, THREADS = 1024, BLOCKS = POINTS / THREADS;

__global__ void count(const float *frame, float least, int *counts) {
    int found = __syncthreads_count(frame[blockIdx.x * THREADS + threadIdx.x] > least);
    if (threadIdx.x == 0) counts[blockIdx.x] = found;
}

__global__ void scan(const int *counts, int *starts) {
    __shared__ int sums[THREADS];
    int mine[BLOCKS / THREADS], total = 0;
    for (int k = 0; k < BLOCKS / THREADS; ++k) {
        mine[k] = total;
        total += counts[threadIdx.x * (BLOCKS / THREADS) + k];
    }
    sums[threadIdx.x] = total;
    __syncthreads();
    for (int back = 1; back < THREADS; back *= 2) {
        int before = threadIdx.x >= back ? sums[threadIdx.x - back] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    for (int k = 0; k < BLOCKS / THREADS; ++k)
        starts[threadIdx.x * (BLOCKS / THREADS) + k] = sums[threadIdx.x] - total + mine[k];
}

__global__ void keep(const float *frame, float least, const int *starts, int *kept) {
    __shared__ int warps[THREADS / 32];
    int i = blockIdx.x * THREADS + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    bool bright = frame[i] > least;
    unsigned who = __ballot_sync(~0u, bright);
    if (lane == 0) warps[warp] = __popc(who);
    __syncthreads();
    int to = starts[blockIdx.x] + __popc(who & ((1u << lane) - 1));
    for (int k = 0; k < warp; ++k) to += warps[k];
    if (bright) kept[to] = i;
}

__global__ void fill(float *frame) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    frame[i] = (unsigned(i) * 2654435761u >> 12 & 1023) * 0.1f;
}

int main(int argc, char **argv) {
    turn();
    float *frame;
    int *counts, *starts, *kept;
    CHECK(cudaMalloc(&frame, POINTS * sizeof(float)));
    CHECK(cudaMalloc(&counts, BLOCKS * sizeof(int)));
    CHECK(cudaMalloc(&starts, BLOCKS * sizeof(int)));
    CHECK(cudaMalloc(&kept, POINTS * sizeof(int)));
    fill<<<POINTS / 256, 256>>>(frame);
    CHECK(cudaDeviceSynchronize());
    std::vector<int> known(BLOCKS), sums(BLOCKS);
    return measure("host_scan", argc, argv, 1500, [&](bool repaired, int steps) {
        size_t bytes = BLOCKS * sizeof(int);
        for (int step = 0; step < steps; ++step) {
            float least = 80 + step % 10;
            count<<<BLOCKS, THREADS>>>(frame, least, counts);
            if (repaired) {
                scan<<<1, THREADS>>>(counts, starts);
            } else {
                CHECK(cudaMemcpy(known.data(), counts, bytes, cudaMemcpyDeviceToHost));
                int sum = 0;
                for (int block = 0; block < BLOCKS; ++block) sums[block] = sum, sum += known[block];
                CHECK(cudaMemcpy(starts, sums.data(), bytes, cudaMemcpyHostToDevice));
            }
            keep<<<BLOCKS, THREADS>>>(frame, least, starts, kept);
        }
        CHECK(cudaGetLastError());
        std::vector<int> some(1 << 14);
        CHECK(cudaMemcpy(some.data(), kept, some.size() * sizeof(int), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (int place : some) sum += place;
        return sum;
    });
}
