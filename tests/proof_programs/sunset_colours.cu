// Turns photographs of sunsets from the colours of screens into lightness and colour as eyes tell them apart.
#include "common.h"

constexpr int PHOTOS = 4, PIXELS = 2048 * 1536;

// From a screen's value to light, both from 0 to 1.
__device__ float light_of(float value) {
    return value <= 0.04045 ? value / 12.92 : pow((value + 0.055) / 1.055, 2.4);
}

__device__ float light_of_screen(float value) {
    return value <= 0.04045f ? value / 12.92f : powf((value + 0.055f) / 1.055f, 2.4f);
}

__device__ float bend(float share) {
    return share > 0.008856f ? cbrtf(share) : 7.787f * share + 16.0f / 116.0f;
}

__device__ float4 eye(float red, float green, float blue) {
    float x = bend((0.4124f * red + 0.3576f * green + 0.1805f * blue) / 0.9505f);
    float y = bend(0.2126f * red + 0.7152f * green + 0.0722f * blue);
    float z = bend((0.0193f * red + 0.1192f * green + 0.9505f * blue) / 1.089f);
    return make_float4(116 * y - 16, 500 * (x - y), 200 * (y - z), 1);
}

__global__ void to_eye(const uchar4 *screen, float4 *seen) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    uchar4 pixel = screen[i];
    float red = light_of(pixel.x / 255.0f), green = light_of(pixel.y / 255.0f);
    seen[i] = eye(red, green, light_of(pixel.z / 255.0f));
}

__global__ void screen_to_eye(const uchar4 *screen, float4 *seen) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    uchar4 pixel = screen[i];
    float red = light_of_screen(pixel.x / 255.0f), green = light_of_screen(pixel.y / 255.0f);
    seen[i] = eye(red, green, light_of_screen(pixel.z / 255.0f));
}

__global__ void paint(uchar4 *screen) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned h = unsigned(i) * 2654435761u;
    screen[i] = make_uchar4(128 + (h >> 25), (h >> 16) & 255, (h >> 8) & 255, 255);
}

int main(int argc, char **argv) {
    turn();
    uchar4 *screen;
    float4 *seen;
    CHECK(cudaMalloc(&screen, size_t(PHOTOS) * PIXELS * sizeof(uchar4)));
    CHECK(cudaMalloc(&seen, size_t(PHOTOS) * PIXELS * sizeof(float4)));
    paint<<<PHOTOS * PIXELS / 256, 256>>>(screen);
    CHECK(cudaDeviceSynchronize());
    return measure("sunset_colours", argc, argv, 2500, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step)
            if (repaired)
                screen_to_eye<<<PHOTOS * PIXELS / 256, 256>>>(screen, seen);
            else
                to_eye<<<PHOTOS * PIXELS / 256, 256>>>(screen, seen);
        CHECK(cudaGetLastError());
        std::vector<float4> some(65536);
        CHECK(cudaMemcpy(some.data(), seen, some.size() * sizeof(float4), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float4 pixel : some) sum += pixel.x + std::abs(pixel.y) + std::abs(pixel.z);
        return sum / some.size();
    });
}
