// Lets a coral reef grow, moment by moment, and tells a bar of progress how far it is.
#include "common.h"
#include <atomic>

constexpr int SIDE = 1024, CELLS = SIDE * SIDE;

// What the bar shows: moments that are done.
struct Progress {
    std::atomic<int> done{0};
    static void count(void *mine) { static_cast<Progress *>(mine)->done++; }
};

__global__ void grow(const float *reef, float *next, float light) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int x = i % SIDE, y = i / SIDE;
    float left = reef[y * SIDE + (x + SIDE - 1) % SIDE], right = reef[y * SIDE + (x + 1) % SIDE];
    float above = reef[(y + SIDE - 1) % SIDE * SIDE + x], below = reef[(y + 1) % SIDE * SIDE + x];
    float around = 0.25f * (left + right + above + below), here = reef[i];
    next[i] = here + 0.2f * (around - here) + light * here * (1 - here);
}

int main(int argc, char **argv) {
    turn();
    float *reef, *next;
    CHECK(cudaMalloc(&reef, CELLS * sizeof(float)));
    CHECK(cudaMalloc(&next, CELLS * sizeof(float)));
    std::vector<float> seeds(CELLS);
    for (int i = 0; i < CELLS; ++i) seeds[i] = (i * 7919ll % 1000) * 0.0005f;
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return measure("reef_growth", argc, argv, 24000, [&](bool repaired, int steps) {
        Progress progress;
        CHECK(cudaMemcpy(reef, seeds.data(), CELLS * sizeof(float), cudaMemcpyHostToDevice));
        int each = repaired ? 1000 : 1;  // moments between two looks at the bar
        for (int step = 0; step < steps; ++step) {
            grow<<<CELLS / 256, 256, 0, stream>>>(reef, next, 0.001f * (step % 3));
            if (step % each == 0) CHECK(cudaLaunchHostFunc(stream, Progress::count, &progress));
            std::swap(reef, next);
        }
        CHECK(cudaStreamSynchronize(stream));
        std::vector<float> some(CELLS);
        CHECK(cudaMemcpy(some.data(), reef, CELLS * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum / CELLS;
    });
}
