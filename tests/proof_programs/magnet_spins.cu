// Simulates a magnet: spins on a square of atoms, whose black and white cells are turned in turns (Metropolis, Ising model).
#include "common.h"

constexpr int SIDE = 8192;
constexpr size_t ATOMS = size_t(SIDE) * SIDE;
constexpr float COLD = 0.42f;

// Four random words from a counter and a key (Philox 4x32, ten rounds).
__device__ uint4 philox(uint4 counter, uint2 key) {
    for (int round = 0; round < 10; ++round) {
        unsigned high0 = __umulhi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
        unsigned high1 = __umulhi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
        counter = make_uint4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
        key.x += 0x9E3779B9u;
        key.y += 0xBB67AE85u;
    }
    return counter;
}

// Turns the spin of an atom, or leaves it, by what its four neighbours do and a random number (the sum of four).
__device__ void visit(signed char *spins, int x, int y, unsigned sweep) {
    size_t row = size_t(y) * SIDE;
    int spin = spins[row + x];
    int around = spins[row + (x + 1) % SIDE] + spins[row + (x + SIDE - 1) % SIDE] +
                 spins[size_t((y + 1) % SIDE) * SIDE + x] + spins[size_t((y + SIDE - 1) % SIDE) * SIDE + x];
    uint4 words = philox(make_uint4(x, y, sweep, 0), make_uint2(17, 4));
    uint4 more = philox(words, make_uint2(sweep, 5));
    float chance = ((words.x ^ more.y) >> 8) * 0x1p-24f;
    if (chance < __expf(-2 * COLD * spin * around)) spins[row + x] = -spin;
}

// A thread for each atom, of which those of the other colour have nothing to do.
__global__ void sweep_all(signed char *spins, int colour, unsigned sweep) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if ((x + y) % 2 == colour)
        visit(spins, x, y, sweep);
}

// A thread for each atom of one colour.
__global__ void sweep_half(signed char *spins, int colour, unsigned sweep) {
    int y = blockIdx.y, x = 2 * (blockIdx.x * blockDim.x + threadIdx.x) + (y + colour) % 2;
    visit(spins, x, y, sweep);
}

__global__ void fill(signed char *spins) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    spins[i] = (unsigned(i) * 2654435761u >> 20) % 5 ? 1 : -1;
}

__global__ void add_up(const signed char *spins, int *total) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    int ups = __syncthreads_count(spins[i] > 0);
    if (threadIdx.x == 0) atomicAdd(total, ups);
}

int main(int argc, char **argv) {
    turn();
    signed char *spins;
    int *total;
    CHECK(cudaMalloc(&spins, ATOMS));
    CHECK(cudaMalloc(&total, sizeof(int)));
    return measure("magnet_spins", argc, argv, 1200, [&](bool repaired, int steps) {
        fill<<<ATOMS / 256, 256>>>(spins);
        for (int step = 0; step < steps; ++step)
            for (int colour = 0; colour < 2; ++colour) {
                if (repaired)
                    sweep_half<<<dim3(SIDE / 512, SIDE), 256>>>(spins, colour, step);
                else
                    sweep_all<<<dim3(SIDE / 256, SIDE), 256>>>(spins, colour, step);
            }
        CHECK(cudaMemset(total, 0, sizeof(int)));
        add_up<<<ATOMS / 256, 256>>>(spins, total);
        CHECK(cudaGetLastError());
        int ups;
        CHECK(cudaMemcpy(&ups, total, sizeof(ups), cudaMemcpyDeviceToHost));
        return double(ups) / ATOMS;
    });
}
