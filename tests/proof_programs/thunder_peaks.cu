// Finds the highest signal that was seen over each place of a map of thunderstorms.
#include "common.h"

constexpr int EVENTS = 1 << 25, PLACES = 1 << 13;

struct Event {
    int place;
    float height;
};

// The larger of two numbers in memory, by comparing and swapping until nobody came between.
__device__ void raise_by_swaps(float *at, float height) {
    int *bits = reinterpret_cast<int *>(at), before = *bits, expected;
    do {
        expected = before;
        before = atomicCAS(bits, expected, __float_as_int(fmaxf(height, __int_as_float(expected))));
    } while (before != expected);
}

// The same for numbers that are not negative, which compare like their bits.
__device__ void raise_at_once(float *at, float height) {
    atomicMax(reinterpret_cast<int *>(at), __float_as_int(height));
}

template <bool SWAPS>
__global__ void find_peaks(const Event *events, float *peaks) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < EVENTS; i += gridDim.x * blockDim.x) {
        Event event = events[i];
        if (SWAPS)
            raise_by_swaps(peaks + event.place, event.height);
        else
            raise_at_once(peaks + event.place, event.height);
    }
}

__global__ void fill(Event *events) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned random = unsigned(i) * 2654435761u;
    random = (random ^ random >> 15) * 2246822519u;
    random ^= random >> 13;
    events[i] = {int(random % PLACES), float(random >> 8) * 1e-4f};
}

int main(int argc, char **argv) {
    turn();
    Event *events;
    float *peaks;
    CHECK(cudaMalloc(&events, EVENTS * sizeof(Event)));
    CHECK(cudaMalloc(&peaks, PLACES * sizeof(float)));
    fill<<<EVENTS / 256, 256>>>(events);
    CHECK(cudaDeviceSynchronize());
    return measure("thunder_peaks", argc, argv, 400, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            CHECK(cudaMemsetAsync(peaks, 0, PLACES * sizeof(float)));
            if (repaired)
                find_peaks<false><<<2048, 256>>>(events, peaks);
            else
                find_peaks<true><<<2048, 256>>>(events, peaks);
        }
        CHECK(cudaGetLastError());
        std::vector<float> all(PLACES);
        CHECK(cudaMemcpy(all.data(), peaks, all.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : all) sum += value;
        return sum / all.size();
    });
}
