// Develops a photographer's pictures of a wedding: exposure, contrast, colours and the light at the edges.
#include "common.h"

constexpr int WIDTH = 6016, HEIGHT = 4000, THREADS = 256, PIXELS = WIDTH * HEIGHT;

__device__ float4 each(float4 p, float (*change)(float, float), float by) {
    return make_float4(change(p.x, by), change(p.y, by), change(p.z, by), p.w);
}

__device__ float brighter(float x, float by) { return x * by; }
__device__ float steeper(float x, float by) { return 1 / (1 + __expf(by * (0.5f - x))); }
__device__ float toned(float x, float by) { return __powf(x, by); }

__device__ float4 exposed(float4 p, float by) { return each(p, brighter, by); }
__device__ float4 contrasted(float4 p, float by) { return each(p, steeper, by); }

__device__ float4 coloured(float4 p, float by) {
    float grey = 0.299f * p.x + 0.587f * p.y + 0.114f * p.z;
    return make_float4(grey + by * (p.x - grey), grey + by * (p.y - grey), grey + by * (p.z - grey), p.w);
}

__device__ float4 edged(float4 p, int i, float by) {
    float x = (i % WIDTH) * (2.0f / WIDTH) - 1, y = (i / WIDTH) * (2.0f / HEIGHT) - 1;
    return each(p, brighter, 1 - by * (x * x + y * y));
}

__device__ float4 shaded(float4 p, float by) { return each(make_float4(fmaxf(p.x, 0), fmaxf(p.y, 0), fmaxf(p.z, 0), p.w), toned, by); }

__global__ void expose(const float4 *in, float4 *out, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = exposed(in[i], by);
}

__global__ void contrast(const float4 *in, float4 *out, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = contrasted(in[i], by);
}

__global__ void colour(const float4 *in, float4 *out, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = coloured(in[i], by);
}

__global__ void edge(const float4 *in, float4 *out, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = edged(in[i], i, by);
}

__global__ void shade(const float4 *in, float4 *out, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = shaded(in[i], by);
}

__global__ void develop(const float4 *in, float4 *out, float light, float steep, float colours, float dark, float tone) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 p = contrasted(exposed(in[i], light), steep);
    out[i] = shaded(edged(coloured(p, colours), i, dark), tone);
}

__global__ void take(float4 *photo) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned h = i * 2654435761u;
    photo[i] = make_float4((h >> 24) / 256.0f, (h >> 16 & 255) / 256.0f, (h >> 8 & 255) / 256.0f, 1);
}

int main(int argc, char **argv) {
    turn();
    float4 *photo, *out;
    CHECK(cudaMalloc(&photo, PIXELS * sizeof(float4)));
    CHECK(cudaMalloc(&out, PIXELS * sizeof(float4)));
    take<<<PIXELS / THREADS, THREADS>>>(photo);
    CHECK(cudaDeviceSynchronize());
    return measure("wedding_photos", argc, argv, 800, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            float light = 1 + 0.01f * (step % 20);
            if (repaired) {
                develop<<<PIXELS / THREADS, THREADS>>>(photo, out, light, 5, 1.2f, 0.2f, 0.8f);
            } else {
                expose<<<PIXELS / THREADS, THREADS>>>(photo, out, light);
                contrast<<<PIXELS / THREADS, THREADS>>>(out, out, 5);
                colour<<<PIXELS / THREADS, THREADS>>>(out, out, 1.2f);
                edge<<<PIXELS / THREADS, THREADS>>>(out, out, 0.2f);
                shade<<<PIXELS / THREADS, THREADS>>>(out, out, 0.8f);
            }
        }
        CHECK(cudaGetLastError());
        std::vector<float4> some(1 << 16);
        CHECK(cudaMemcpy(some.data(), out, some.size() * sizeof(float4), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float4 p : some) sum += p.x + 2 * p.y + 3 * p.z;
        return sum / some.size();
    });
}
