// Makes shares of scores (softmax) for many short rows of 128 scores each.
#include "common.h"

constexpr int ROWS = 1 << 21, WIDTH = 128;

struct Larger {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Sum {
    __device__ float operator()(float a, float b) const { return a + b; }
};

// What all threads of a block have, put together by a tree in shared memory.
template <class Join>
__device__ float join_block(float mine, Join join) {
    __shared__ float all[WIDTH];
    int lane = threadIdx.x;
    all[lane] = mine;
    for (int half = WIDTH / 2; half > 0; half /= 2) {
        __syncthreads();  // before each level of the tree
        if (lane < half) all[lane] = join(all[lane], all[lane + half]);
    }
    __syncthreads();
    float joined = all[0];
    __syncthreads();
    return joined;
}

template <class Join>
__device__ float join_warp(float mine, Join join) {
    for (int away = 16; away > 0; away /= 2) mine = join(mine, __shfl_xor_sync(~0u, mine, away));
    return mine;
}

// A block has a row, each thread a score.
__global__ void shares_by_block(const float *scores, float *shares, float heat) {
    size_t at = size_t(blockIdx.x) * WIDTH + threadIdx.x;
    float score = scores[at] * heat;
    float part = __expf(score - join_block(score, Larger()));
    shares[at] = part / join_block(part, Sum());
}

// A warp has a row, each thread four scores.
__global__ void shares_by_warp(const float *scores, float *shares, float heat) {
    size_t at = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32 * WIDTH + threadIdx.x % 32;
    float score[4], largest = -1e30f, total = 0;
    for (int k = 0; k < 4; ++k) largest = fmaxf(largest, score[k] = scores[at + 32 * k] * heat);
    largest = join_warp(largest, Larger());
    for (int k = 0; k < 4; ++k) total += score[k] = __expf(score[k] - largest);
    total = join_warp(total, Sum());
    for (int k = 0; k < 4; ++k) shares[at + 32 * k] = score[k] / total;
}

__global__ void fill(float *scores) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    scores[i] = float((unsigned(i) * 2654435761u >> 16) & 1023) / 128.0f;
}

int main(int argc, char **argv) {
    turn();
    size_t numbers = size_t(ROWS) * WIDTH;
    float *scores, *shares;
    CHECK(cudaMalloc(&scores, numbers * sizeof(float)));
    CHECK(cudaMalloc(&shares, numbers * sizeof(float)));
    fill<<<numbers / 256, 256>>>(scores);
    CHECK(cudaDeviceSynchronize());
    return measure("word_shares", argc, argv, 700, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            float heat = 0.5f + 0.1f * (step % 5);
            if (repaired)
                shares_by_warp<<<ROWS / 4, 128>>>(scores, shares, heat);
            else
                shares_by_block<<<ROWS, WIDTH>>>(scores, shares, heat);
        }
        CHECK(cudaGetLastError());
        std::vector<float> some(1 << 16);
        CHECK(cudaMemcpy(some.data(), shares, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += double(value) * value;
        return sum;
    });
}
