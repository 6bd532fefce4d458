// Finds which islands of an archipelago ferries join to a group: each takes the smallest name among those it can reach.
#include "common.h"

constexpr int ISLANDS = 1 << 18, THREADS = 256, SHORT_WAYS = 2;

struct Ferries {
    std::vector<int> from, to;

    // Chains of islands, and some ways along them that leave islands out.
    Ferries(int length) {
        for (int k = 0; k < ISLANDS; ++k) {
            if ((k + 1) % length) add(k, k + 1);
            for (int way = 1; way <= SHORT_WAYS; ++way) {
                unsigned key = (unsigned(k) * 7 + way) * 2654435761u;
                int ahead = k + int(key >> 20) % 40;
                if (ahead / length == k / length) add(k, ahead);
            }
        }
    }

    void add(int a, int b) {
        from.push_back(a);
        to.push_back(b);
    }
};

__global__ void start(int *names) {
    int k = blockIdx.x * THREADS + threadIdx.x;
    if (k < ISLANDS) names[k] = int(unsigned(k) * 40503u & (ISLANDS - 1));
}

// Each way gives the smaller name of its two ends to both.
__global__ void spread(const int *from, const int *to, int ways, int *names, int *changed) {
    int k = blockIdx.x * THREADS + threadIdx.x;
    if (k >= ways) return;
    int a = from[k], b = to[k], one = names[a], other = names[b];
    if (one == other) return;
    if (one < other)
        atomicMin(&names[b], one);
    else
        atomicMin(&names[a], other);
    *changed = 1;
}

// Spreads names until nothing changes, which is asked after every `rounds` rounds.
struct Groups {
    int *from, *to, *names, *changed, ways;

    explicit Groups(const Ferries &ferries) : ways(int(ferries.from.size())) {
        CHECK(cudaMalloc(&from, ways * sizeof(int)));
        CHECK(cudaMalloc(&to, ways * sizeof(int)));
        CHECK(cudaMalloc(&names, ISLANDS * sizeof(int)));
        CHECK(cudaMalloc(&changed, sizeof(int)));
        CHECK(cudaMemcpy(from, ferries.from.data(), ways * sizeof(int), cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(to, ferries.to.data(), ways * sizeof(int), cudaMemcpyHostToDevice));
    }

    void find(int rounds) {
        start<<<ISLANDS / THREADS, THREADS>>>(names);
        int again = 1;
        while (again) {
            CHECK(cudaMemset(changed, 0, sizeof(int)));
            for (int round = 0; round < rounds; ++round)
                spread<<<(ways + THREADS - 1) / THREADS, THREADS>>>(from, to, ways, names, changed);
            CHECK(cudaMemcpy(&again, changed, sizeof(int), cudaMemcpyDeviceToHost));
        }
    }
};

int main(int argc, char **argv) {
    turn();
    Groups groups(Ferries(4096));
    return measure("island_groups", argc, argv, 400, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) groups.find(repaired ? 16 : 1);
        CHECK(cudaGetLastError());
        std::vector<int> found(ISLANDS);
        CHECK(cudaMemcpy(found.data(), groups.names, ISLANDS * sizeof(int), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (int name : found) sum += name;
        return sum / ISLANDS;
    });
}
