// Follows how diseases spread in herds, in many possible worlds at once, and keeps all of each week on the host.
#include "common.h"

constexpr int WORLDS = 1 << 20, STATES = 12, DAYS = 7, MOMENTS = 6, THREADS = 256;
constexpr size_t SIZE = size_t(WORLDS) * STATES;

__device__ float chance(unsigned world, unsigned day, unsigned state) {
    unsigned key = world * 2654435761u ^ (day * 40503u + state) * 2246822519u;
    key = (key ^ key >> 15) * 3266489917u;
    return (key >> 8) * (1.0f / (1 << 24));
}

// A week of a world: animals go from each state of health to the next, in small moments of its days.
__global__ void week(const float *before, float *after, int first) {
    int world = blockIdx.x * THREADS + threadIdx.x;
    float animals[STATES];
#pragma unroll
    for (int s = 0; s < STATES; ++s) animals[s] = before[size_t(s) * WORLDS + world];
    for (int day = 0; day < DAYS; ++day) {
        float luck = 0.5f + chance(world, first + day, 0);
        for (int moment = 0; moment < MOMENTS; ++moment) {
            float flow = 0.01f * luck * animals[STATES - 1];
#pragma unroll
            for (int s = 0; s < STATES; ++s) {
                float ill = animals[(s + 1) % STATES] / (1 + animals[s]);
                float gone = animals[s] * (1 - __expf(-0.02f * luck * (1 + ill) / (s + 1)));
                animals[s] += flow - gone;
                flow = gone;
            }
            animals[0] += flow;
        }
    }
#pragma unroll
    for (int s = 0; s < STATES; ++s) after[size_t(s) * WORLDS + world] = animals[s];
}

__global__ void begin(float *animals) {
    size_t i = size_t(blockIdx.x) * THREADS + threadIdx.x;
    animals[i] = 10 + 90 * chance(unsigned(i), 77, 3);
}

struct Herds {
    static constexpr int KEPT = 4;
    float *now, *next, *aside, *history;
    cudaStream_t sums, copies;
    cudaEvent_t ready, copied;

    Herds() {
        CHECK(cudaMalloc(&now, SIZE * sizeof(float)));
        CHECK(cudaMalloc(&next, SIZE * sizeof(float)));
        CHECK(cudaMalloc(&aside, SIZE * sizeof(float)));
        CHECK(cudaMallocHost(&history, KEPT * SIZE * sizeof(float)));
        CHECK(cudaStreamCreate(&sums));
        CHECK(cudaStreamCreate(&copies));
        CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
        CHECK(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming));
    }

    void keep(int step, bool later) {
        float *to = history + size_t(step % KEPT) * SIZE;
        if (!later) {
            CHECK(cudaMemcpyAsync(to, now, SIZE * sizeof(float), cudaMemcpyDeviceToHost, sums));
            return;
        }
        CHECK(cudaStreamWaitEvent(sums, copied));
        CHECK(cudaMemcpyAsync(aside, now, SIZE * sizeof(float), cudaMemcpyDeviceToDevice, sums));
        CHECK(cudaEventRecord(ready, sums));
        CHECK(cudaStreamWaitEvent(copies, ready));
        CHECK(cudaMemcpyAsync(to, aside, SIZE * sizeof(float), cudaMemcpyDeviceToHost, copies));
        CHECK(cudaEventRecord(copied, copies));
    }

    double run(bool later, int steps) {
        begin<<<SIZE / THREADS, THREADS, 0, sums>>>(now);
        for (int step = 0; step < steps; ++step) {
            week<<<WORLDS / THREADS, THREADS, 0, sums>>>(now, next, step * DAYS);
            std::swap(now, next);
            keep(step, later);
        }
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        double sum = 0;
        for (size_t i = 0; i < SIZE; i += 997) sum += history[size_t((steps - 1) % KEPT) * SIZE + i];
        return sum * 997 / SIZE;
    }
};

int main(int argc, char **argv) {
    turn();
    Herds herds;
    return measure("herd_diseases", argc, argv, 250,
                   [&](bool repaired, int steps) { return herds.run(repaired, steps); });
}
