// Scores many poses of a small molecule beside the atoms of a protein: how they attract, repel and charge each other.
#include "common.h"

constexpr int POSES = 1 << 20, LIGAND = 24, ATOMS = 64, THREADS = 128;

struct Atom {
    float x, y, z, charge;
};

__constant__ Atom protein[ATOMS];

__device__ float dielectric(float r) { return -8.5525 + 86.9525 / (1.0 + 7.7839 * __expf(-0.3154f * r)); }

__device__ float dielectricf(float r) { return -8.5525f + 86.9525f / (1.0f + 7.7839f * __expf(-0.3154f * r)); }

template <bool F>
__global__ void score(const Atom *ligand, const float4 *poses, float *energies) {
    __shared__ Atom own[LIGAND];
    if (threadIdx.x < LIGAND) own[threadIdx.x] = ligand[threadIdx.x];
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 pose = poses[i];
    float s, c, energy = 0;
    __sincosf(pose.w, &s, &c);
    for (int a = 0; a < LIGAND; ++a) {
        float x = c * own[a].x - s * own[a].y + pose.x, y = s * own[a].x + c * own[a].y + pose.y, z = own[a].z + pose.z;
        for (int p = 0; p < ATOMS; ++p) {
            float dx = x - protein[p].x, dy = y - protein[p].y, dz = z - protein[p].z;
            float r2 = dx * dx + dy * dy + dz * dz + 1.0f, inverse = rsqrtf(r2), r = r2 * inverse;
            float far = inverse * inverse * inverse, far6 = far * far;
            float electric = 332.06363f * own[a].charge * protein[p].charge * inverse;
            energy += 400.0f * far6 * far6 - 20.0f * far6;
            energy += __fdividef(electric, F ? dielectricf(r) : dielectric(r));
        }
    }
    energies[i] = energy;
}

__global__ void place(float4 *poses) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned h = i * 2654435761u;
    poses[i] = make_float4((h >> 22) * 0.01f, (h >> 12 & 1023) * 0.01f, (h >> 2 & 1023) * 0.01f, (h >> 7 & 1023) * 0.006f);
}

int main(int argc, char **argv) {
    turn();
    std::vector<Atom> of_protein(ATOMS), of_ligand(LIGAND);
    for (int p = 0; p < ATOMS; ++p) of_protein[p] = {p % 4 * 3.0f, p / 4 % 4 * 3.0f, p / 16 * 3.0f, (p % 7 - 3) * 0.1f};
    for (int a = 0; a < LIGAND; ++a) of_ligand[a] = {a % 5 * 0.8f, a / 5 * 0.9f, a % 3 * 0.7f, (a % 5 - 2) * 0.15f};
    Atom *ligand;
    float4 *poses;
    float *energies;
    CHECK(cudaMalloc(&ligand, LIGAND * sizeof(Atom)));
    CHECK(cudaMalloc(&poses, POSES * sizeof(float4)));
    CHECK(cudaMalloc(&energies, POSES * sizeof(float)));
    CHECK(cudaMemcpyToSymbol(protein, of_protein.data(), ATOMS * sizeof(Atom)));
    CHECK(cudaMemcpy(ligand, of_ligand.data(), LIGAND * sizeof(Atom), cudaMemcpyHostToDevice));
    place<<<POSES / THREADS, THREADS>>>(poses);
    CHECK(cudaDeviceSynchronize());
    return measure("ligand_poses", argc, argv, 300, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step)
            if (repaired)
                score<true><<<POSES / THREADS, THREADS>>>(ligand, poses, energies);
            else
                score<false><<<POSES / THREADS, THREADS>>>(ligand, poses, energies);
        CHECK(cudaGetLastError());
        std::vector<float> some(POSES);
        CHECK(cudaMemcpy(some.data(), energies, some.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float energy : some) sum += energy;
        return sum / POSES;
    });
}
