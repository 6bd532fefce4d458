// Makes recordings of harps sound as in a hall: piece by piece to the GPU, through resonances of strings, and back.
#include "common.h"

constexpr int SAMPLES = 1 << 22, THREADS = 256, PIECES = 6, LANES = 3, STRINGS = 96;

// Lets each sample swing along with all strings.
__global__ void swing(const float *dry, float *wet) {
    int at = blockIdx.x * THREADS + threadIdx.x;
    float x = dry[at], sum = x;
    for (int string = 1; string <= STRINGS; ++string) sum += __sinf(x * string) * (0.3f / string);
    wet[at] = sum;
}

struct Lane {
    cudaStream_t stream;
    float *dry, *wet;
};

int main(int argc, char **argv) {
    turn();
    constexpr size_t BYTES = SAMPLES * sizeof(float);
    float *recorded[PIECES], *heard[PIECES];
    for (int piece = 0; piece < PIECES; ++piece) {
        CHECK(cudaMallocHost(&recorded[piece], BYTES));
        CHECK(cudaMallocHost(&heard[piece], BYTES));
        for (int i = 0; i < SAMPLES; ++i) recorded[piece][i] = ((i * 7 + piece * 13) % 1999 - 999) / 999.0f;
    }
    Lane lanes[LANES];
    for (Lane &lane : lanes) {
        CHECK(cudaStreamCreateWithFlags(&lane.stream, cudaStreamNonBlocking));
        CHECK(cudaMalloc(&lane.dry, BYTES));
        CHECK(cudaMalloc(&lane.wet, BYTES));
    }
    return measure("harp_strings", argc, argv, 600, [&](bool repaired, int steps) {
        const int used = repaired ? LANES : 1;
        for (int step = 0; step < steps; ++step) {
            int piece = step % PIECES;
            Lane &lane = lanes[step % used];
            CHECK(cudaMemcpyAsync(lane.dry, recorded[piece], BYTES, cudaMemcpyHostToDevice, lane.stream));
            swing<<<SAMPLES / THREADS, THREADS, 0, lane.stream>>>(lane.dry, lane.wet);
            CHECK(cudaMemcpyAsync(heard[piece], lane.wet, BYTES, cudaMemcpyDeviceToHost, lane.stream));
        }
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        double sum = 0;
        for (int i = 0; i < SAMPLES; i += 64) sum += std::abs(heard[0][i]) + std::abs(heard[1][i]);
        return sum / (SAMPLES / 64);
    });
}
