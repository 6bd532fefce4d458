// Brings the scores of all words for the next word of some answers to chances: the logarithm of the sum of their powers.
#include "common.h"

constexpr int ANSWERS = 96, WORDS = 151936, LANES = 32;

__device__ float largest_of(float value, float *shared) {
    for (int offset = LANES / 2; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    if (threadIdx.x % LANES == 0) shared[threadIdx.x / LANES] = value;
    __syncthreads();
    for (int warp = 0; warp < blockDim.x / LANES; ++warp) value = fmaxf(value, shared[warp]);
    __syncthreads();
    return value;
}

__device__ float sum_of(float value, float *shared) {
    for (int offset = LANES / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    if (threadIdx.x % LANES == 0) shared[threadIdx.x / LANES] = value;
    __syncthreads();
    value = 0;
    for (int warp = 0; warp < blockDim.x / LANES; ++warp) value += shared[warp];
    __syncthreads();
    return value;
}

// One block for an answer.
__global__ void log_chances(const float *scores, float *logs) {
    __shared__ float shared[LANES];
    const float *row = scores + size_t(blockIdx.x) * WORDS;
    float largest = -1e30f;
    for (int word = threadIdx.x; word < WORDS; word += blockDim.x) largest = fmaxf(largest, row[word]);
    largest = largest_of(largest, shared);
    float sum = 0;
    for (int word = threadIdx.x; word < WORDS; word += blockDim.x) sum += __expf(row[word] - largest);
    sum = sum_of(sum, shared);
    if (threadIdx.x == 0) logs[blockIdx.x] = largest + logf(sum);
}

__global__ void guess(float *scores) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    unsigned h = unsigned(i) * 2654435761u;
    h = (h ^ (h >> 13)) * 2246822519u;
    scores[i] = float(h >> 8) / (1 << 24) * 12.0f - 6.0f;
}

int main(int argc, char **argv) {
    turn();
    float *scores, *logs;
    CHECK(cudaMalloc(&scores, size_t(ANSWERS) * WORDS * sizeof(float)));
    CHECK(cudaMalloc(&logs, ANSWERS * sizeof(float)));
    guess<<<size_t(ANSWERS) * WORDS / 256, 256>>>(scores);
    CHECK(cudaDeviceSynchronize());
    return measure("answer_scores", argc, argv, 600, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step)
            if (repaired)
                log_chances<<<ANSWERS, 1024>>>(scores, logs);
            else
                log_chances<<<ANSWERS, 32>>>(scores, logs);
        CHECK(cudaGetLastError());
        std::vector<float> some(ANSWERS);
        CHECK(cudaMemcpy(some.data(), logs, ANSWERS * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum / ANSWERS;
    });
}
