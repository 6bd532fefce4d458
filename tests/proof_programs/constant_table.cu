// Renders a scan: densities of samples become opacities by a table (transfer function), and light is added up along rays.
#include "common.h"

constexpr int ENTRIES = 4096, RAYS = 1 << 18, SAMPLES = 128, THREADS = 256;

__constant__ float fixed_table[ENTRIES];

template <bool SHARED>
__global__ void render(const unsigned short *volume, const float *table, float *light) {
    __shared__ float copy[SHARED ? ENTRIES : 1];
    if (SHARED) {
        for (int i = threadIdx.x; i < ENTRIES; i += THREADS) copy[i] = table[i];
        __syncthreads();
    }
    size_t ray = size_t(blockIdx.x) * THREADS + threadIdx.x;
    float through = 1, seen = 0;
    for (int k = 0; k < SAMPLES; ++k) {
        int density = volume[size_t(k) * RAYS + ray];
        float opacity = SHARED ? copy[density] : fixed_table[density];
        seen += through * opacity * (1 + 0.001f * k);
        through *= 1 - opacity;
    }
    light[ray] = seen;
}

__global__ void fill(unsigned short *volume) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    volume[i] = (unsigned(i) * 2654435761u >> 13) % ENTRIES;
}

int main(int argc, char **argv) {
    turn();
    size_t numbers = size_t(RAYS) * SAMPLES;
    unsigned short *volume;
    float *table, *light;
    CHECK(cudaMalloc(&volume, numbers * sizeof(unsigned short)));
    CHECK(cudaMalloc(&table, ENTRIES * sizeof(float)));
    CHECK(cudaMalloc(&light, RAYS * sizeof(float)));
    std::vector<float> opacities(ENTRIES);
    for (int i = 0; i < ENTRIES; ++i) opacities[i] = 0.02f * i / ENTRIES * (i % 7);
    CHECK(cudaMemcpy(table, opacities.data(), ENTRIES * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyToSymbol(fixed_table, opacities.data(), ENTRIES * sizeof(float)));
    fill<<<numbers / 256, 256>>>(volume);
    CHECK(cudaDeviceSynchronize());
    return measure("constant_table", argc, argv, 300, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                render<true><<<RAYS / THREADS, THREADS>>>(volume, table, light);
            else
                render<false><<<RAYS / THREADS, THREADS>>>(volume, table, light);
        }
        CHECK(cudaGetLastError());
        std::vector<float> found(RAYS);
        CHECK(cudaMemcpy(found.data(), light, RAYS * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : found) sum += value;
        return sum;
    });
}
