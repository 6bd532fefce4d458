// Spreads passengers over the stops of a country along its bus lines: a sparse matrix, of a few numbers in each row, times a vector.
#include "common.h"

constexpr int STOPS = 1 << 21, THREADS = 256;

// LANES threads side by side have a row.
template <int LANES>
__global__ void spread(const int *begins, const int *to, const float *share, const float *waiting, float *arrived) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / LANES, lane = threadIdx.x % LANES;
    float sum = 0;
    for (int k = begins[row] + lane; k < begins[row + 1]; k += LANES) sum += share[k] * waiting[to[k]];
    for (int step = LANES / 2; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step, LANES);
    if (lane == 0) arrived[row] = sum;
}

struct Lines {
    std::vector<int> begins, to;
    std::vector<float> share;

    Lines() : begins(STOPS + 1) {
        unsigned state = 12345;
        for (int stop = 0; stop < STOPS; ++stop) {
            begins[stop] = int(to.size());
            state = state * 1664525u + 1013904223u;
            int count = 3 + (state >> 16) % 6;
            for (int k = 0; k < count; ++k) {
                state = state * 1664525u + 1013904223u;
                to.push_back((stop + int(state >> 12) % 4096) % STOPS);
                share.push_back(1.0f / count);
            }
        }
        begins[STOPS] = int(to.size());
    }
};

template <class T>
T *send(const std::vector<T> &values) {
    T *there;
    CHECK(cudaMalloc(&there, values.size() * sizeof(T)));
    CHECK(cudaMemcpy(there, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return there;
}

int main(int argc, char **argv) {
    turn();
    Lines lines;
    std::vector<float> people(STOPS);
    for (int i = 0; i < STOPS; ++i) people[i] = 1 + i % 13;
    int *begins = send(lines.begins), *to = send(lines.to);
    float *share = send(lines.share), *waiting = send(people), *arrived;
    CHECK(cudaMalloc(&arrived, STOPS * sizeof(float)));
    return measure("bus_lines", argc, argv, 5000, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step)
            if (repaired)
                spread<4><<<STOPS / THREADS * 4, THREADS>>>(begins, to, share, waiting, arrived);
            else
                spread<32><<<STOPS / THREADS * 32, THREADS>>>(begins, to, share, waiting, arrived);
        CHECK(cudaGetLastError());
        std::vector<float> some(1 << 16);
        CHECK(cudaMemcpy(some.data(), arrived, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : some) sum += value;
        return sum / some.size();
    });
}
