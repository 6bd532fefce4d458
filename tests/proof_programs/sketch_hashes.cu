// Makes sketches of texts (MinHash): the least of each of 64 hashes over all words of a text, modulo a prime.
#include "common.h"

typedef unsigned long long u64;
constexpr u64 PRIME = (1ull << 31) - 1;
constexpr int TEXTS = 1 << 14, WORDS = 512, HASHES = 64;

// The remainder by a number that is known when the program runs.
struct AnyPrime {
    u64 prime;
    __device__ u64 operator()(u64 x) const { return x % prime; }
};

// The same for 2^31 - 1: what is above 31 bits is added to what is below.
struct Mersenne {
    __device__ u64 operator()(u64 x) const {
        x = (x & PRIME) + (x >> 31);
        x = (x & PRIME) + (x >> 31);
        return x >= PRIME ? x - PRIME : x;
    }
};

// A block has a text; each thread has a hash and a quarter of the words.
template <class Remainder>
__global__ void sketch(const unsigned *words, const uint2 *hashes, unsigned *least, Remainder remainder) {
    __shared__ unsigned text[WORDS];
    __shared__ unsigned found[4][HASHES];
    for (int i = threadIdx.x; i < WORDS; i += blockDim.x) text[i] = words[size_t(blockIdx.x) * WORDS + i];
    __syncthreads();
    int hash = threadIdx.x % HASHES, part = threadIdx.x / HASHES;
    u64 factor = hashes[hash].x, shift = hashes[hash].y;
    unsigned smallest = ~0u;
    for (int i = part * (WORDS / 4); i < (part + 1) * (WORDS / 4); ++i) {
        u64 value = remainder(factor * text[i] + shift);
        smallest = min(smallest, unsigned(value));
    }
    found[part][hash] = smallest;
    __syncthreads();
    if (part == 0)
        least[blockIdx.x * HASHES + hash] = min(min(found[0][hash], found[1][hash]), min(found[2][hash], found[3][hash]));
}

__global__ void fill(unsigned *words) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    words[i] = (unsigned(i) * 2654435761u ^ unsigned(i) >> 7) % 2147483647u;
}

int main(int argc, char **argv) {
    turn();
    unsigned *words, *least;
    uint2 *hashes;
    CHECK(cudaMalloc(&words, size_t(TEXTS) * WORDS * sizeof(unsigned)));
    CHECK(cudaMalloc(&least, TEXTS * HASHES * sizeof(unsigned)));
    CHECK(cudaMalloc(&hashes, HASHES * sizeof(uint2)));
    std::vector<uint2> drawn(HASHES);
    for (int k = 0; k < HASHES; ++k) drawn[k] = {1000003u * (k + 7) % 2147483647u, 777767777u * (k + 1) % 2147483647u};
    CHECK(cudaMemcpy(hashes, drawn.data(), HASHES * sizeof(uint2), cudaMemcpyHostToDevice));
    fill<<<TEXTS * WORDS / 256, 256>>>(words);
    CHECK(cudaDeviceSynchronize());
    u64 prime = PRIME;
    return measure("sketch_hashes", argc, argv, 500, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step)
            if (repaired)
                sketch<<<TEXTS, 4 * HASHES>>>(words, hashes, least, Mersenne{});
            else
                sketch<<<TEXTS, 4 * HASHES>>>(words, hashes, least, AnyPrime{prime});
        CHECK(cudaGetLastError());
        std::vector<unsigned> some(1 << 16);
        CHECK(cudaMemcpy(some.data(), least, some.size() * sizeof(unsigned), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (unsigned value : some) sum += value;
        return sum / some.size();
    });
}
