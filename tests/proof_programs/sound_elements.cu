// Follows sound in a hall that is cut into square elements of 32 by 32 points each: slopes are products with one matrix.
#include "common.h"

constexpr int N = 32, POINTS = N * N, ELEMENTS = 12000;
constexpr size_t SIZE = size_t(ELEMENTS) * POINTS;

// A block has an element, a thread a point of it. PITCH is how far apart rows lie in shared memory.
template <int PITCH>
__global__ void spread(const float *slopes, const float *before, const float *speed, float *after, float step) {
    __shared__ float matrix[N * PITCH], here[N * PITCH], flow[N * PITCH];
    int i = threadIdx.x, j = threadIdx.y;
    size_t point = size_t(blockIdx.x) * POINTS + j * N + i;
    matrix[j * PITCH + i] = slopes[j * N + i];
    float value = before[point], fast = speed[point];
    here[j * PITCH + i] = value;
    __syncthreads();
    float along = 0, across = 0;
#pragma unroll 8
    for (int k = 0; k < N; ++k) {
        along += matrix[i * PITCH + k] * here[j * PITCH + k];
        across += matrix[j * PITCH + k] * here[k * PITCH + i];
    }
    flow[j * PITCH + i] = fast * (along + across);
    __syncthreads();
    float change = 0;
#pragma unroll 8
    for (int k = 0; k < N; ++k) change += matrix[i * PITCH + k] * flow[j * PITCH + k];
    after[point] = 0.99f * value - step * change;
}

__global__ void begin(float *sound, float *speed) {
    size_t point = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    unsigned key = unsigned(point) * 2654435761u;
    key = (key ^ key >> 15) * 2246822519u;
    sound[point] = (key >> 8) * (2.0f / (1 << 24)) - 1;
    speed[point] = 0.5f + (key & 255) / 512.0f;
}

struct Hall {
    float *now, *next, *speed, *slopes;

    Hall() {
        for (float **numbers : {&now, &next, &speed}) CHECK(cudaMalloc(numbers, SIZE * sizeof(float)));
        CHECK(cudaMalloc(&slopes, POINTS * sizeof(float)));
        std::vector<float> rows(POINTS);
        for (int j = 0; j < N; ++j)
            for (int i = 0; i < N; ++i) rows[j * N + i] = i == j ? 0.0f : ((i + j) % 2 ? -0.02f : 0.02f) / (i - j);
        CHECK(cudaMemcpy(slopes, rows.data(), POINTS * sizeof(float), cudaMemcpyHostToDevice));
    }

    double run(bool padded, int steps) {
        dim3 threads(N, N);
        begin<<<SIZE / 256, 256>>>(now, speed);
        for (int step = 0; step < steps; ++step) {
            if (padded)
                spread<N + 1><<<ELEMENTS, threads>>>(slopes, now, speed, next, 0.1f);
            else
                spread<N><<<ELEMENTS, threads>>>(slopes, now, speed, next, 0.1f);
            std::swap(now, next);
        }
        CHECK(cudaGetLastError());
        std::vector<float> found(1 << 16);
        CHECK(cudaMemcpy(found.data(), now, found.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : found) sum += std::abs(value);
        return sum / found.size();
    }
};

int main(int argc, char **argv) {
    turn();
    Hall hall;
    return measure("sound_elements", argc, argv, 400,
                   [&](bool repaired, int steps) { return hall.run(repaired, steps); });
}
