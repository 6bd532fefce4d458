// Follows muons through a magnet: each goes along a helix, whose step is computed from momentum and field.
#include "common.h"

constexpr int MUONS = 1 << 20, THREADS = 256, TURNS = 64;

struct Muon {
    float x, y, px, py;
};

template <class Number>
__device__ void step(Muon &muon, float field, float length) {
    float angle = field * length + 1e-3f;
    float half = sinf(0.5f * angle), sine = sinf(angle);
    float away = Number(2.0) * half * half / angle;
    float along = sine / angle;
    float px = muon.px, py = muon.py;
    muon.x += length * (along * px - away * py);
    muon.y += length * (along * py + away * px);
    float turned = Number(1.0) - angle * away;
    muon.px = turned * px - sine * py;
    muon.py = turned * py + sine * px;
}

template <class Number>
__global__ void follow(Muon *muons, float field) {
    int at = blockIdx.x * THREADS + threadIdx.x;
    Muon muon = muons[at];
    for (int k = 0; k < TURNS; ++k) step<Number>(muon, field + 0.001f * k, 0.05f);
    muons[at] = muon;
}

__global__ void shoot(Muon *muons) {
    int at = blockIdx.x * THREADS + threadIdx.x;
    float way = 0.001f * (at % 6283);
    muons[at] = {0, 0, cosf(way), sinf(way)};
}

int main(int argc, char **argv) {
    turn();
    Muon *muons;
    CHECK(cudaMalloc(&muons, MUONS * sizeof(Muon)));
    return measure("muon_helices", argc, argv, 1500, [&](bool repaired, int steps) {
        shoot<<<MUONS / THREADS, THREADS>>>(muons);
        for (int k = 0; k < steps; ++k) {
            if (repaired)
                follow<float><<<MUONS / THREADS, THREADS>>>(muons, 0.5f + 0.01f * (k % 5));
            else
                follow<double><<<MUONS / THREADS, THREADS>>>(muons, 0.5f + 0.01f * (k % 5));
        }
        CHECK(cudaGetLastError());
        std::vector<Muon> found(MUONS);
        CHECK(cudaMemcpy(found.data(), muons, MUONS * sizeof(Muon), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (const Muon &muon : found) sum += double(muon.px) * muon.px + double(muon.py) * muon.py;
        return sum / MUONS;
    });
}
