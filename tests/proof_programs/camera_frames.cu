// Watches a conveyor belt: frames of a camera go to the GPU, which looks for edges that were not there before.
#include "common.h"

constexpr int WIDTH = 4096, HEIGHT = 2048, FRAMES = 6;
constexpr size_t PIXELS = size_t(WIDTH) * HEIGHT;

__device__ float bright(const unsigned short *frame, int x, int y) {
    x = min(max(x, 0), WIDTH - 1);
    y = min(max(y, 0), HEIGHT - 1);
    return frame[size_t(y) * WIDTH + x];
}

// The strength of edges (Sobel), and how many are new compared with what is usual at their place.
__global__ void edges(const unsigned short *frame, float *usual, unsigned *fresh) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    float across = bright(frame, x + 1, y - 1) + 2 * bright(frame, x + 1, y) + bright(frame, x + 1, y + 1) -
                   bright(frame, x - 1, y - 1) - 2 * bright(frame, x - 1, y) - bright(frame, x - 1, y + 1);
    float along = bright(frame, x - 1, y + 1) + 2 * bright(frame, x, y + 1) + bright(frame, x + 1, y + 1) -
                  bright(frame, x - 1, y - 1) - 2 * bright(frame, x, y - 1) - bright(frame, x + 1, y - 1);
    size_t i = size_t(y) * WIDTH + x;
    float strength = sqrtf(across * across + along * along), before = usual[i];
    usual[i] = 0.9f * before + 0.1f * strength;
    unsigned found = __ballot_sync(~0u, strength > 2 * before + 600);
    if (threadIdx.x == 0 && found) atomicAdd(fresh, __popc(found));
}

int main(int argc, char **argv) {
    turn();
    unsigned short *there, *frames[2][FRAMES];
    for (int k = 0; k < FRAMES; ++k) {
        frames[0][k] = static_cast<unsigned short *>(std::malloc(PIXELS * sizeof(unsigned short)));
        CHECK(cudaMallocHost(&frames[1][k], PIXELS * sizeof(unsigned short)));
        for (size_t i = 0; i < PIXELS; ++i)
            frames[0][k][i] = frames[1][k][i] = static_cast<unsigned short>((i * (k + 3)) * 2654435761u >> 22);
    }
    float *usual;
    unsigned *fresh;
    CHECK(cudaMalloc(&there, PIXELS * sizeof(unsigned short)));
    CHECK(cudaMalloc(&usual, PIXELS * sizeof(float)));
    CHECK(cudaMalloc(&fresh, sizeof(unsigned)));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    return measure("camera_frames", argc, argv, 600, [&](bool repaired, int steps) {
        CHECK(cudaMemsetAsync(usual, 0, PIXELS * sizeof(float), stream));
        CHECK(cudaMemsetAsync(fresh, 0, sizeof(unsigned), stream));
        for (int step = 0; step < steps; ++step) {
            const unsigned short *frame = frames[repaired][step % FRAMES];
            CHECK(cudaMemcpyAsync(there, frame, PIXELS * sizeof(unsigned short), cudaMemcpyHostToDevice, stream));
            edges<<<dim3(WIDTH / 32, HEIGHT / 8), dim3(32, 8), 0, stream>>>(there, usual, fresh);
        }
        CHECK(cudaGetLastError());
        unsigned found;
        CHECK(cudaMemcpyAsync(&found, fresh, sizeof(unsigned), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        return double(found);
    });
}
