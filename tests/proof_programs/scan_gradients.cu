// Finds the borders of organs in a scan: the gradient of a volume whose numbers lie slice by slice, depth fastest.
#include "common.h"

constexpr int X = 512, Y = 512, Z = 256;
constexpr size_t VOXELS = size_t(X) * Y * Z;

__device__ size_t place(int x, int y, int z) { return (size_t(x) * Y + y) * Z + z; }

__device__ void border(const float *scan, float *out, int x, int y, int z) {
    float dx = scan[place(min(x + 1, X - 1), y, z)] - scan[place(max(x - 1, 0), y, z)];
    float dy = scan[place(x, min(y + 1, Y - 1), z)] - scan[place(x, max(y - 1, 0), z)];
    float dz = scan[place(x, y, min(z + 1, Z - 1))] - scan[place(x, y, max(z - 1, 0))];
    out[place(x, y, z)] = sqrtf(dx * dx + dy * dy + dz * dz);
}

// Threads side by side go along x, whose neighbours lie Y * Z numbers apart.
__global__ void borders_along_x(const float *scan, float *out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    border(scan, out, x, y, blockIdx.z);
}

__global__ void borders_along_z(const float *scan, float *out) {
    int z = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    border(scan, out, blockIdx.z, y, z);
}

__global__ void soften(float *scan, const float *out) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    scan[i] = scan[i] / (1 + 0.01f * out[i]);
}

__global__ void fill(float *scan) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    scan[i] = (unsigned(i) * 2654435761u >> 20 & 255) * 0.01f;
}

int main(int argc, char **argv) {
    turn();
    float *scan, *out;
    CHECK(cudaMalloc(&scan, VOXELS * sizeof(float)));
    CHECK(cudaMalloc(&out, VOXELS * sizeof(float)));
    return measure("scan_gradients", argc, argv, 300, [&](bool repaired, int steps) {
        fill<<<VOXELS / 256, 256>>>(scan);
        for (int step = 0; step < steps; ++step) {
            if (repaired)
                borders_along_z<<<dim3(Z / 32, Y / 8, X), dim3(32, 8)>>>(scan, out);
            else
                borders_along_x<<<dim3(X / 32, Y / 8, Z), dim3(32, 8)>>>(scan, out);
            soften<<<VOXELS / 256, 256>>>(scan, out);
        }
        CHECK(cudaGetLastError());
        std::vector<float> some(1 << 16);
        CHECK(cudaMemcpy(some.data(), out + VOXELS / 2, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum / some.size();
    });
}
