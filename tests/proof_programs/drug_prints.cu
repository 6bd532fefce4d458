// Compares drugs that are known with millions of molecules, by prints of 1024 bits that tell what each is made of.
#include "common.h"

constexpr int MOLECULES = 1 << 22, WORDS = 32, DRUGS = 16, THREADS = 256;

__constant__ unsigned drugs[WORDS][DRUGS];

// Counts the bits of a word that are set: each byte of it by a table.
struct ByTable {
    const unsigned char *table;

    __device__ int operator()(unsigned word) const {
        return table[word & 255] + table[word >> 8 & 255] + table[word >> 16 & 255] + table[word >> 24];
    }
};

struct ByInstruction {
    __device__ int operator()(unsigned word) const { return __popc(word); }
};

// Finds the drug that is most like a molecule; words of all molecules at one place lie side by side.
template <class Count>
__device__ void compare(Count count, const unsigned *prints, const int *sizes, const int *drug_sizes, float *alike) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int shared[DRUGS] = {};
    for (int k = 0; k < WORDS; ++k) {
        unsigned word = prints[size_t(k) * MOLECULES + i];
#pragma unroll
        for (int drug = 0; drug < DRUGS; ++drug) shared[drug] += count(word & drugs[k][drug]);
    }
    float best = 0;
#pragma unroll
    for (int drug = 0; drug < DRUGS; ++drug)
        best = fmaxf(best, __fdividef(shared[drug], sizes[i] + drug_sizes[drug] - shared[drug]));
    alike[i] = best;
}

__global__ void by_table(const unsigned *prints, const int *sizes, const int *drug_sizes, float *alike) {
    __shared__ unsigned char table[256];
    int byte = threadIdx.x, bits = 0;
    for (int k = 0; k < 8; ++k) bits += byte >> k & 1;
    table[byte] = static_cast<unsigned char>(bits);
    __syncthreads();
    compare(ByTable{table}, prints, sizes, drug_sizes, alike);
}

__global__ void by_instruction(const unsigned *prints, const int *sizes, const int *drug_sizes, float *alike) {
    compare(ByInstruction{}, prints, sizes, drug_sizes, alike);
}

__host__ __device__ unsigned print_word(unsigned i, unsigned k) {
    unsigned h = (i * 2654435761u) ^ ((k + 1) * 2246822519u);
    h = (h ^ (h >> 15)) * 3266489917u;
    h ^= h >> 13;
    return h & (h << 7 | h >> 25);
}

__global__ void print(unsigned *prints, int *sizes) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, size = 0;
    for (int k = 0; k < WORDS; ++k) {
        unsigned word = print_word(i, k);
        prints[size_t(k) * MOLECULES + i] = word;
        size += __popc(word);
    }
    sizes[i] = size;
}

int main(int argc, char **argv) {
    turn();
    unsigned *prints, known[WORDS][DRUGS];
    int *sizes, *drug_sizes, many[DRUGS] = {};
    float *alike;
    CHECK(cudaMalloc(&prints, size_t(WORDS) * MOLECULES * sizeof(unsigned)));
    CHECK(cudaMalloc(&sizes, MOLECULES * sizeof(int)));
    CHECK(cudaMalloc(&drug_sizes, DRUGS * sizeof(int)));
    CHECK(cudaMalloc(&alike, MOLECULES * sizeof(float)));
    for (int k = 0; k < WORDS; ++k)
        for (int drug = 0; drug < DRUGS; ++drug) {
            known[k][drug] = print_word(drug * 7919 + 5000000, k);
            many[drug] += __builtin_popcount(known[k][drug]);
        }
    CHECK(cudaMemcpyToSymbol(drugs, known, sizeof(known)));
    CHECK(cudaMemcpy(drug_sizes, many, sizeof(many), cudaMemcpyHostToDevice));
    print<<<MOLECULES / THREADS, THREADS>>>(prints, sizes);
    CHECK(cudaDeviceSynchronize());
    return measure("drug_prints", argc, argv, 250, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step)
            if (repaired)
                by_instruction<<<MOLECULES / THREADS, THREADS>>>(prints, sizes, drug_sizes, alike);
            else
                by_table<<<MOLECULES / THREADS, THREADS>>>(prints, sizes, drug_sizes, alike);
        CHECK(cudaGetLastError());
        std::vector<float> some(1 << 18);
        CHECK(cudaMemcpy(some.data(), alike, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum / some.size();
    });
}
