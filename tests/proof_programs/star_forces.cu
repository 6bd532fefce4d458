// Moves the stars of a cluster: each feels the pull of all others, softened near by (Plummer).
#include "common.h"

constexpr int STARS = 1 << 16, THREADS = 128;

// How strongly a mass at a distance (squared) pulls, over the distance.
template <bool FAST>
__device__ float pull(float mass, float squared) {
    if (FAST) {
        float inverse = rsqrtf(squared);
        return mass * inverse * inverse * inverse;
    }
    float distance = sqrtf(squared);
    return mass / (squared * distance);
}

template <bool FAST>
__global__ void accelerate(const float4 *stars, float3 *forces) {
    __shared__ float4 tile[THREADS];
    float4 mine = stars[blockIdx.x * THREADS + threadIdx.x];
    float3 sum = {0, 0, 0};
    for (int start = 0; start < STARS; start += THREADS) {
        tile[threadIdx.x] = stars[start + threadIdx.x];
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < THREADS; ++k) {
            float4 other = tile[k];
            float x = other.x - mine.x, y = other.y - mine.y, z = other.z - mine.z;
            float strength = pull<FAST>(other.w, x * x + y * y + z * z + 1e-4f);
            sum.x += strength * x;
            sum.y += strength * y;
            sum.z += strength * z;
        }
        __syncthreads();
    }
    forces[blockIdx.x * THREADS + threadIdx.x] = sum;
}

__global__ void move(float4 *stars, float3 *speeds, const float3 *forces) {
    int i = blockIdx.x * THREADS + threadIdx.x;
    float3 v = speeds[i], f = forces[i];
    v = {v.x + 1e-5f * f.x, v.y + 1e-5f * f.y, v.z + 1e-5f * f.z};
    speeds[i] = v;
    stars[i].x += 1e-3f * v.x;
    stars[i].y += 1e-3f * v.y;
    stars[i].z += 1e-3f * v.z;
}

__global__ void begin(float4 *stars, float3 *speeds) {
    int i = blockIdx.x * THREADS + threadIdx.x;
    unsigned key = (i + 1) * 2654435761u;
    key = (key ^ key >> 15) * 2246822519u;
    unsigned more = (key ^ key >> 13) * 3266489917u;
    stars[i] = {(key & 4095) / 4096.f, (key >> 12 & 4095) / 4096.f, (more & 4095) / 4096.f, 1 + (more >> 12 & 3) * 0.25f};
    speeds[i] = {0, 0, 0};
}

int main(int argc, char **argv) {
    turn();
    float4 *stars;
    float3 *speeds, *forces;
    CHECK(cudaMalloc(&stars, STARS * sizeof(float4)));
    CHECK(cudaMalloc(&speeds, STARS * sizeof(float3)));
    CHECK(cudaMalloc(&forces, STARS * sizeof(float3)));
    return measure("star_forces", argc, argv, 180, [&](bool repaired, int steps) {
        begin<<<STARS / THREADS, THREADS>>>(stars, speeds);
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                accelerate<true><<<STARS / THREADS, THREADS>>>(stars, forces);
            else
                accelerate<false><<<STARS / THREADS, THREADS>>>(stars, forces);
            move<<<STARS / THREADS, THREADS>>>(stars, speeds, forces);
        }
        CHECK(cudaGetLastError());
        std::vector<float4> all(STARS);
        CHECK(cudaMemcpy(all.data(), stars, STARS * sizeof(float4), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float4 star : all) sum += star.x + star.y + star.z;
        return sum / STARS;
    });
}
