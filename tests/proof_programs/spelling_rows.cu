// Looks for likely spellings: how many letters differ between each word that was typed and the words of a dictionary.
#include "common.h"

constexpr int LETTERS = 32, TYPED = 1 << 15, KNOWN = 256, THREADS = 64;

// A row of the table of distances for each thread lies in shared memory: thread after thread, or letter after letter.
template <bool BY_LETTER>
__global__ void distances(const unsigned char *typed, const unsigned char *known, int *best) {
    __shared__ int rows[THREADS * LETTERS];
    int word = blockIdx.x * THREADS + threadIdx.x, least = LETTERS;
    auto place = [](int k) { return BY_LETTER ? k * THREADS + int(threadIdx.x) : int(threadIdx.x) * LETTERS + k; };
    for (int w = blockIdx.y; w < KNOWN; w += gridDim.y) {
        for (int k = 0; k < LETTERS; ++k) rows[place(k)] = k + 1;
        int last = 0;
        for (int i = 0; i < LETTERS; ++i) {
            unsigned char letter = typed[i * TYPED + word];
            int corner = i, before = i + 1;
            for (int k = 0; k < LETTERS; ++k) {
                int above = rows[place(k)];
                int now = min(min(above, before) + 1, corner + (known[w * LETTERS + k] != letter));
                rows[place(k)] = now;
                corner = above;
                before = now;
            }
            last = before;
        }
        least = min(least, last);
    }
    atomicMin(&best[word], least);
}

__global__ void fill(unsigned char *letters, int count, unsigned seed) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned key = (i + seed) * 2654435761u;
    if (i < count) letters[i] = 'a' + (key ^ key >> 13) * 2246822519u % 1000003u % 5;
}

__global__ void start(int *best) { best[blockIdx.x * blockDim.x + threadIdx.x] = LETTERS; }

int main(int argc, char **argv) {
    turn();
    unsigned char *typed, *known;
    int *best;
    CHECK(cudaMalloc(&typed, TYPED * LETTERS));
    CHECK(cudaMalloc(&known, KNOWN * LETTERS));
    CHECK(cudaMalloc(&best, TYPED * sizeof(int)));
    fill<<<TYPED * LETTERS / 256, 256>>>(typed, TYPED * LETTERS, 1);
    fill<<<KNOWN * LETTERS / 256, 256>>>(known, KNOWN * LETTERS, 77);
    CHECK(cudaDeviceSynchronize());
    return measure("spelling_rows", argc, argv, 16, [&](bool repaired, int steps) {
        dim3 grid(TYPED / THREADS, 4);
        for (int step = 0; step < steps; ++step) {
            start<<<TYPED / 256, 256>>>(best);
            if (repaired)
                distances<true><<<grid, THREADS>>>(typed, known, best);
            else
                distances<false><<<grid, THREADS>>>(typed, known, best);
        }
        CHECK(cudaGetLastError());
        std::vector<int> all(TYPED);
        CHECK(cudaMemcpy(all.data(), best, TYPED * sizeof(int), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (int value : all) sum += value;
        return sum / TYPED;
    });
}
