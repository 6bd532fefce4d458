// Follows comets round a sun, whose pull is a little different at each moment, in steps of time of different lengths.
#include "common.h"

constexpr int COMETS = 1 << 14, THREADS = 128;

struct Moment {
    float length, pull, drag, wind;
};

__constant__ Moment now;

__device__ void advance(float4 *places, float4 *speeds, const Moment &m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 x = places[i], v = speeds[i];
    float square = x.x * x.x + x.y * x.y + x.z * x.z + 1e-2f, near = rsqrtf(square);
    float a = -m.pull * near * near * near, keep = 1 - m.drag * m.length;
    v.x = (v.x + m.length * (a * x.x + m.wind)) * keep;
    v.y = (v.y + m.length * a * x.y) * keep;
    v.z = (v.z + m.length * a * x.z) * keep;
    x.x += m.length * v.x;
    x.y += m.length * v.y;
    x.z += m.length * v.z;
    places[i] = x;
    speeds[i] = v;
}

// What holds at a moment lies in constant memory, or comes with the launch.
__global__ void advance_constant(float4 *places, float4 *speeds) { advance(places, speeds, now); }
__global__ void advance_given(float4 *places, float4 *speeds, Moment m) { advance(places, speeds, m); }

__global__ void begin(float4 *places, float4 *speeds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float turn = 0.001f * i, far = 1 + (i & 255) / 256.0f;
    places[i] = make_float4(far * cosf(turn), far * sinf(turn), 0.1f * (i & 7), 0);
    speeds[i] = make_float4(-sinf(turn), cosf(turn), 0.01f * (i & 3), 0);
}

Moment moment(int step) {
    return {1e-4f * (1 + step % 7), 1 + 0.01f * (step % 5), 1e-5f * (step % 3), 1e-6f * (step % 11)};
}

int main(int argc, char **argv) {
    turn();
    float4 *places, *speeds;
    CHECK(cudaMalloc(&places, COMETS * sizeof(float4)));
    CHECK(cudaMalloc(&speeds, COMETS * sizeof(float4)));
    return measure("comet_orbits", argc, argv, 90000, [&](bool repaired, int steps) {
        begin<<<COMETS / THREADS, THREADS>>>(places, speeds);
        for (int step = 0; step < steps; ++step) {
            Moment next = moment(step);
            if (repaired) {
                advance_given<<<COMETS / THREADS, THREADS>>>(places, speeds, next);
            } else {
                CHECK(cudaMemcpyToSymbol(now, &next, sizeof(next)));
                advance_constant<<<COMETS / THREADS, THREADS>>>(places, speeds);
            }
        }
        CHECK(cudaGetLastError());
        std::vector<float4> all(COMETS);
        CHECK(cudaMemcpy(all.data(), places, COMETS * sizeof(float4), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (auto &x : all) sum += double(x.x) * x.x + double(x.y) * x.y;
        return sum / COMETS;
    });
}
