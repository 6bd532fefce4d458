// Relaxes the voltages of a circuit board until they change no more: sweeps over red and black places in turn.
#include "common.h"

constexpr int SIDE = 512;
constexpr float ENOUGH = 1e-12f;

__global__ void sweep(float *volts, int colour, unsigned *change) {
    int x = 2 * (blockIdx.x * blockDim.x + threadIdx.x), y = blockIdx.y * blockDim.y + threadIdx.y;
    x += (y + colour) % 2;
    float differ = 0;
    if (x > 0 && y > 0 && x < SIDE - 1 && y < SIDE - 1) {
        int i = y * SIDE + x;
        float next = 0.25f * (volts[i - 1] + volts[i + 1] + volts[i - SIDE] + volts[i + SIDE]);
        differ = fabsf(next - volts[i]);
        volts[i] = next;
    }
    // numbers that are not negative compare like their bits
    unsigned most = __reduce_max_sync(~0u, __float_as_uint(differ));
    if (threadIdx.x == 0 && most > *change) atomicMax(change, most);
}

__global__ void begin(float *volts) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    volts[y * SIDE + x] = y == 0 ? 5.f : x == 0 ? 1.f + 0.01f * y : 0.f;
}

int main(int argc, char **argv) {
    turn();
    float *volts;
    unsigned *change;
    CHECK(cudaMalloc(&volts, SIDE * SIDE * sizeof(float)));
    CHECK(cudaMalloc(&change, sizeof(unsigned)));
    return measure("board_voltages", argc, argv, 40000, [&](bool repaired, int sweeps) {
        dim3 threads(32, 8), blocks(SIDE / 2 / 32, SIDE / 8);
        int every = repaired ? 100 : 1;
        begin<<<dim3(SIDE / 256, SIDE), 256>>>(volts);
        for (int number = 0; number < sweeps; ++number) {
            bool look = number % every == every - 1;
            if (look) CHECK(cudaMemsetAsync(change, 0, sizeof(unsigned)));
            sweep<<<blocks, threads>>>(volts, 0, change);
            sweep<<<blocks, threads>>>(volts, 1, change);
            if (!look) continue;
            float most;
            CHECK(cudaMemcpy(&most, change, sizeof(float), cudaMemcpyDeviceToHost));
            if (most < ENOUGH) break;
        }
        CHECK(cudaGetLastError());
        float middle;
        CHECK(cudaMemcpy(&middle, volts + SIDE * SIDE / 8 + SIDE / 8, sizeof(float), cudaMemcpyDeviceToHost));
        return double(middle);
    });
}
