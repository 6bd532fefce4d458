// Blends lantern slides of bytes into each other, as old projectors did when a picture took the place of another.
#include "common.h"

constexpr size_t BYTES = size_t(1) << 28;
constexpr int THREADS = 256;

__device__ unsigned char mix(unsigned char a, unsigned char b, int share) {
    return (a * share + b * (256 - share)) >> 8;
}

__global__ void blend(const unsigned char *one, const unsigned char *other, unsigned char *out, int share) {
    size_t at = size_t(blockIdx.x) * THREADS + threadIdx.x;
    out[at] = mix(one[at], other[at], share);
}

__global__ void blend_wide(const uint4 *one, const uint4 *other, uint4 *out, int share) {
    size_t at = size_t(blockIdx.x) * THREADS + threadIdx.x;
    uint4 a = one[at], b = other[at], mixed;
    auto *from = reinterpret_cast<unsigned char *>(&a), *to = reinterpret_cast<unsigned char *>(&b);
    auto *into = reinterpret_cast<unsigned char *>(&mixed);
#pragma unroll
    for (int k = 0; k < 16; ++k) into[k] = mix(from[k], to[k], share);
    out[at] = mixed;
}

__global__ void paint(unsigned char *slide, int key) {
    size_t at = size_t(blockIdx.x) * THREADS + threadIdx.x;
    slide[at] = (at * key) >> 5;
}

int main(int argc, char **argv) {
    turn();
    unsigned char *one, *other, *out;
    for (auto **slide : {&one, &other, &out}) CHECK(cudaMalloc(slide, BYTES));
    paint<<<BYTES / THREADS, THREADS>>>(one, 37);
    paint<<<BYTES / THREADS, THREADS>>>(other, 91);
    return measure("lantern_slides", argc, argv, 600, [&](bool repaired, int steps) {
        for (int k = 0; k < steps; ++k) {
            int share = k % 257;
            if (repaired)
                blend_wide<<<BYTES / 16 / THREADS, THREADS>>>((uint4 *)one, (uint4 *)other, (uint4 *)out, share);
            else
                blend<<<BYTES / THREADS, THREADS>>>(one, other, out, share);
        }
        CHECK(cudaGetLastError());
        std::vector<unsigned char> found(1 << 20);
        CHECK(cudaMemcpy(found.data(), out, found.size(), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (unsigned char byte : found) sum += byte;
        return sum / found.size();
    });
}
