// Smooths a signal in managed memory, of which the host looks at some numbers between two passes.
#include "common.h"

constexpr int N = 1 << 24;

__global__ void smooth(const float *in, float *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = 0.5f * in[i] + 0.25f * (in[max(i - 1, 0)] + in[min(i + 1, N - 1)]);
}

int main(int argc, char **argv) {
    turn();
    float *shared[2], *device[2], *some;
    for (int k = 0; k < 2; ++k) {
        CHECK(cudaMallocManaged(&shared[k], N * sizeof(float)));
        CHECK(cudaMalloc(&device[k], N * sizeof(float)));
        for (int i = 0; i < N; ++i) shared[k][i] = i % 5;
        CHECK(cudaMemcpy(device[k], shared[k], N * sizeof(float), cudaMemcpyDefault));
    }
    CHECK(cudaMallocHost(&some, 64 * sizeof(float)));
    return measure("managed", argc, argv, 10, [&](bool repaired, int steps) {
        double sum = 0;
        for (int step = 0; step < steps; ++step) {
            float **x = repaired ? device : shared;
            smooth<<<N / 256, 256>>>(x[0], x[1]);
            smooth<<<N / 256, 256>>>(x[1], x[0]);
            if (repaired) {
                CHECK(cudaMemcpy2D(some, sizeof(float), x[0], N / 64 * sizeof(float), sizeof(float), 64, cudaMemcpyDeviceToHost));
                for (int i = 0; i < 64; ++i) sum += some[i];
            } else {
                CHECK(cudaDeviceSynchronize());
                for (int i = 0; i < N; i += 512) sum += x[0][i] * (i % (N / 64) == 0);
            }
        }
        return sum > 0 ? 1.0 : 0.0;
    });
}
