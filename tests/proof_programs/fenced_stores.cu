// Turns readings of a detector into energies, piece by piece; who reads them looks at how many pieces are done.
#include "common.h"

constexpr int PIECE = 1 << 12, PIECES = 1 << 14, THREADS = 256;

template <bool EACH>
__global__ void calibrate(const float *raw, float *energy, unsigned *done) {
    size_t first = size_t(blockIdx.x) * PIECE;
    for (int i = threadIdx.x; i < PIECE; i += THREADS) {
        float value = raw[first + i];
        energy[first + i] = 0.02f + value * (1.1f + value * 0.003f);
        if (EACH) __threadfence();  // whoever counts pieces must see their numbers
    }
    if (!EACH) __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(done, 1u);
}

__global__ void fill(float *raw) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    raw[i] = (i * 2654435761u % 4096) * 0.01f;
}

int main(int argc, char **argv) {
    turn();
    size_t numbers = size_t(PIECE) * PIECES;
    float *raw, *energy;
    unsigned *done;
    CHECK(cudaMalloc(&raw, numbers * sizeof(float)));
    CHECK(cudaMalloc(&energy, numbers * sizeof(float)));
    CHECK(cudaMalloc(&done, sizeof(unsigned)));
    fill<<<numbers / 256, 256>>>(raw);
    CHECK(cudaDeviceSynchronize());
    return measure("fenced_stores", argc, argv, 200, [&](bool repaired, int steps) {
        CHECK(cudaMemset(done, 0, sizeof(unsigned)));
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                calibrate<false><<<PIECES, THREADS>>>(raw, energy, done);
            else
                calibrate<true><<<PIECES, THREADS>>>(raw, energy, done);
        }
        CHECK(cudaGetLastError());
        std::vector<float> some(1 << 14);
        CHECK(cudaMemcpy(some.data(), energy + numbers / 2, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        unsigned pieces;
        CHECK(cudaMemcpy(&pieces, done, sizeof(pieces), cudaMemcpyDeviceToHost));
        double sum = pieces / steps;
        for (float value : some) sum += value;
        return sum;
    });
}
