// Finds, for each point that a car's laser saw in a street, the eight nearest among points of the same part of the street.
#include "common.h"

constexpr int POINTS = 1 << 19, PART = 1024, NEAREST = 8, THREADS = 128;

// Distances to the nearest points so far, smallest first.
struct Sorted {
    float distances[NEAREST];
    int kept = 0;

    __device__ void take(float distance) {
        if (kept == NEAREST && distance >= distances[NEAREST - 1]) return;
        int k = kept < NEAREST ? kept++ : NEAREST - 1;
        for (; k > 0 && distances[k - 1] > distance; --k) distances[k] = distances[k - 1];
        distances[k] = distance;
    }

    __device__ float mean() const {
        float sum = 0;
        for (int k = 0; k < kept; ++k) sum += sqrtf(distances[k]);
        return sum / NEAREST;
    }
};

// The same, whose loops go over all places.
struct Network {
    float distances[NEAREST];

    __device__ Network() {
#pragma unroll
        for (int k = 0; k < NEAREST; ++k) distances[k] = 3e38f;
    }

    __device__ void take(float distance) {
        if (distance >= distances[NEAREST - 1]) return;
#pragma unroll
        for (int k = 0; k < NEAREST; ++k) {
            float nearer = fminf(distances[k], distance);
            distance = fmaxf(distances[k], distance);
            distances[k] = nearer;
        }
    }

    __device__ float mean() const {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < NEAREST; ++k) sum += sqrtf(distances[k]);
        return sum / NEAREST;
    }
};

template <class Best>
__global__ void nearest(const float4 *points, float *spread) {
    __shared__ float4 others[THREADS];
    int i = blockIdx.x * THREADS + threadIdx.x, first = i / PART * PART;
    float4 own = points[i];
    Best best;
    for (int tile = 0; tile < PART; tile += THREADS) {
        __syncthreads();
        others[threadIdx.x] = points[first + tile + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < THREADS; ++k) {
            float4 other = others[k];
            float x = own.x - other.x, y = own.y - other.y, z = own.z - other.z;
            best.take(x * x + y * y + z * z);
        }
    }
    spread[i] = best.mean();
}

__device__ float scatter(unsigned key) {
    key = (key ^ key >> 16) * 2246822519u;
    key = (key ^ key >> 13) * 3266489917u;
    return ((key ^ key >> 16) >> 8) * (1.0f / (1 << 24));
}

__global__ void scan(float4 *points) {
    int i = blockIdx.x * THREADS + threadIdx.x;
    points[i] = make_float4(30 * scatter(3 * i), 30 * scatter(3 * i + 1), 4 * scatter(3 * i + 2), 0);
}

int main(int argc, char **argv) {
    turn();
    float4 *points;
    float *spread;
    CHECK(cudaMalloc(&points, POINTS * sizeof(float4)));
    CHECK(cudaMalloc(&spread, POINTS * sizeof(float)));
    scan<<<POINTS / THREADS, THREADS>>>(points);
    CHECK(cudaDeviceSynchronize());
    return measure("street_points", argc, argv, 250, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step)
            if (repaired)
                nearest<Network><<<POINTS / THREADS, THREADS>>>(points, spread);
            else
                nearest<Sorted><<<POINTS / THREADS, THREADS>>>(points, spread);
        CHECK(cudaGetLastError());
        std::vector<float> found(POINTS);
        CHECK(cudaMemcpy(found.data(), spread, POINTS * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : found) sum += value;
        return sum / POINTS;
    });
}
