// Follows chemical reactions in many small cells over time: each cell is a system of four equations of its own.
#include "common.h"

constexpr int CELLS = 1 << 15, TIMES = 2000;

struct Mix {
    float a, b, c, d;
};

__device__ Mix change(Mix m, float heat) {
    float forward = heat * m.a * m.b, back = 0.3f * m.c, decay = 0.05f * m.c * m.d;
    return {back - forward, back - forward + 0.01f * m.d, forward - back - decay, decay - 0.01f * m.d};
}

__device__ Mix ahead(Mix m, Mix by, float step) {
    return {m.a + step * by.a, m.b + step * by.b, m.c + step * by.c, m.d + step * by.d};
}

// The method of Runge and Kutta, of second order.
__device__ Mix advance(Mix m, float heat, float step) {
    Mix half = ahead(m, change(m, heat), 0.5f * step);
    return ahead(m, change(half, heat), step);
}

__global__ void react(Mix *cells, const float *heat, float step, int times) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    Mix m = cells[i];
    float here = heat[i];
    for (int time = 0; time < times; ++time) m = advance(m, here, step);
    cells[i] = m;
}

__global__ void fill(Mix *cells, float *heat) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    cells[i] = {1, 0.5f + i % 7 * 0.1f, 0, 0.1f};
    heat[i] = 0.5f + i % 11 * 0.05f;
}

int main(int argc, char **argv) {
    turn();
    Mix *cells;
    float *heat;
    CHECK(cudaMalloc(&cells, CELLS * sizeof(Mix)));
    CHECK(cudaMalloc(&heat, CELLS * sizeof(float)));
    return measure("ode_launches", argc, argv, 12, [&](bool repaired, int steps) {
        fill<<<CELLS / 256, 256>>>(cells, heat);
        for (int step = 0; step < steps; ++step) {
            int times = repaired ? TIMES : 1;
            for (int time = 0; time < TIMES; time += times)
                react<<<CELLS / 128, 128>>>(cells, heat, 0.001f, times);
        }
        CHECK(cudaGetLastError());
        std::vector<Mix> all(CELLS);
        CHECK(cudaMemcpy(all.data(), cells, CELLS * sizeof(Mix), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (const Mix &m : all) sum += m.a + m.b + m.c + m.d;
        return sum / CELLS;
    });
}
