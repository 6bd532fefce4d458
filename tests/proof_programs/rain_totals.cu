// Adds up the rain of many gauges hour by hour: a running total of each record, a block of threads for each.
#include "common.h"

constexpr int GAUGES = 1 << 15, THREADS = 256, MOST = 4096;

// Where an hour lies in shared memory: as it comes, or with a free word after each 32.
template <bool SPACED>
__device__ int spot(int hour) {
    return SPACED ? hour + hour / 32 : hour;
}

// Running total over the threads of a block of what each of them has; returns the total before the own.
__device__ float before_me(float mine) {
    __shared__ float warps[THREADS / 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float sum = mine;
    for (int step = 1; step < 32; step *= 2) {
        float other = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += other;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    float earlier = 0;
    for (int k = 0; k < warp; ++k) earlier += warps[k];
    return earlier + sum - mine;
}

template <bool SPACED>
__global__ void totals(const float *rain, float *out, int hours) {
    __shared__ float record[MOST + MOST / 32];
    const float *from = rain + size_t(blockIdx.x) * hours;
    float *to = out + size_t(blockIdx.x) * hours;
    for (int hour = threadIdx.x; hour < hours; hour += THREADS) record[spot<SPACED>(hour)] = from[hour];
    __syncthreads();
    // each thread adds up a stretch of its own
    int each = hours / THREADS, first = threadIdx.x * each;
    float sum = 0;
    for (int hour = first; hour < first + each; ++hour) sum += record[spot<SPACED>(hour)];
    float total = before_me(sum);
    for (int hour = first; hour < first + each; ++hour) {
        total += record[spot<SPACED>(hour)];
        record[spot<SPACED>(hour)] = total;
    }
    __syncthreads();
    for (int hour = threadIdx.x; hour < hours; hour += THREADS) to[hour] = record[spot<SPACED>(hour)];
}

__global__ void fill(float *rain) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    unsigned random = (unsigned(i) * 2654435761u) >> 16;
    rain[i] = random % 8 ? 0.0f : (random >> 3 & 15) * 0.1f;
}

int main(int argc, char **argv) {
    turn();
    int hours = MOST;
    size_t numbers = size_t(GAUGES) * hours;
    float *rain, *out;
    CHECK(cudaMalloc(&rain, numbers * sizeof(float)));
    CHECK(cudaMalloc(&out, numbers * sizeof(float)));
    fill<<<numbers / 256, 256>>>(rain);
    CHECK(cudaDeviceSynchronize());
    return measure("rain_totals", argc, argv, 1500, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                totals<true><<<GAUGES, THREADS>>>(rain, out, hours);
            else
                totals<false><<<GAUGES, THREADS>>>(rain, out, hours);
        }
        CHECK(cudaGetLastError());
        std::vector<float> some(hours);
        CHECK(cudaMemcpy(some.data(), out + numbers / 2, hours * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum / hours;
    });
}
