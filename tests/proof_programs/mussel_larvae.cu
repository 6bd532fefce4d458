// Lets larvae of mussels grow day by day: the warmer the water of one, the more small steps its day is divided into.
#include "common.h"

constexpr int LARVAE = 1 << 20, THREADS = 128;

struct alignas(16) Larva {
    float size, fat, hunger, warmth;
};

__global__ void grow(Larva *larvae, const int *counts, const int *order, float food) {
    int at = order[blockIdx.x * THREADS + threadIdx.x];
    Larva larva = larvae[at];
    int count = counts[at];
    float span = 1.0f / count;
    for (int k = 0; k < count; ++k) {
        float eaten = food * larva.hunger * __expf(-larva.fat);
        float burnt = larva.warmth * larva.fat * larva.size;
        larva.size += span * (0.3f * burnt - 0.1f * larva.size * larva.size);
        larva.fat += span * (eaten - burnt);
        larva.hunger += span * (burnt - eaten * larva.hunger);
    }
    larvae[at] = larva;
}

__global__ void hatch(Larva *larvae, const int *counts) {
    int at = blockIdx.x * THREADS + threadIdx.x;
    larvae[at] = {0.2f + 0.001f * (at % 401), 0.5f, 0.5f + 0.001f * (at % 307), 0.5f + 0.001f * counts[at]};
}

int *on_gpu(const std::vector<int> &numbers) {
    int *there;
    CHECK(cudaMalloc(&there, numbers.size() * sizeof(int)));
    CHECK(cudaMemcpy(there, numbers.data(), numbers.size() * sizeof(int), cudaMemcpyHostToDevice));
    return there;
}

int main(int argc, char **argv) {
    turn();
    std::vector<int> counts(LARVAE), hatched(LARVAE);
    unsigned dice = 12345;
    for (int i = 0; i < LARVAE; ++i) {
        dice = dice * 1664525u + 1013904223u;
        counts[i] = 16 + int(24.0f / ((dice >> 8) / 16777216.0f + 0.03f));
        hatched[i] = i;
    }
    std::vector<int> sorted = hatched;
    std::stable_sort(sorted.begin(), sorted.end(), [&](int a, int b) { return counts[a] > counts[b]; });
    int *needed = on_gpu(counts), *as_hatched = on_gpu(hatched), *by_count = on_gpu(sorted);
    Larva *larvae;
    CHECK(cudaMalloc(&larvae, LARVAE * sizeof(Larva)));
    return measure("mussel_larvae", argc, argv, 2000, [&](bool repaired, int steps) {
        hatch<<<LARVAE / THREADS, THREADS>>>(larvae, needed);
        const int *order = repaired ? by_count : as_hatched;
        for (int day = 0; day < steps; ++day)
            grow<<<LARVAE / THREADS, THREADS>>>(larvae, needed, order, 0.8f + 0.1f * (day % 5));
        CHECK(cudaGetLastError());
        std::vector<Larva> found(1 << 16);
        CHECK(cudaMemcpy(found.data(), larvae, found.size() * sizeof(Larva), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (const Larva &larva : found) sum += larva.size;
        return sum / found.size();
    });
}
