// Finds how many crossings away each place of a road map is from the centre: a grid of roads, many of them closed.
#include "common.h"

constexpr int SIDE = 4096, PLACES = SIDE * SIDE, LEVELS = 3000, FAR = 1 << 30;

__device__ bool open_road(int from, int to) {
    unsigned key = unsigned(min(from, to)) * 2654435761u + (abs(from - to) == 1 ? 0x9e3779b9u : 0u);
    key = (key ^ key >> 15) * 2246822519u;
    return (key ^ key >> 13) % 16 < 11;
}

__device__ int next_place(int from, int way) {
    int x = from % SIDE + (way == 0) - (way == 1), y = from / SIDE + (way == 2) - (way == 3);
    return x < 0 || y < 0 || x >= SIDE || y >= SIDE ? -1 : y * SIDE + x;
}

// Each place looks whether it was reached by the level before.
__global__ void look_everywhere(int *distance, int level) {
    int from = blockIdx.x * blockDim.x + threadIdx.x;
    if (distance[from] != level) return;
    for (int way = 0; way < 4; ++way) {
        int to = next_place(from, way);
        if (to >= 0 && distance[to] == FAR && open_road(from, to)) distance[to] = level + 1;
    }
}

// Only places in the list of those that were reached by the level before.
__global__ void look_from_list(int *distance, int level, const int *list, int *next, int *counts) {
    int count = counts[level];
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x)
        for (int way = 0; way < 4; ++way) {
            int from = list[k], to = next_place(from, way);
            if (to < 0 || distance[to] != FAR || !open_road(from, to)) continue;
            if (atomicCAS(&distance[to], FAR, level + 1) == FAR) next[atomicAdd(&counts[level + 1], 1)] = to;
        }
}

__global__ void start(int *distance, int *list, int *counts) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, centre = PLACES / 2 + SIDE / 2;
    distance[i] = i == centre ? 0 : FAR;
    if (i == 0) list[0] = centre;
    if (i <= LEVELS) counts[i] = i == 0;
}

int main(int argc, char **argv) {
    turn();
    int *distance, *lists[2], *counts;
    CHECK(cudaMalloc(&distance, PLACES * sizeof(int)));
    for (int *&list : lists) CHECK(cudaMalloc(&list, PLACES * sizeof(int)));
    CHECK(cudaMalloc(&counts, (LEVELS + 1) * sizeof(int)));
    return measure("road_levels", argc, argv, 6, [&](bool repaired, int searches) {
        for (int search = 0; search < searches; ++search) {
            start<<<PLACES / 256, 256>>>(distance, lists[0], counts);
            for (int level = 0; level < LEVELS; ++level)
                if (repaired)
                    look_from_list<<<64, 128>>>(distance, level, lists[level % 2], lists[(level + 1) % 2], counts);
                else
                    look_everywhere<<<PLACES / 256, 256>>>(distance, level);
        }
        CHECK(cudaGetLastError());
        std::vector<int> all(PLACES);
        CHECK(cudaMemcpy(all.data(), distance, PLACES * sizeof(int), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (int value : all) sum += value < FAR ? value : 0;
        return sum / PLACES;
    });
}
