// Finds how warm tiles of a stove become: warmth at each point moves to the mean of its neighbours until it stays as it is.
#include "common.h"

constexpr int SIDE = 1024, THREADS = 256;

__global__ void warm_up(float *warmth) {
    int at = blockIdx.x * THREADS + threadIdx.x;
    int x = at % SIDE, y = at / SIDE;
    warmth[at] = y == 0 ? 1.0f + 0.5f * __sinf(0.02f * x) : 0.0f;
}

__global__ void spread(const float *from, float *to) {
    int at = blockIdx.x * THREADS + threadIdx.x;
    int x = at % SIDE, y = at / SIDE;
    float now = from[at];
    if (x > 0 && x < SIDE - 1 && y > 0 && y < SIDE - 1)
        now += 0.9f * (0.25f * (from[at - 1] + from[at + 1] + from[at - SIDE] + from[at + SIDE]) - now);
    to[at] = now;
}

__global__ void change(const float *from, const float *to, float *most) {
    __shared__ float parts[THREADS / 32];
    float apart = 0;
    for (int at = blockIdx.x * THREADS + threadIdx.x; at < SIDE * SIDE; at += gridDim.x * THREADS)
        apart = fmaxf(apart, fabsf(to[at] - from[at]));
    for (int off = 16; off; off /= 2) apart = fmaxf(apart, __shfl_down_sync(~0u, apart, off));
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = apart;
    __syncthreads();
    if (threadIdx.x) return;
    for (float part : parts) apart = fmaxf(apart, part);
    atomicMax(reinterpret_cast<int *>(most), __float_as_int(apart));  // none is below zero
}

class Stove {
    float *now, *next, *most;

public:
    Stove() {
        CHECK(cudaMalloc(&now, SIDE * SIDE * sizeof(float)));
        CHECK(cudaMalloc(&next, SIDE * SIDE * sizeof(float)));
        CHECK(cudaMalloc(&most, sizeof(float)));
    }

    // Goes on until nothing changes by more than `limit`, which is looked at after each `every` sweeps.
    double heat(int sweeps, int every, float limit) {
        warm_up<<<SIDE * SIDE / THREADS, THREADS>>>(now);
        for (int sweep = 1; sweep <= sweeps; ++sweep) {
            spread<<<SIDE * SIDE / THREADS, THREADS>>>(now, next);
            std::swap(now, next);
            if (sweep % every == 0) {
                float found;
                CHECK(cudaMemsetAsync(most, 0, sizeof(float)));
                change<<<264, THREADS>>>(next, now, most);
                CHECK(cudaMemcpy(&found, most, sizeof(float), cudaMemcpyDeviceToHost));
                if (found < limit) break;
            }
        }
        CHECK(cudaGetLastError());
        std::vector<float> all(SIDE * SIDE);
        CHECK(cudaMemcpy(all.data(), now, all.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float one : all) sum += one;
        return sum / SIDE;
    }
};

int main(int argc, char **argv) {
    turn();
    Stove stove;
    return measure("stove_tiles", argc, argv, 25000, [&](bool repaired, int steps) {
        return stove.heat(steps, repaired ? 100 : 1, 1e-12f);
    });
}
