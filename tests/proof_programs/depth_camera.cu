// Unpacks frames of a depth camera, two pixels in four bytes, into colours, and hands each frame back to the host.
#include "common.h"

constexpr int WIDE = 1280, HIGH = 720, PIXELS = WIDE * HIGH, THREADS = 256, RING = 4;

__device__ unsigned char clipped(float value) { return static_cast<unsigned char>(fminf(fmaxf(value, 0.0f), 255.0f)); }

__global__ void unpack(const uchar4 *source, unsigned char *colours) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= PIXELS / 2) return;
    uchar4 two = source[i];
    float u = two.y - 128.0f, v = two.w - 128.0f;
    float red = 1.402f * v, green = -0.344f * u - 0.714f * v, blue = 1.772f * u;
    unsigned char *to = colours + 6 * i;
    to[0] = clipped(two.x + red), to[1] = clipped(two.x + green), to[2] = clipped(two.x + blue);
    to[3] = clipped(two.z + red), to[4] = clipped(two.z + green), to[5] = clipped(two.z + blue);
}

// Memory on the GPU for a frame or its colours.
struct Buffer {
    void *data = nullptr;
    size_t size = 0;

    void *reserve(size_t wanted) {
        if (wanted > size) {
            release();
            CHECK(cudaMalloc(&data, wanted));
            size = wanted;
        }
        return data;
    }

    void release() {
        if (data) CHECK(cudaFree(data));
        data = nullptr, size = 0;
    }
};

class Helper {
public:
    explicit Helper(bool reuse) : reuse(reuse) {}

    void unpack_yuy2(const unsigned char *frame, unsigned char *colours) {
        void *from = source.reserve(2 * PIXELS), *to = target.reserve(3 * PIXELS);
        CHECK(cudaMemcpy(from, frame, 2 * PIXELS, cudaMemcpyHostToDevice));
        unpack<<<(PIXELS / 2 + THREADS - 1) / THREADS, THREADS>>>(static_cast<uchar4 *>(from), static_cast<unsigned char *>(to));
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(colours, to, 3 * PIXELS, cudaMemcpyDeviceToHost));
        if (!reuse) {
            source.release();
            target.release();
        }
    }

private:
    bool reuse;
    Buffer source, target;
};

int main(int argc, char **argv) {
    turn();
    unsigned char *frames[RING], *colours;
    for (int k = 0; k < RING; ++k) {
        CHECK(cudaHostAlloc(reinterpret_cast<void **>(&frames[k]), 2 * PIXELS, cudaHostAllocDefault));
        for (int i = 0; i < 2 * PIXELS; ++i) frames[k][i] = static_cast<unsigned char>((i * 2654435761u >> 21) + 17 * k);
    }
    CHECK(cudaHostAlloc(reinterpret_cast<void **>(&colours), 3 * PIXELS, cudaHostAllocDefault));
    Helper helpers[2] = {Helper(false), Helper(true)};
    return measure("depth_camera", argc, argv, 2500, [&](bool repaired, int steps) {
        double sum = 0;
        for (int step = 0; step < steps; ++step) {
            helpers[repaired].unpack_yuy2(frames[step % RING], colours);
            for (int k = 0; k < 3; ++k) sum += colours[(step * 7919 + k * 104729) % (3 * PIXELS)];
        }
        return sum / steps;
    });
}
