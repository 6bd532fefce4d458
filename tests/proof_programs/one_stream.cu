// Cleans a long recording in pieces: each piece goes to the GPU, is filtered there, and comes back.
#include "common.h"

constexpr int PIECES = 12, PIECE = 1 << 22, LANES = 3, TAPS = 96;

__constant__ float taps[TAPS];

__global__ void filter(const float *in, float *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < TAPS; ++k) sum += taps[k] * in[max(i - k, 0)];
    out[i] = sum;
}

__global__ void limit(float *x, float most) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float value = x[i];
    for (int k = 0; k < 24; ++k) value = value / (1 + fabsf(value) * 0.01f);
    x[i] = fminf(fmaxf(value, -most), most);
}

struct Lane {
    cudaStream_t stream;
    float *in, *out;
};

void clean(const float *from, float *to, const Lane &lane) {
    size_t bytes = size_t(PIECE) * sizeof(float);
    CHECK(cudaMemcpyAsync(lane.in, from, bytes, cudaMemcpyHostToDevice, lane.stream));
    filter<<<PIECE / 256, 256, 0, lane.stream>>>(lane.in, lane.out);
    limit<<<PIECE / 256, 256, 0, lane.stream>>>(lane.out, 0.9f);
    CHECK(cudaMemcpyAsync(to, lane.out, bytes, cudaMemcpyDeviceToHost, lane.stream));
}

int main(int argc, char **argv) {
    turn();
    size_t numbers = size_t(PIECES) * PIECE;
    float *recording, *result;
    CHECK(cudaMallocHost(&recording, numbers * sizeof(float)));
    CHECK(cudaMallocHost(&result, numbers * sizeof(float)));
    for (size_t i = 0; i < numbers; ++i) recording[i] = (i * 7 % 101) * 0.02f - 1;
    float response[TAPS];
    for (int k = 0; k < TAPS; ++k) response[k] = 1.0f / TAPS;
    CHECK(cudaMemcpyToSymbol(taps, response, sizeof(response)));
    Lane lanes[LANES];
    for (Lane &lane : lanes) {
        CHECK(cudaStreamCreateWithFlags(&lane.stream, cudaStreamNonBlocking));
        CHECK(cudaMalloc(&lane.in, size_t(PIECE) * sizeof(float)));
        CHECK(cudaMalloc(&lane.out, size_t(PIECE) * sizeof(float)));
    }
    return measure("one_stream", argc, argv, 10, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step)
            for (int piece = 0; piece < PIECES; ++piece) {
                const Lane &lane = lanes[repaired ? piece % LANES : 0];
                clean(recording + size_t(piece) * PIECE, result + size_t(piece) * PIECE, lane);
            }
        CHECK(cudaDeviceSynchronize());
        double sum = 0;
        for (size_t i = 0; i < numbers; i += 4099) sum += result[i];
        return sum;
    });
}
