// Smooths a signal again and again through a workspace.
#include "common.h"

constexpr int N = 1 << 22;

__global__ void smooth(const float *in, float *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = 0.25f * in[max(i - 1, 0)] + 0.5f * in[i] + 0.25f * in[min(i + 1, N - 1)];
}

__global__ void fill(float *x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = i % 31;
}

int main(int argc, char **argv) {
    turn();
    float *signal, *kept;
    CHECK(cudaMalloc(&signal, sizeof(float) * N));
    CHECK(cudaMalloc(&kept, sizeof(float) * N));
    return measure("workspace", argc, argv, 400, [&](bool repaired, int steps) {
        fill<<<N / 256, 256>>>(signal);
        for (int step = 0; step < steps; ++step) {
            float *workspace = kept;
            if (!repaired) CHECK(cudaMalloc(&workspace, sizeof(float) * N));
            smooth<<<N / 256, 256>>>(signal, workspace);
            smooth<<<N / 256, 256>>>(workspace, signal);
            if (!repaired) CHECK(cudaFree(workspace));
        }
        std::vector<float> some(4096);
        CHECK(cudaMemcpy(some.data(), signal, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float c : some) sum += c;
        return sum;
    });
}
