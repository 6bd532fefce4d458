// Makes 8-bit images brighter, saturating at 255.
#include "common.h"

constexpr size_t N = size_t(1) << 29;

__global__ void brighten(const unsigned char *in, unsigned char *out) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    out[i] = min(in[i] + 40, 255);
}

__global__ void brighten_sixteen(const uint4 *in, uint4 *out) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    uint4 v = in[i];
    v.x = __vaddus4(v.x, 0x28282828u), v.y = __vaddus4(v.y, 0x28282828u);
    v.z = __vaddus4(v.z, 0x28282828u), v.w = __vaddus4(v.w, 0x28282828u);
    out[i] = v;
}

__global__ void fill(unsigned char *x) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    x[i] = static_cast<unsigned char>(i * 7);
}

int main(int argc, char **argv) {
    turn();
    unsigned char *in, *out;
    CHECK(cudaMalloc(&in, N));
    CHECK(cudaMalloc(&out, N));
    fill<<<N / 256, 256>>>(in);
    return measure("brighten", argc, argv, 200, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                brighten_sixteen<<<N / 16 / 256, 256>>>(reinterpret_cast<uint4 *>(in), reinterpret_cast<uint4 *>(out));
            else
                brighten<<<N / 256, 256>>>(in, out);
        }
        std::vector<unsigned char> some(4096);
        CHECK(cudaMemcpy(some.data(), out, some.size(), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (unsigned char c : some) sum += c;
        return sum;
    });
}
