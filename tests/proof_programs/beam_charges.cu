// Simulates a beam of particles: their charges are spread over the cells of a grid, whose field then moves them.
#include "common.h"

constexpr int SIDE = 64, CELLS = SIDE * SIDE, PARTICLES = 1 << 22, UNIT = 256;

// Charge in whole units to the four cells round a particle.
__device__ void spread(unsigned *grid, float2 at) {
    int x = int(at.x), y = int(at.y);
    unsigned right = unsigned((at.x - x) * 16), above = unsigned((at.y - y) * 16);
    atomicAdd(&grid[y * SIDE + x], (16 - right) * (16 - above));
    atomicAdd(&grid[y * SIDE + x + 1], right * (16 - above));
    atomicAdd(&grid[(y + 1) * SIDE + x], (16 - right) * above);
    atomicAdd(&grid[(y + 1) * SIDE + x + 1], right * above);
}

__global__ void deposit(const float2 *places, unsigned *grid) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < PARTICLES; i += gridDim.x * blockDim.x) spread(grid, places[i]);
}

// Each block has a grid of its own in shared memory first.
__global__ void deposit_by_block(const float2 *places, unsigned *grid) {
    __shared__ unsigned mine[CELLS];
    for (int k = threadIdx.x; k < CELLS; k += blockDim.x) mine[k] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < PARTICLES; i += gridDim.x * blockDim.x) spread(mine, places[i]);
    __syncthreads();
    for (int k = threadIdx.x; k < CELLS; k += blockDim.x)
        if (mine[k]) atomicAdd(&grid[k], mine[k]);
}

__device__ float charge(const unsigned *grid, int x, int y) { return float(grid[y * SIDE + x]) / UNIT; }

__global__ void push(float2 *places, float2 *speeds, const unsigned *grid) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float2 at = places[i], v = speeds[i];
    int x = int(at.x), y = int(at.y);
    v.x += 1e-9f * (charge(grid, x - 1, y) - charge(grid, x + 1, y)) - 1e-4f * (at.x - SIDE / 2);
    v.y += 1e-9f * (charge(grid, x, y - 1) - charge(grid, x, y + 1)) - 1e-4f * (at.y - SIDE / 2);
    at.x = fminf(fmaxf(at.x + v.x, 1), SIDE - 3);
    at.y = fminf(fmaxf(at.y + v.y, 1), SIDE - 3);
    places[i] = at;
    speeds[i] = v;
}

__global__ void begin(float2 *places, float2 *speeds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float2 sum = {0, 0};
    for (unsigned k = 0; k < 4; ++k) {  // nearly normal, narrow about the middle
        unsigned key = (4u * i + k + 1) * 2654435761u;
        key = (key ^ key >> 15) * 2246822519u;
        sum.x += (key >> 8 & 1023) / 1024.f - 0.5f;
        sum.y += (key >> 20 & 1023) / 1024.f - 0.5f;
    }
    places[i] = {SIDE / 2 + 4 * sum.x, SIDE / 2 + 4 * sum.y};
    speeds[i] = {0, 0};
}

int main(int argc, char **argv) {
    turn();
    float2 *places, *speeds;
    unsigned *grid;
    CHECK(cudaMalloc(&places, PARTICLES * sizeof(float2)));
    CHECK(cudaMalloc(&speeds, PARTICLES * sizeof(float2)));
    CHECK(cudaMalloc(&grid, CELLS * sizeof(unsigned)));
    return measure("beam_charges", argc, argv, 300, [&](bool repaired, int steps) {
        begin<<<PARTICLES / 256, 256>>>(places, speeds);
        for (int step = 0; step < steps; ++step) {
            CHECK(cudaMemsetAsync(grid, 0, CELLS * sizeof(unsigned)));
            if (repaired)
                deposit_by_block<<<528, 512>>>(places, grid);
            else
                deposit<<<528, 512>>>(places, grid);
            push<<<PARTICLES / 256, 256>>>(places, speeds, grid);
        }
        CHECK(cudaGetLastError());
        std::vector<unsigned> all(CELLS);
        CHECK(cudaMemcpy(all.data(), grid, CELLS * sizeof(unsigned), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (int k = 0; k < CELLS; ++k) sum += double(all[k]) / UNIT * (abs(k % SIDE - SIDE / 2) + 1);
        return sum / PARTICLES;
    });
}
