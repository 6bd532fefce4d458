// Smooths photographic plates of meteors, many small ones: each point becomes a mean of its neighbours, by their likeness.
#include "common.h"

constexpr int PLATES = 256, SIDE = 96, REACH = 3;

__global__ void smooth(const float *from, float *to) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    from += size_t(blockIdx.z) * SIDE * SIDE;
    to += size_t(blockIdx.z) * SIDE * SIDE;
    float here = from[y * SIDE + x], total = 0, shares = 0;
    for (int down = -REACH; down <= REACH; ++down)
        for (int along = -REACH; along <= REACH; ++along) {
            int row = min(max(y + down, 0), SIDE - 1), col = min(max(x + along, 0), SIDE - 1);
            float there = from[row * SIDE + col], share = __expf(-(there - here) * (there - here));
            total += share * there;
            shares += share;
        }
    to[y * SIDE + x] = total / shares;
}

void smooth_each(const float *from, float *to) {
    dim3 threads(32, 8), blocks(SIDE / 32, SIDE / 8);
    for (int plate = 0; plate < PLATES; ++plate) {
        size_t begin = size_t(plate) * SIDE * SIDE;
        smooth<<<blocks, threads>>>(from + begin, to + begin);
    }
}

void smooth_all(const float *from, float *to) {
    dim3 threads(32, 8), blocks(SIDE / 32, SIDE / 8, PLATES);
    smooth<<<blocks, threads>>>(from, to);
}

int main(int argc, char **argv) {
    turn();
    constexpr size_t COUNT = size_t(PLATES) * SIDE * SIDE;
    float *plates[2];
    for (float *&some : plates) CHECK(cudaMalloc(&some, COUNT * sizeof(float)));
    std::vector<float> taken(COUNT);
    for (size_t i = 0; i < COUNT; ++i) taken[i] = (i * 2654435761u >> 16 & 1023) / 512.0f;
    return measure("meteor_plates", argc, argv, 400, [&](bool repaired, int steps) {
        CHECK(cudaMemcpy(plates[0], taken.data(), COUNT * sizeof(float), cudaMemcpyHostToDevice));
        for (int k = 0; k < steps; ++k) (repaired ? smooth_all : smooth_each)(plates[k % 2], plates[1 - k % 2]);
        CHECK(cudaGetLastError());
        std::vector<float> found(COUNT);
        CHECK(cudaMemcpy(found.data(), plates[steps % 2], COUNT * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : found) sum += value * value;
        return sum / COUNT;
    });
}
