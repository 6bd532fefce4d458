// A plain CUDA program: saxpy, a transpose that reads or writes with a stride, and a dot product.
// It stands for "your own binary" in recipes/own-command.yaml; nothing in it knows of a profiler.
//
//   nvcc -O3 -arch=native -o vector_ops vector_ops.cu && ./vector_ops
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                     \
    do {                                                                                \
        cudaError_t status = (call);                                                    \
        if (status != cudaSuccess) {                                                    \
            std::fprintf(stderr, "error: %s: %s\n", #call, cudaGetErrorString(status)); \
            std::exit(1);                                                               \
        }                                                                               \
    } while (0)

__global__ void fill(float* out, size_t n, float value) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = value + float(i % 7);
}

__global__ void saxpy(float a, const float* x, float* y, size_t n) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

__global__ void transpose_naive(const float* in, float* out, int width) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    out[size_t(column) * width + row] = in[size_t(row) * width + column];
}

__global__ void dot(const float* x, const float* y, float* result, size_t n) {
    __shared__ float partial[256];
    float sum = 0;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        sum += x[i] * y[i];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(result, partial[0]);
}

int main(int argc, char** argv) {
    const int width = 8192, repeats = argc > 1 ? std::atoi(argv[1]) : 10;
    const size_t n = size_t(width) * width;
    float *x, *y, *result;
    CHECK(cudaMalloc(&x, n * sizeof(float)));
    CHECK(cudaMalloc(&y, n * sizeof(float)));
    CHECK(cudaMalloc(&result, sizeof(float)));
    const unsigned blocks = unsigned((n + 255) / 256);
    fill<<<blocks, 256>>>(x, n, 1.0f);
    fill<<<blocks, 256>>>(y, n, 2.0f);
    for (int i = 0; i < repeats; i++) {
        saxpy<<<blocks, 256>>>(0.5f, x, y, n);
        transpose_naive<<<dim3(width / 32, width / 8), dim3(32, 8)>>>(x, y, width);
        CHECK(cudaMemsetAsync(result, 0, sizeof(float)));
        dot<<<132 * 8, 256>>>(x, y, result, n);
    }
    float value = 0;
    CHECK(cudaMemcpy(&value, result, sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaGetLastError());
    std::printf("dot = %g after %d repeats\n", value, repeats);
    return 0;
}
