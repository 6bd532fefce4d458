// Finds the pressure in a box of water: conjugate gradients for Poisson's equation on a grid, all numbers on the GPU.
#include "common.h"

constexpr int SIDE = 256, THREADS = 256, PARTS = 1024;
constexpr int CELLS = SIDE * SIDE * SIDE;

__device__ float sum_of_block(float mine) {
    __shared__ float warps[32];
    for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(~0u, mine, step);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
    __syncthreads();
    mine = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0;
    for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(~0u, mine, step);
    return mine;
}

// The sum of products, or each block's share of it.
__global__ void dot(const float *a, const float *b, float *out) {
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < CELLS; i += gridDim.x * blockDim.x) sum += a[i] * b[i];
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

__global__ void add_parts(const float *parts, float *out) {
    float sum = sum_of_block(parts[threadIdx.x]);
    if (threadIdx.x == 0) *out = sum;
}

__global__ void laplace(const float *p, float *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int x = i % SIDE, y = i / SIDE % SIDE, z = i / SIDE / SIDE;
    float sum = 6.1f * p[i];
    if (x > 0) sum -= p[i - 1];
    if (x < SIDE - 1) sum -= p[i + 1];
    if (y > 0) sum -= p[i - SIDE];
    if (y < SIDE - 1) sum -= p[i + SIDE];
    if (z > 0) sum -= p[i - SIDE * SIDE];
    if (z < SIDE - 1) sum -= p[i + SIDE * SIDE];
    out[i] = sum;
}

// numbers: r.r, p.Ap, the new r.r
__global__ void advance(float *x, float *r, const float *p, const float *ap, const float *numbers) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float alpha = numbers[0] / (numbers[1] + 1e-30f);
    x[i] += alpha * p[i];
    r[i] -= alpha * ap[i];
}

__global__ void turn_to(float *p, const float *r, const float *numbers) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    p[i] = r[i] + numbers[2] / (numbers[0] + 1e-30f) * p[i];
}

__global__ void begin(float *x, float *r, float *p) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = 0;
    r[i] = p[i] = (i * 2654435761u >> 20 & 255) * 0.01f;
}

int main(int argc, char **argv) {
    turn();
    float *x, *r, *p, *ap, *numbers, *parts;
    for (float **field : {&x, &r, &p, &ap}) CHECK(cudaMalloc(field, CELLS * sizeof(float)));
    CHECK(cudaMalloc(&numbers, 3 * sizeof(float)));
    CHECK(cudaMalloc(&parts, PARTS * sizeof(float)));
    return measure("conjugate_dots", argc, argv, 450, [&](bool repaired, int steps) {
        auto product = [&](const float *a, const float *b, float *out) {
            if (repaired) {
                dot<<<PARTS, THREADS>>>(a, b, parts);
                add_parts<<<1, PARTS>>>(parts, out);
            } else {
                dot<<<1, 1024>>>(a, b, out);
            }
        };
        begin<<<CELLS / THREADS, THREADS>>>(x, r, p);
        product(r, r, numbers);
        for (int step = 0; step < steps; ++step) {
            laplace<<<CELLS / THREADS, THREADS>>>(p, ap);
            product(p, ap, numbers + 1);
            advance<<<CELLS / THREADS, THREADS>>>(x, r, p, ap, numbers);
            product(r, r, numbers + 2);
            turn_to<<<CELLS / THREADS, THREADS>>>(p, r, numbers);
            CHECK(cudaMemcpyAsync(numbers, numbers + 2, sizeof(float), cudaMemcpyDeviceToDevice));
        }
        CHECK(cudaGetLastError());
        float middle;
        CHECK(cudaMemcpy(&middle, x + CELLS / 2 + SIDE / 2, sizeof(float), cudaMemcpyDeviceToHost));
        return double(middle);
    });
}
