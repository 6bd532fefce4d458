// Lets prints of wax cool: the warmth of each place, in half precision, nears that of the air in many short steps.
#include <cuda_fp16.h>
#include "common.h"

constexpr size_t PLACES = size_t(1) << 26;
constexpr int ROUNDS = 40, THREADS = 256;

// A thread has one place.
__global__ void cool_one(const __half *warm, __half *cooled, float air, float rate, float bend) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    __half a = __float2half(air), r = __float2half(rate), b = __float2half(bend);
    __half x = warm[i];
    for (int round = 0; round < ROUNDS; ++round) {
        __half gap = __hsub(a, x);
        __half flow = __hmul(r, gap);
        x = __hfma(flow, __hfma(b, gap, r), x);
        x = __hfma(flow, r, x);
    }
    cooled[i] = x;
}

// A thread has two places, whose numbers go through each instruction together.
__global__ void cool_two(const __half2 *warm, __half2 *cooled, float air, float rate, float bend) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    __half2 a = __float2half2_rn(air), r = __float2half2_rn(rate), b = __float2half2_rn(bend);
    __half2 x = warm[i];
    for (int round = 0; round < ROUNDS; ++round) {
        __half2 gap = __hsub2(a, x);
        __half2 flow = __hmul2(r, gap);
        x = __hfma2(flow, __hfma2(b, gap, r), x);
        x = __hfma2(flow, r, x);
    }
    cooled[i] = x;
}

__global__ void press(__half *warm) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    warm[i] = __float2half(1.0f + float((unsigned(i) * 2654435761u >> 20) & 1023) / 1024.0f);
}

int main(int argc, char **argv) {
    turn();
    __half *warm, *cooled;
    CHECK(cudaMalloc(&warm, PLACES * sizeof(__half)));
    CHECK(cudaMalloc(&cooled, PLACES * sizeof(__half)));
    press<<<PLACES / THREADS, THREADS>>>(warm);
    CHECK(cudaDeviceSynchronize());
    return measure("wax_prints", argc, argv, 2500, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step)
            if (repaired)
                cool_two<<<PLACES / 2 / THREADS, THREADS>>>(reinterpret_cast<const __half2 *>(warm),
                                                            reinterpret_cast<__half2 *>(cooled), 0.25f, 0.1f, 0.05f);
            else
                cool_one<<<PLACES / THREADS, THREADS>>>(warm, cooled, 0.25f, 0.1f, 0.05f);
        CHECK(cudaGetLastError());
        std::vector<__half> some(1 << 16);
        CHECK(cudaMemcpy(some.data(), cooled, some.size() * sizeof(__half), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (__half value : some) sum += __half2float(value);
        return sum / some.size();
    });
}
