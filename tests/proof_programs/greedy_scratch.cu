// Filters a signal block by block, in memory that the threads of a block share.
#include "common.h"

constexpr int N = 1 << 26, THREADS = 128, TAPS = 8, LARGEST = 200 * 1024;

__global__ void filter(const float *in, float *out) {
    extern __shared__ float window[];
    int first = blockIdx.x * THREADS;
    window[threadIdx.x + TAPS] = in[first + threadIdx.x];
    if (threadIdx.x < TAPS) window[threadIdx.x] = first ? in[first + threadIdx.x - TAPS] : 0;
    __syncthreads();
    float sum = 0;
    for (int tap = 0; tap <= TAPS; ++tap) sum += window[threadIdx.x + tap];
    out[first + threadIdx.x] = sum / (TAPS + 1);
}

__global__ void fill(float *x) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    x[i] = i % 11;
}

int main(int argc, char **argv) {
    turn();
    float *in, *out;
    CHECK(cudaMalloc(&in, size_t(N) * sizeof(float)));
    CHECK(cudaMalloc(&out, size_t(N) * sizeof(float)));
    fill<<<N / 256, 256>>>(in);
    CHECK(cudaFuncSetAttribute(filter, cudaFuncAttributeMaxDynamicSharedMemorySize, LARGEST));
    return measure("greedy_scratch", argc, argv, 30, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            int bytes = repaired ? (THREADS + TAPS) * sizeof(float) : LARGEST;
            filter<<<N / THREADS, THREADS, bytes>>>(in, out);
        }
        float some[64];
        CHECK(cudaMemcpy(some, out + N / 2, sizeof(some), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum;
    });
}
