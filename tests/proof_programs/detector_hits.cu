// Finds hits in the channels of a particle detector: four samples each, and a list of what rises above its threshold.
#include "common.h"

constexpr int CHANNELS = 1 << 25, THREADS = 512;

struct Hit {
    int channel;
    float energy;
};

// How many hits a channel has (two where the pulse is long), and the energy of all its samples.
__device__ int look(float4 samples, float threshold, float &energy) {
    float base = fminf(fminf(samples.x, samples.y), fminf(samples.z, samples.w));
    energy = samples.x + samples.y + samples.z + samples.w - 4 * base;
    int above = (samples.x - base > threshold) + (samples.y - base > threshold) + (samples.z - base > threshold) +
                (samples.w - base > threshold);
    return above > 2 ? 2 : above > 0;
}

__device__ void write(Hit *hits, int at, int count, int channel, float energy) {
    for (int k = 0; k < count; ++k) hits[at + k] = {channel, energy / count};
}

// Each channel that has hits takes places in the list for itself.
__global__ void find_each(const float4 *samples, float threshold, Hit *hits, int *found) {
    int channel = blockIdx.x * THREADS + threadIdx.x;
    float energy;
    int count = look(samples[channel], threshold, energy);
    if (count) {
        int at = atomicAdd(found, count);
        write(hits, at, count, channel, energy);
    }
}

// The channels of a block share places out in shared memory, and the block takes all of them at once.
__global__ void find_blocks(const float4 *samples, float threshold, Hit *hits, int *found) {
    __shared__ int mine, start;
    if (threadIdx.x == 0) mine = 0;
    __syncthreads();
    int channel = blockIdx.x * THREADS + threadIdx.x, at = 0;
    float energy;
    int count = look(samples[channel], threshold, energy);
    if (count) at = atomicAdd(&mine, count);
    __syncthreads();
    if (threadIdx.x == 0) start = atomicAdd(found, mine);
    __syncthreads();
    write(hits, start + at, count, channel, energy);
}

__global__ void fill(float4 *samples) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    unsigned random = unsigned(i) * 2654435761u ^ unsigned(i) >> 7;
    random = (random ^ random >> 15) * 2246822519u;
    float noise = (random >> 8 & 255) * 0.001f, pulse = random >> 16 & 31 ? 0.0f : 1 + (random >> 21 & 7);
    samples[i] = make_float4(noise, noise + pulse * 0.9f, 0.5f * noise + pulse * ((random >> 24) % 3), 0.2f);
}

int main(int argc, char **argv) {
    turn();
    float4 *samples;
    Hit *hits;
    int *found;
    CHECK(cudaMalloc(&samples, CHANNELS * sizeof(float4)));
    CHECK(cudaMalloc(&hits, 2 * size_t(CHANNELS) * sizeof(Hit)));
    CHECK(cudaMalloc(&found, sizeof(int)));
    fill<<<CHANNELS / 256, 256>>>(samples);
    CHECK(cudaDeviceSynchronize());
    return measure("detector_hits", argc, argv, 2000, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            CHECK(cudaMemsetAsync(found, 0, sizeof(int)));
            float threshold = 0.6f + 0.01f * (step % 10);
            if (repaired)
                find_blocks<<<CHANNELS / THREADS, THREADS>>>(samples, threshold, hits, found);
            else
                find_each<<<CHANNELS / THREADS, THREADS>>>(samples, threshold, hits, found);
        }
        CHECK(cudaGetLastError());
        int count;
        CHECK(cudaMemcpy(&count, found, sizeof(count), cudaMemcpyDeviceToHost));
        std::vector<Hit> list(count);
        CHECK(cudaMemcpy(list.data(), hits, count * sizeof(Hit), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (const Hit &hit : list) sum += hit.energy * (1 + hit.channel % 3);
        return sum / count + count * 1e-6;
    });
}
