// Smooths a field of numbers on a lattice in four dimensions, whose sides meet: each site with its eight neighbours.
#include "common.h"

constexpr int THREADS = 256;

struct Lattice {
    long long x, y, z, t;
    __host__ __device__ long long sites() const { return x * y * z * t; }
};

// A thread for a site, whose neighbours are found from the sides of the lattice.
__global__ void smooth(const float *before, float *after, Lattice side, float share) {
    long long site = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (site >= side.sites()) return;
    long long x = site % side.x, y = site / side.x % side.y;
    long long z = site / (side.x * side.y) % side.z, t = site / (side.x * side.y * side.z);
    auto at = [&](long long a, long long b, long long c, long long d) {
        return before[((d * side.z + c) * side.y + b) * side.x + a];
    };
    float sum = at((x + 1) % side.x, y, z, t) + at((x + side.x - 1) % side.x, y, z, t);
    sum += at(x, (y + 1) % side.y, z, t) + at(x, (y + side.y - 1) % side.y, z, t);
    sum += at(x, y, (z + 1) % side.z, t) + at(x, y, (z + side.z - 1) % side.z, t);
    sum += at(x, y, z, (t + 1) % side.t) + at(x, y, z, (t + side.t - 1) % side.t);
    after[site] = (1 - share) * before[site] + share * 0.125f * sum;
}

// The same in a grid of the lattice's own shape; some rows of a plane for a block.
__global__ void smooth_rows(const float *before, float *after, Lattice side, float share) {
    int x = threadIdx.x, y = blockIdx.x * blockDim.y + threadIdx.y, z = blockIdx.y, t = blockIdx.z;
    int wide = int(side.x), high = int(side.y), deep = int(side.z), late = int(side.t);
    auto at = [&](int a, int b, int c, int d) { return before[((d * deep + c) * high + b) * wide + a]; };
    float sum = at(x + 1 == wide ? 0 : x + 1, y, z, t) + at(x == 0 ? wide - 1 : x - 1, y, z, t);
    sum += at(x, y + 1 == high ? 0 : y + 1, z, t) + at(x, y == 0 ? high - 1 : y - 1, z, t);
    sum += at(x, y, z + 1 == deep ? 0 : z + 1, t) + at(x, y, z == 0 ? deep - 1 : z - 1, t);
    sum += at(x, y, z, t + 1 == late ? 0 : t + 1) + at(x, y, z, t == 0 ? late - 1 : t - 1);
    int site = ((t * deep + z) * high + y) * wide + x;
    after[site] = (1 - share) * before[site] + share * 0.125f * sum;
}

__global__ void fill(float *field, long long sites) {
    long long site = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (site < sites) field[site] = (unsigned(site) * 2654435761u >> 8) * (1.0f / (1 << 24));
}

int main(int argc, char **argv) {
    turn();
    Lattice side{96, 72, 72, 96};
    size_t sites = side.sites();
    float *now, *next;
    CHECK(cudaMalloc(&now, sites * sizeof(float)));
    CHECK(cudaMalloc(&next, sites * sizeof(float)));
    unsigned blocks = unsigned((sites + THREADS - 1) / THREADS);
    dim3 row(unsigned(side.x), 4), rows(unsigned(side.y / 4), unsigned(side.z), unsigned(side.t));
    return measure("lattice_links", argc, argv, 400, [&](bool repaired, int steps) {
        fill<<<blocks, THREADS>>>(now, sites);
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                smooth_rows<<<rows, row>>>(now, next, side, 0.4f);
            else
                smooth<<<blocks, THREADS>>>(now, next, side, 0.4f);
            std::swap(now, next);
        }
        CHECK(cudaGetLastError());
        std::vector<float> some(1 << 16);
        CHECK(cudaMemcpy(some.data(), now, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum / some.size();
    });
}
