// Finds the peak of each spectrum and what lies round it, a block for each spectrum.
#include "common.h"

constexpr int LENGTH = 1024, SPECTRA = 1 << 16, THREADS = 256;

struct Peak {
    float value, total;
    int at;
};

__device__ Peak better(Peak a, Peak b) {
    bool first = a.value > b.value || (a.value == b.value && a.at < b.at);
    return {first ? a.value : b.value, a.total + b.total, first ? a.at : b.at};
}

__device__ Peak by_leader(Peak mine) {
    __shared__ Peak all[THREADS];
    all[threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int k = 1; k < THREADS; ++k) mine = better(mine, all[k]);
    return mine;
}

__device__ Peak by_warps(Peak mine) {
    __shared__ Peak warps[THREADS / 32];
    for (int ahead = 16; ahead; ahead /= 2)
        mine = better(mine, {__shfl_down_sync(~0u, mine.value, ahead), __shfl_down_sync(~0u, mine.total, ahead),
                             __shfl_down_sync(~0u, mine.at, ahead)});
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int k = 1; k < THREADS / 32; ++k) mine = better(mine, warps[k]);
    return mine;
}

template <bool WARPS>
__global__ void peaks(const float *spectra, Peak *found) {
    const float *mine = spectra + size_t(blockIdx.x) * LENGTH;
    Peak peak{-1e30f, 0, 0};
    for (int i = threadIdx.x; i < LENGTH; i += THREADS) peak = better(peak, {mine[i], mine[i], i});
    peak = WARPS ? by_warps(peak) : by_leader(peak);
    if (threadIdx.x == 0) found[blockIdx.x] = peak;
}

__global__ void fill(float *spectra) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    spectra[i] = (i * 2654435761u >> 8 & 0xffff) * 0.001f;
}

int main(int argc, char **argv) {
    turn();
    size_t numbers = size_t(LENGTH) * SPECTRA;
    float *spectra;
    Peak *found;
    CHECK(cudaMalloc(&spectra, numbers * sizeof(float)));
    CHECK(cudaMalloc(&found, SPECTRA * sizeof(Peak)));
    fill<<<numbers / 256, 256>>>(spectra);
    CHECK(cudaDeviceSynchronize());
    return measure("leader_work", argc, argv, 200, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                peaks<true><<<SPECTRA, THREADS>>>(spectra, found);
            else
                peaks<false><<<SPECTRA, THREADS>>>(spectra, found);
        }
        CHECK(cudaGetLastError());
        std::vector<Peak> all(SPECTRA);
        CHECK(cudaMemcpy(all.data(), found, SPECTRA * sizeof(Peak), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (const Peak &peak : all) sum += peak.value + peak.at + peak.total / LENGTH;
        return sum / SPECTRA;
    });
}
