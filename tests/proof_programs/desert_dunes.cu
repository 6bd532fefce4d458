// Lets wind move the sand of a desert: what leaves each place, what slides down slopes, and the heights after an hour.
#include "common.h"

constexpr int SIDE = 2048, THREADS = 256;
constexpr size_t PLACES = size_t(SIDE) * SIDE;

__device__ int wrapped(int row, int col) { return (row & SIDE - 1) * SIDE + (col & SIDE - 1); }

// Sand that the wind lifts: more from heights.
__global__ void lift(const float *sand, float *lifted, float wind) {
    int place = blockIdx.x * THREADS + threadIdx.x, row = place / SIDE, col = place % SIDE;
    float slope = sand[place] - sand[wrapped(row, col - 1)];
    lifted[place] = fmaxf(0.0f, fminf(sand[place], wind * (1 + slope)));
}

// Sand that slides to the lower one of two neighbours.
__global__ void slide(const float *sand, float *slid) {
    int place = blockIdx.x * THREADS + threadIdx.x, row = place / SIDE, col = place % SIDE;
    float down = sand[place] - sand[wrapped(row + 1, col)];
    slid[place] = 0.2f * fmaxf(0.0f, down - 0.5f);
}

__global__ void settle(float *sand, const float *lifted, const float *slid) {
    int place = blockIdx.x * THREADS + threadIdx.x, row = place / SIDE, col = place % SIDE;
    float came = lifted[wrapped(row, col - 4)] + slid[wrapped(row - 1, col)];
    sand[place] += came - lifted[place] - slid[place];
}

__global__ void begin(float *sand) {
    unsigned place = blockIdx.x * THREADS + threadIdx.x, key = place * 2654435761u;
    key = (key ^ key >> 15) * 2246822519u;
    sand[place] = 2 + (key >> 8) * (1.0f / (1 << 24));
}

struct Desert {
    float *sand, *lifted = nullptr, *slid = nullptr;
    bool kept;

    explicit Desert(bool kept) : kept(kept) {
        CHECK(cudaMalloc(&sand, PLACES * sizeof(float)));
        if (kept) take();
    }

    void take() {
        CHECK(cudaMalloc(&lifted, PLACES * sizeof(float)));
        CHECK(cudaMalloc(&slid, PLACES * sizeof(float)));
    }

    void give_back() {
        CHECK(cudaFree(lifted));
        CHECK(cudaFree(slid));
    }

    void hour(float wind) {
        if (!kept) take();
        lift<<<PLACES / THREADS, THREADS>>>(sand, lifted, wind);
        slide<<<PLACES / THREADS, THREADS>>>(sand, slid);
        settle<<<PLACES / THREADS, THREADS>>>(sand, lifted, slid);
        if (!kept) give_back();
    }

    double run(int hours) {
        begin<<<PLACES / THREADS, THREADS>>>(sand);
        for (int k = 0; k < hours; ++k) hour(0.05f + 0.01f * (k % 5));
        CHECK(cudaGetLastError());
        std::vector<float> found(PLACES);
        CHECK(cudaMemcpy(found.data(), sand, PLACES * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float height : found) sum += double(height) * height;
        return sum / PLACES;
    }
};

int main(int argc, char **argv) {
    turn();
    Desert deserts[2] = {Desert(false), Desert(true)};
    return measure("desert_dunes", argc, argv, 1500,
                   [&](bool repaired, int steps) { return deserts[repaired].run(steps); });
}
