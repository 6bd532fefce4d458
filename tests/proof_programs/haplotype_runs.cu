// Looks for selection in genomes: for how many variants before each one do any two haplotypes agree, summed over pairs.
#include "common.h"

constexpr int HAPLOTYPES = 256, PAIRS = HAPLOTYPES * (HAPLOTYPES - 1) / 2, VARIANTS = 16384, THREADS = 128;

__device__ void pair_of(int pair, int &one, int &other) {
    one = int((1.0 + sqrt(1.0 + 8.0 * pair)) * 0.5);
    while (one * (one - 1) / 2 > pair) --one;
    while ((one + 1) * one / 2 <= pair) ++one;
    other = pair - one * (one - 1) / 2;
}

__device__ double of_warp(double value) {
    for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_down_sync(0xffffffffu, value, offset);
    return value;
}

// One thread for a pair; both sums have a number for each variant.
__global__ void runs_of_pairs(const unsigned char *alleles, double *reference, double *alternate) {
    int pair = blockIdx.x * blockDim.x + threadIdx.x;
    if (pair >= PAIRS) return;
    int one, other, length = 0;
    pair_of(pair, one, other);
    for (int v = 0; v < VARIANTS; ++v) {
        int a = alleles[v * HAPLOTYPES + one], b = alleles[v * HAPLOTYPES + other];
        length = a == b ? length + 1 : 0;
        if (a == 0 && b == 0) atomicAdd(&reference[v], double(length));
        if (a == 1 && b == 1) atomicAdd(&alternate[v], double(length));
    }
}

__global__ void runs_of_warps(const unsigned char *alleles, double *reference, double *alternate) {
    int pair = blockIdx.x * blockDim.x + threadIdx.x, one = 0, other = 0, length = 0;
    bool there = pair < PAIRS;
    if (there) pair_of(pair, one, other);
    for (int v = 0; v < VARIANTS; ++v) {
        int a = alleles[v * HAPLOTYPES + one], b = alleles[v * HAPLOTYPES + other];
        length = a == b ? length + 1 : 0;
        double both_reference = of_warp(there && a == 0 && b == 0 ? length : 0);
        double both_alternate = of_warp(there && a == 1 && b == 1 ? length : 0);
        if (threadIdx.x % 32 == 0) {
            atomicAdd(&reference[v], both_reference);
            atomicAdd(&alternate[v], both_alternate);
        }
    }
}

__global__ void set_up(unsigned char *alleles) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned h = i * 2654435761u;
    h = (h ^ h >> 15) * 2246822519u;
    alleles[i] = (h >> 20 & 7) < 3;
}

int main(int argc, char **argv) {
    turn();
    unsigned char *alleles;
    double *sums;
    CHECK(cudaMalloc(&alleles, HAPLOTYPES * VARIANTS));
    CHECK(cudaMalloc(&sums, 2 * VARIANTS * sizeof(double)));
    set_up<<<HAPLOTYPES * VARIANTS / THREADS, THREADS>>>(alleles);
    CHECK(cudaDeviceSynchronize());
    const int blocks = (PAIRS + THREADS - 1) / THREADS;
    return measure("haplotype_runs", argc, argv, 20, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            CHECK(cudaMemsetAsync(sums, 0, 2 * VARIANTS * sizeof(double)));
            if (repaired)
                runs_of_warps<<<blocks, THREADS>>>(alleles, sums, sums + VARIANTS);
            else
                runs_of_pairs<<<blocks, THREADS>>>(alleles, sums, sums + VARIANTS);
        }
        CHECK(cudaGetLastError());
        std::vector<double> some(2 * VARIANTS);
        CHECK(cudaMemcpy(some.data(), sums, some.size() * sizeof(double), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (size_t v = 0; v < some.size(); ++v) sum += some[v] * (1 + v % 3);
        return sum / VARIANTS;
    });
}
