// Follows cars in the queues of ferries, minute by minute: how many come, how many find room on board, and who waits how long.
#include "common.h"

constexpr int QUEUES = 1 << 19, THREADS = 256;

// How many blocks fill the GPU, so that each of them goes through some queues.
int blocks_from_properties() {
    cudaDeviceProp found;
    CHECK(cudaGetDeviceProperties(&found, 0));
    return found.multiProcessorCount * 8;
}

int blocks_from_attribute() {
    int found = 0;
    CHECK(cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, 0));
    return found * 8;
}

__device__ int first() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ int stride() { return gridDim.x * blockDim.x; }

__global__ void arrive(float *cars, float share) {
    for (int i = first(); i < QUEUES; i += stride()) cars[i] += share * (1 + (i & 7));
}

__global__ void board(float *cars, float *waited, float room) {
    for (int i = first(); i < QUEUES; i += stride()) {
        cars[i] = fmaxf(0.0f, cars[i] - room);
        waited[i] += cars[i];
    }
}

__global__ void turn_back(float *cars, const float *waited) {
    for (int i = first(); i < QUEUES; i += stride())
        if (waited[i] > 500.0f) cars[i] *= 0.99f;
}

struct Harbour {
    float *cars, *waited;
    int (*blocks)();

    explicit Harbour(int (*blocks)()) : blocks(blocks) {
        for (float **numbers : {&cars, &waited}) CHECK(cudaMalloc(numbers, QUEUES * sizeof(float)));
    }

    void minute(float share, float room) {
        arrive<<<blocks(), THREADS>>>(cars, share);
        board<<<blocks(), THREADS>>>(cars, waited, room);
        turn_back<<<blocks(), THREADS>>>(cars, waited);
    }

    double run(int minutes) {
        for (float *numbers : {cars, waited}) CHECK(cudaMemset(numbers, 0, QUEUES * sizeof(float)));
        for (int k = 0; k < minutes; ++k) minute(1.0f + 0.25f * (k % 3), 4.0f);
        CHECK(cudaGetLastError());
        std::vector<float> found(QUEUES);
        CHECK(cudaMemcpy(found.data(), waited, QUEUES * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float minutes_waited : found) sum += minutes_waited;
        return sum / QUEUES;
    }
};

int main(int argc, char **argv) {
    turn();
    Harbour harbours[2] = {Harbour(blocks_from_properties), Harbour(blocks_from_attribute)};
    return measure("ferry_queues", argc, argv, 400,
                   [&](bool repaired, int steps) { return harbours[repaired].run(steps); });
}
