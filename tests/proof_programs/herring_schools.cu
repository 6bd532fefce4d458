// Follows herrings of a school, of each of which sixteen numbers are known: they swim, grow tired, and feed.
#include "common.h"

constexpr int FISH = 1 << 23, THREADS = 256, FIELDS = 16;
enum Field { X, Y, Z, FAT, AGE, WARMTH, LIGHT, LENGTH, SPEED_X, SPEED_Y, SPEED_Z, HUNGER, FEAR, CLAN, SCALE, DEPTH };

// The place of a number of a fish: numbers of one kind together, or all of one fish together.
template <bool BY_FIELD>
__device__ float &number(float *school, Field field, int fish) {
    if (BY_FIELD) return school[field * FISH + fish];
    return school[fish * FIELDS + field];
}

template <bool BY_FIELD>
__global__ void swim(float *school, float time) {
    int fish = blockIdx.x * THREADS + threadIdx.x;
    number<BY_FIELD>(school, X, fish) += time * number<BY_FIELD>(school, SPEED_X, fish);
    number<BY_FIELD>(school, Y, fish) += time * number<BY_FIELD>(school, SPEED_Y, fish);
    number<BY_FIELD>(school, Z, fish) += time * number<BY_FIELD>(school, SPEED_Z, fish);
}

template <bool BY_FIELD>
__global__ void feed(float *school, float share) {
    int fish = blockIdx.x * THREADS + threadIdx.x;
    float hunger = number<BY_FIELD>(school, HUNGER, fish);
    float bite = share * hunger;
    number<BY_FIELD>(school, FAT, fish) += bite;
    number<BY_FIELD>(school, HUNGER, fish) = hunger - bite + 0.001f;
}

template <bool BY_FIELD>
__global__ void spawn(float *school) {
    int fish = blockIdx.x * THREADS + threadIdx.x;
    for (int field = 0; field < FIELDS; ++field)
        number<BY_FIELD>(school, Field(field), fish) = 0.01f * ((fish + 31 * field) & 255) - 1;
}

template <bool BY_FIELD>
__global__ void show(float *school, float *seen) {
    int fish = blockIdx.x * THREADS + threadIdx.x;
    seen[fish] = number<BY_FIELD>(school, X, fish) + number<BY_FIELD>(school, FAT, fish);
}

template <bool BY_FIELD>
void live(float *school, float *seen, int steps) {
    spawn<BY_FIELD><<<FISH / THREADS, THREADS>>>(school);
    for (int step = 0; step < steps; ++step) {
        swim<BY_FIELD><<<FISH / THREADS, THREADS>>>(school, 0.001f);
        feed<BY_FIELD><<<FISH / THREADS, THREADS>>>(school, 0.02f);
    }
    show<BY_FIELD><<<(1 << 20) / THREADS, THREADS>>>(school, seen);
}

int main(int argc, char **argv) {
    turn();
    float *school, *seen;
    CHECK(cudaMalloc(&school, size_t(FISH) * FIELDS * sizeof(float)));
    CHECK(cudaMalloc(&seen, (1 << 20) * sizeof(float)));
    return measure("herring_schools", argc, argv, 1500, [&](bool repaired, int steps) {
        repaired ? live<true>(school, seen, steps) : live<false>(school, seen, steps);
        CHECK(cudaGetLastError());
        std::vector<float> found(1 << 20);
        CHECK(cudaMemcpy(found.data(), seen, found.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float f : found) sum += std::abs(f);
        return sum / found.size();
    });
}
