// Turns pictures of cameras in woods, brightness and colour by turns, into red, green and blue, to look for owls in them.
#include "common.h"

constexpr int WIDTH = 1920, HEIGHT = 1080, PIXELS = WIDTH * HEIGHT, THREADS = 256;

__device__ unsigned char byte_of(float value) { return fminf(fmaxf(value, 0.0f), 255.0f); }

__global__ void unpack(const uchar4 *pairs, uchar3 *colours) {
    int at = blockIdx.x * THREADS + threadIdx.x;
    uchar4 pair = pairs[at];
    float blue = pair.y - 128.0f, red = pair.w - 128.0f;
    for (int k = 0; k < 2; ++k) {
        float bright = k ? pair.z : pair.x;
        colours[2 * at + k] = make_uchar3(byte_of(bright + 1.402f * red), byte_of(bright - 0.344f * blue - 0.714f * red),
                                          byte_of(bright + 1.772f * blue));
    }
}

// Memory on the GPU that is there for one picture, or from one picture to the next.
struct Room {
    bool stays;
    void *kept = nullptr;

    void *take(size_t bytes) {
        if (!kept) CHECK(cudaMalloc(&kept, bytes));
        return kept;
    }

    void give() {
        if (stays) return;
        CHECK(cudaFree(kept));
        kept = nullptr;
    }
};

struct Camera {
    Room seen, made;

    explicit Camera(bool stays) : seen{stays}, made{stays} {}

    void convert(const unsigned char *from, unsigned char *to) {
        void *pairs = seen.take(PIXELS * 2), *colours = made.take(PIXELS * 3);
        CHECK(cudaMemcpyAsync(pairs, from, PIXELS * 2, cudaMemcpyHostToDevice));
        unpack<<<PIXELS / 2 / THREADS, THREADS>>>((uchar4 *)pairs, (uchar3 *)colours);
        CHECK(cudaMemcpyAsync(to, colours, PIXELS * 3, cudaMemcpyDeviceToHost));
        CHECK(cudaStreamSynchronize(0));
        seen.give();
        made.give();
    }
};

int main(int argc, char **argv) {
    turn();
    unsigned char *from, *to;
    CHECK(cudaMallocHost(&from, PIXELS * 2));
    CHECK(cudaMallocHost(&to, PIXELS * 3));
    for (int i = 0; i < PIXELS * 2; ++i) from[i] = (i * 37) >> 4;
    Camera cameras[2] = {Camera(false), Camera(true)};
    return measure("owl_cameras", argc, argv, 800, [&](bool repaired, int steps) {
        for (int k = 0; k < steps; ++k) {
            from[k % PIXELS] ^= 1;
            cameras[repaired].convert(from, to);
            from[k % PIXELS] ^= 1;
        }
        CHECK(cudaGetLastError());
        double sum = 0;
        for (int i = 1 << 16; i < PIXELS * 3; ++i) sum += to[i];
        return sum / PIXELS;
    });
}
