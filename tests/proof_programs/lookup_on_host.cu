// Interpolates in a table of 256 MiB that lies in pinned memory of the host.
#include "common.h"

constexpr int TABLE = 1 << 26, N = 1 << 24;

__global__ void lookup(const float *table, float *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a = table[2 * i], b = table[2 * i + 1];
    out[i] += a + 0.5f * (b - a);
}

int main(int argc, char **argv) {
    turn();
    float *host, *mapped, *device, *out;
    CHECK(cudaHostAlloc(&host, TABLE * sizeof(float), cudaHostAllocMapped));
    CHECK(cudaHostGetDevicePointer(&mapped, host, 0));
    CHECK(cudaMalloc(&device, TABLE * sizeof(float)));
    CHECK(cudaMalloc(&out, N * sizeof(float)));
    CHECK(cudaMemset(out, 0, N * sizeof(float)));
    for (int i = 0; i < TABLE; ++i) host[i] = i % 3;
    return measure("lookup_on_host", argc, argv, 30, [&](bool repaired, int steps) {
        if (repaired) CHECK(cudaMemcpyAsync(device, host, TABLE * sizeof(float), cudaMemcpyHostToDevice));
        for (int step = 0; step < steps; ++step) lookup<<<N / 256, 256>>>(repaired ? device : mapped, out);
        float last;
        CHECK(cudaMemcpy(&last, out + 7, sizeof(float), cudaMemcpyDeviceToHost));
        CHECK(cudaMemset(out, 0, N * sizeof(float)));
        return double(last);
    });
}
