// Updates the weights of a model with momentum, in one kernel over all of them (a loop with the stride of the grid).
#include "common.h"

constexpr int WEIGHTS = 1 << 26, THREADS = 128;

__global__ void update(float *weight, float *speed, const float *grad, float rate, float keep) {
    int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < WEIGHTS; i += stride) {
        float v = keep * speed[i] + grad[i];
        speed[i] = v;
        weight[i] -= rate * v;
    }
}

__global__ void fill(float *weight, float *speed, float *grad) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    weight[i] = i % 7;
    speed[i] = 0;
    grad[i] = (i % 5 - 2) * 0.01f;
}

// As many blocks as there are multiprocessors, or as many as fit on them.
int blocks_for(bool repaired) {
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    int each = 1;
    if (repaired) CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, update, THREADS, 0));
    return each * device.multiProcessorCount;
}

int main(int argc, char **argv) {
    turn();
    float *weight, *speed, *grad;
    size_t bytes = size_t(WEIGHTS) * sizeof(float);
    CHECK(cudaMalloc(&weight, bytes));
    CHECK(cudaMalloc(&speed, bytes));
    CHECK(cudaMalloc(&grad, bytes));
    int blocks[2] = {blocks_for(false), blocks_for(true)};
    return measure("one_block_each", argc, argv, 60, [&](bool repaired, int steps) {
        fill<<<WEIGHTS / 256, 256>>>(weight, speed, grad);
        for (int step = 0; step < steps; ++step)
            update<<<blocks[repaired], THREADS>>>(weight, speed, grad, 0.1f, 0.9f);
        CHECK(cudaGetLastError());
        std::vector<float> some(1 << 12);
        CHECK(cudaMemcpy(some.data(), weight, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum;
    });
}
