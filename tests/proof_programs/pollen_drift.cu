// Tells how much pollen falls on each field: what drifts there from all trees of a wood.
#include "common.h"

constexpr int FIELDS = 1 << 22, TREES = 96, THREADS = 256;

struct Tree {
    float x, y, reach, pollen;
};

__device__ float drift(const Tree &tree, float x, float y) {
    float across = x - tree.x, along = y - tree.y;
    return tree.pollen * __expf(-(across * across + along * along) * tree.reach);
}

// Adds what comes from each tree to the number in memory.
__global__ void fall_memory(const float2 *fields, const Tree *trees, int count, float *fallen) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float2 field = fields[i];
    fallen[i] = 0;
    for (int k = 0; k < count; ++k) {
        Tree tree = trees[k];
        fallen[i] += drift(tree, field.x, field.y);
    }
}

// Keeps the sum in a register until it is done.
__global__ void fall_register(const float2 *fields, const Tree *trees, int count, float *fallen) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float2 field = fields[i];
    float sum = 0;
    for (int k = 0; k < count; ++k) {
        Tree tree = trees[k];
        sum += drift(tree, field.x, field.y);
    }
    fallen[i] = sum;
}

__global__ void lay_out(float2 *fields) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    fields[i] = make_float2((i & 2047) * 0.01f, (i >> 11) * 0.01f);
}

int main(int argc, char **argv) {
    turn();
    float2 *fields;
    Tree *trees;
    float *fallen;
    CHECK(cudaMalloc(&fields, FIELDS * sizeof(float2)));
    CHECK(cudaMalloc(&trees, TREES * sizeof(Tree)));
    CHECK(cudaMalloc(&fallen, FIELDS * sizeof(float)));
    std::vector<Tree> wood(TREES);
    for (int k = 0; k < TREES; ++k) wood[k] = {k * 37 % 96 * 0.21f, k * 53 % 96 * 0.21f, 0.05f + 0.01f * (k % 9), 1 + 0.1f * (k % 5)};
    CHECK(cudaMemcpy(trees, wood.data(), TREES * sizeof(Tree), cudaMemcpyHostToDevice));
    lay_out<<<FIELDS / THREADS, THREADS>>>(fields);
    CHECK(cudaDeviceSynchronize());
    return measure("pollen_drift", argc, argv, 2500, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step)
            if (repaired)
                fall_register<<<FIELDS / THREADS, THREADS>>>(fields, trees, TREES, fallen);
            else
                fall_memory<<<FIELDS / THREADS, THREADS>>>(fields, trees, TREES, fallen);
        CHECK(cudaGetLastError());
        std::vector<float> some(1 << 16);
        CHECK(cudaMemcpy(some.data(), fallen, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum / some.size();
    });
}
