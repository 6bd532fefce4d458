// Values collections of stamps from a catalogue: takes the price of each stamp, and mends it by how well it is kept.
#include "common.h"

constexpr int STAMPS = 1 << 22, CATALOGUE = 1 << 20, THREADS = 256;

__global__ void gather(const float *catalogue, const int *numbers, float *prices, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) prices[i] = catalogue[numbers[i]];
}

__global__ void mend(const unsigned char *grades, float *prices, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) prices[i] *= 1.0f - 0.1f * grades[i];
}

__global__ void set_up(float *catalogue, int *numbers, unsigned char *grades) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned h = i * 2654435761u;
    h = (h ^ h >> 15) * 2246822519u;
    numbers[i] = h % CATALOGUE;
    grades[i] = h >> 28 & 7;
    if (i < CATALOGUE) catalogue[i] = (h >> 12 & 4095) * 0.25f;
}

int main(int argc, char **argv) {
    turn();
    float *catalogue, *prices;
    int *numbers;
    unsigned char *grades;
    CHECK(cudaMalloc(&catalogue, CATALOGUE * sizeof(float)));
    CHECK(cudaMalloc(&prices, STAMPS * sizeof(float)));
    CHECK(cudaMalloc(&numbers, STAMPS * sizeof(int)));
    CHECK(cudaMalloc(&grades, STAMPS));
    set_up<<<STAMPS / THREADS, THREADS>>>(catalogue, numbers, grades);
    CHECK(cudaDeviceSynchronize());
    return measure("stamp_catalogue", argc, argv, 400, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                gather<<<STAMPS / THREADS, THREADS>>>(catalogue, numbers, prices, STAMPS);
            else
                gather<<<dim3(STAMPS, 1, 1), dim3(1, 1, 1)>>>(catalogue, numbers, prices, STAMPS);
            mend<<<STAMPS / THREADS, THREADS>>>(grades, prices, STAMPS);
        }
        CHECK(cudaGetLastError());
        std::vector<float> some(STAMPS);
        CHECK(cudaMemcpy(some.data(), prices, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float price : some) sum += price;
        return sum / STAMPS;
    });
}
