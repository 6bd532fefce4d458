// Follows water in the soil of a country, square by square, in layers below each other, through a season of rain.
#include "common.h"

constexpr int LAYERS = 32, ROWS = 1024, COLS = 2048;
constexpr size_t SIZE = size_t(LAYERS) * ROWS * COLS;

struct Place {
    int layer, row, col;
};

// Squares of a row lie side by side in memory, then rows, then layers.
__device__ size_t at(Place p) { return (size_t(p.layer) * ROWS + p.row) * COLS + p.col; }

// Which place a thread has: its first number is a layer, or a square of a row.
template <bool ALONG_ROWS>
__device__ Place place_of() {
    int fast = blockIdx.x * blockDim.x + threadIdx.x, slow = blockIdx.z * blockDim.z + threadIdx.z;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    return ALONG_ROWS ? Place{slow, row, fast} : Place{fast, row, slow};
}

// Water that sinks: of what is above, and of what is here.
template <bool ALONG_ROWS>
__global__ void sink(const float *before, const float *sand, float *after, float rain) {
    Place p = place_of<ALONG_ROWS>();
    size_t here = at(p);
    float water = before[here], open = sand[here];
    float came = rain;
    if (p.layer > 0) {
        Place above{p.layer - 1, p.row, p.col};
        float wet = before[at(above)];
        came = 0.2f * wet * wet * sand[at(above)];
    }
    float gone = 0.2f * water * water * open;
    after[here] = fminf(1.0f, water + came - gone);
}

__global__ void begin(float *water, float *sand) {
    size_t i = size_t(blockIdx.x) * 256 + threadIdx.x;
    unsigned key = unsigned(i) * 2654435761u;
    key = (key ^ key >> 15) * 2246822519u;
    water[i] = (key >> 8) * (0.5f / (1 << 24));
    sand[i] = 0.2f + (key & 255) / 512.0f;
}

struct Country {
    float *now, *next, *sand;

    Country() {
        for (float **numbers : {&now, &next, &sand}) CHECK(cudaMalloc(numbers, SIZE * sizeof(float)));
    }

    double run(bool along_rows, int steps) {
        begin<<<SIZE / 256, 256>>>(now, sand);
        for (int hour = 0; hour < steps; ++hour) {
            float rain = hour % 12 < 3 ? 0.02f : 0.0f;
            if (along_rows)
                sink<true><<<dim3(COLS / 32, ROWS / 8, LAYERS), dim3(32, 8)>>>(now, sand, next, rain);
            else
                sink<false><<<dim3(LAYERS / 32, ROWS / 8, COLS), dim3(32, 8)>>>(now, sand, next, rain);
            std::swap(now, next);
        }
        CHECK(cudaGetLastError());
        std::vector<float> found(1 << 20);
        CHECK(cudaMemcpy(found.data(), now, found.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float water : found) sum += water;
        return sum / found.size();
    }
};

int main(int argc, char **argv) {
    turn();
    Country country;
    return measure("soil_layers", argc, argv, 300,
                   [&](bool repaired, int steps) { return country.run(repaired, steps); });
}
