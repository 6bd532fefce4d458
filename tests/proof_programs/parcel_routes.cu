// Puts parcels in the order in which a van passes their doors, for one way through a town after the other.
#include "common.h"
#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/sort.h>

constexpr int PARCELS = 1 << 23, THREADS = 256;

// Which of two doors is nearer to the depot.
struct Nearer {
    __host__ __device__ bool operator()(float one, float other) const { return one < other; }
};

// How far the door of each parcel is along a way.
__global__ void ways(const float2 *doors, float *along, int *parcels, float east, float north) {
    int parcel = blockIdx.x * THREADS + threadIdx.x;
    float2 door = doors[parcel];
    along[parcel] = fabsf(door.x - east) + fabsf(door.y - north);
    parcels[parcel] = parcel;
}

__global__ void begin(float2 *doors) {
    unsigned parcel = blockIdx.x * THREADS + threadIdx.x, key = parcel * 2654435761u;
    key = (key ^ key >> 15) * 2246822519u;
    unsigned other = (key ^ key >> 13) * 3266489917u;
    doors[parcel] = make_float2((key >> 8) * (1.0f / (1 << 24)), (other >> 8) * (1.0f / (1 << 24)));
}

struct Town {
    float2 *doors;
    float *along;
    int *parcels;

    Town() {
        CHECK(cudaMalloc(&doors, PARCELS * sizeof(float2)));
        CHECK(cudaMalloc(&along, PARCELS * sizeof(float)));
        CHECK(cudaMalloc(&parcels, PARCELS * sizeof(int)));
        begin<<<PARCELS / THREADS, THREADS>>>(doors);
    }

    double run(bool by_number, int steps) {
        thrust::device_ptr<float> keys(along);
        thrust::device_ptr<int> values(parcels);
        for (int k = 0; k < steps; ++k) {
            ways<<<PARCELS / THREADS, THREADS>>>(doors, along, parcels, 0.1f * (k % 10), 0.5f);
            if (by_number)
                thrust::sort_by_key(thrust::device, keys, keys + PARCELS, values, thrust::less<float>());
            else
                thrust::sort_by_key(thrust::device, keys, keys + PARCELS, values, Nearer());
        }
        CHECK(cudaGetLastError());
        std::vector<float> found(PARCELS);
        CHECK(cudaMemcpy(found.data(), along, PARCELS * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (int at = 0; at < PARCELS; ++at) sum += double(found[at]) * at / PARCELS;
        return sum / PARCELS;
    }
};

int main(int argc, char **argv) {
    turn();
    Town town;
    return measure("parcel_routes", argc, argv, 150,
                   [&](bool repaired, int steps) { return town.run(repaired, steps); });
}
