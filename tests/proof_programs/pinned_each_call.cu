// Simulates bodies that attract each other, and takes what became of them to the host after each call.
#include "common.h"

constexpr int BODIES = 1 << 16, TRAIL = 64;

__global__ void attract(const float4 *body, float4 *trail, int step) {
    __shared__ float4 near[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 me = body[i];
    float x = 0, y = 0, z = 0;
    for (int start = 0; start < BODIES; start += 256) {
        near[threadIdx.x] = body[start + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < 256; ++k) {
            float dx = near[k].x - me.x, dy = near[k].y - me.y, dz = near[k].z - me.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f), pull = near[k].w * inverse * inverse * inverse;
            x += pull * dx, y += pull * dy, z += pull * dz;
        }
        __syncthreads();
    }
    for (int k = 0; k < TRAIL / 8; ++k) trail[(size_t(step % 8) * TRAIL / 8 + k) * BODIES + i] = make_float4(x, y, z, k);
}

__global__ void fill(float4 *body) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    body[i] = make_float4(i % 97, i % 89, i % 83, 1);
}

int main(int argc, char **argv) {
    turn();
    float4 *body, *trail, *kept;
    size_t bytes = size_t(BODIES) * TRAIL * sizeof(float4);
    CHECK(cudaMalloc(&body, BODIES * sizeof(float4)));
    CHECK(cudaMalloc(&trail, bytes));
    CHECK(cudaMallocHost(&kept, bytes));
    fill<<<BODIES / 256, 256>>>(body);
    return measure("pinned_each_call", argc, argv, 6, [&](bool repaired, int calls) {
        double sum = 0;
        for (int call = 0; call < calls; ++call) {
            float4 *result = kept;
            if (!repaired) CHECK(cudaMallocHost(&result, bytes));
            for (int step = 0; step < 8; ++step) attract<<<BODIES / 256, 256>>>(body, trail, step);
            CHECK(cudaMemcpyAsync(result, trail, bytes, cudaMemcpyDeviceToHost));
            CHECK(cudaDeviceSynchronize());
            sum += result[77].x;
            if (!repaired) CHECK(cudaFreeHost(result));
        }
        return sum;
    });
}
