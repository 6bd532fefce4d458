// Answers requests for sharpened volumes; each request takes its memory from the pool of the device, in order of the stream.
#include "common.h"
#include <cstdint>

constexpr int SIDE = 384;
constexpr size_t VOXELS = size_t(SIDE) * SIDE * SIDE;

template <int STRIDE>
__global__ void blur(const float *in, float *out) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    int place = int(i / STRIDE % SIDE);
    float before = in[place > 0 ? i - STRIDE : i], after = in[place < SIDE - 1 ? i + STRIDE : i];
    out[i] = 0.25f * before + 0.5f * in[i] + 0.25f * after;
}

__global__ void sharpen(const float *in, const float *smooth, float *out, float amount) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    out[i] = in[i] + amount * (in[i] - smooth[i]);
}

__global__ void fill(float *in) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    in[i] = (i * 2654435761u >> 8 & 255) * 0.01f;
}

int main(int argc, char **argv) {
    turn();
    size_t bytes = VOXELS * sizeof(float);
    int blocks = int(VOXELS / 256);
    float *volume;
    CHECK(cudaMalloc(&volume, bytes));
    fill<<<blocks, 256>>>(volume);
    cudaMemPool_t pool;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaDeviceSynchronize());
    return measure("pool_release", argc, argv, 300, [&](bool repaired, int requests) {
        uint64_t held = repaired ? UINT64_MAX : 0;
        CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &held));
        double sum = 0;
        for (int request = 0; request < requests; ++request) {
            float *a, *b, *result, value;
            CHECK(cudaMallocAsync(&a, bytes, stream));
            CHECK(cudaMallocAsync(&b, bytes, stream));
            CHECK(cudaMallocAsync(&result, bytes, stream));
            blur<1><<<blocks, 256, 0, stream>>>(volume, a);
            blur<SIDE><<<blocks, 256, 0, stream>>>(a, b);
            blur<SIDE * SIDE><<<blocks, 256, 0, stream>>>(b, a);
            sharpen<<<blocks, 256, 0, stream>>>(volume, a, result, 0.5f + request % 4);
            CHECK(cudaMemcpyAsync(&value, result + VOXELS / 3, sizeof(float), cudaMemcpyDeviceToHost, stream));
            CHECK(cudaFreeAsync(a, stream));
            CHECK(cudaFreeAsync(b, stream));
            CHECK(cudaFreeAsync(result, stream));
            CHECK(cudaStreamSynchronize(stream));
            sum += value;
        }
        CHECK(cudaGetLastError());
        return sum;
    });
}
