// Lets waves run over a lake, and writes down how high the water stands at some buoys after each moment.
#include "common.h"

constexpr int SIDE = 2048, BUOYS = 256, SUBSTEPS = 12;
constexpr size_t CELLS = size_t(SIDE) * SIDE;

__global__ void wave(const float *before, const float *now, float *next) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    int left = (x + SIDE - 1) % SIDE, right = (x + 1) % SIDE, up = (y + SIDE - 1) % SIDE, down = (y + 1) % SIDE;
    float here = now[y * SIDE + x];
    float around = now[y * SIDE + left] + now[y * SIDE + right] + now[up * SIDE + x] + now[down * SIDE + x];
    next[y * SIDE + x] = 1.998f * here - 0.998f * before[y * SIDE + x] + 0.2f * (around - 4 * here);
}

__global__ void drop(float *before, float *now) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    float far = (x - 700.0f) * (x - 700.0f) + (y - 900.0f) * (y - 900.0f);
    before[y * SIDE + x] = now[y * SIDE + x] = 1 + expf(-far / 40000);
}

__global__ void look(const float *now, const int *buoys, float *heights) { heights[threadIdx.x] = now[buoys[threadIdx.x]]; }

// Brings what buoys show to the host: with all of the lake, or by themselves.
struct Record {
    float *lake, *few, *found;
    int *places;
    std::vector<int> buoys;

    Record() : buoys(BUOYS) {
        for (int k = 0; k < BUOYS; ++k) buoys[k] = int((k * 2654435761u) % CELLS);
        CHECK(cudaMallocHost(&lake, CELLS * sizeof(float)));
        CHECK(cudaMallocHost(&few, BUOYS * sizeof(float)));
        CHECK(cudaMalloc(&found, BUOYS * sizeof(float)));
        CHECK(cudaMalloc(&places, BUOYS * sizeof(int)));
        CHECK(cudaMemcpy(places, buoys.data(), BUOYS * sizeof(int), cudaMemcpyHostToDevice));
    }

    double whole(const float *now) {
        CHECK(cudaMemcpy(lake, now, CELLS * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (int at : buoys) sum += lake[at];
        return sum / BUOYS;
    }

    double chosen(const float *now) {
        look<<<1, BUOYS>>>(now, places, found);
        CHECK(cudaMemcpy(few, found, BUOYS * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (int k = 0; k < BUOYS; ++k) sum += few[k];
        return sum / BUOYS;
    }
};

int main(int argc, char **argv) {
    turn();
    float *water[3];
    for (auto &w : water) CHECK(cudaMalloc(&w, CELLS * sizeof(float)));
    Record record;
    dim3 threads(32, 8), blocks(SIDE / 32, SIDE / 8);
    return measure("lake_waves", argc, argv, 2000, [&](bool repaired, int steps) {
        drop<<<blocks, threads>>>(water[0], water[1]);
        double sum = 0;
        for (int step = 0; step < steps; ++step) {
            for (int sub = 0; sub < SUBSTEPS; ++sub) {
                wave<<<blocks, threads>>>(water[0], water[1], water[2]);
                std::rotate(water, water + 1, water + 3);
            }
            CHECK(cudaGetLastError());
            sum += repaired ? record.chosen(water[1]) : record.whole(water[1]);
        }
        return sum / steps;
    });
}
