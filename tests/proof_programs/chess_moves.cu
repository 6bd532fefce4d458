// Chooses a move in each of many positions of a game: collects those allowed, rates them, and looks closer at the good ones.
#include "common.h"

constexpr int POSITIONS = 1 << 18, THREADS = 128, MOST = 48;

__device__ unsigned mix(unsigned h) {
    h = (h ^ (h >> 15)) * 2246822519u;
    return (h ^ (h >> 13)) * 3266489917u;
}

__device__ int rough(unsigned board, int move) { return (board >> (move % 24) & 63) + move % 7; }

__device__ int closer(unsigned board, int move) {
    unsigned h = mix(board ^ (move * 2654435761u));
    return (h >> 25) + 4 * rough(board, move);
}

// Moves of one thread, `apart` from each other.
__device__ int choose(unsigned board, unsigned short *moves, int apart) {
    int count = 0, best = 0;
    for (int square = 0; square < 64 && count < MOST; ++square)
        if (mix(board + square) & 1) {
            moves[count * apart] = static_cast<unsigned short>(square * 8 + (board >> (square % 29) & 7));
            best = max(best, rough(board, moves[count * apart]));
            ++count;
        }
    int found = 0, value = -1;
    for (int k = 0; k < count; ++k) {
        int move = moves[k * apart];
        if (rough(board, move) < best - 20) continue;
        int rated = closer(board, move);
        if (rated > value) value = rated, found = move;
    }
    return value * 512 + found;
}

__global__ void from_heap(const unsigned *boards, int *chosen) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned short *moves = new unsigned short[MOST];
    chosen[i] = choose(boards[i], moves, 1);
    delete[] moves;
}

__global__ void from_shared(const unsigned *boards, int *chosen) {
    __shared__ unsigned short moves[MOST * THREADS];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    chosen[i] = choose(boards[i], moves + threadIdx.x, THREADS);
}

__global__ void set_up(unsigned *boards) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    boards[i] = mix(i + 12345u);
}

int main(int argc, char **argv) {
    turn();
    CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, size_t(256) << 20));
    unsigned *boards;
    int *chosen;
    CHECK(cudaMalloc(&boards, POSITIONS * sizeof(unsigned)));
    CHECK(cudaMalloc(&chosen, POSITIONS * sizeof(int)));
    set_up<<<POSITIONS / THREADS, THREADS>>>(boards);
    CHECK(cudaDeviceSynchronize());
    return measure("chess_moves", argc, argv, 50, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step)
            if (repaired)
                from_shared<<<POSITIONS / THREADS, THREADS>>>(boards, chosen);
            else
                from_heap<<<POSITIONS / THREADS, THREADS>>>(boards, chosen);
        CHECK(cudaGetLastError());
        std::vector<int> some(POSITIONS);
        CHECK(cudaMemcpy(some.data(), chosen, some.size() * sizeof(int), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (int value : some) sum += value;
        return sum / POSITIONS;
    });
}
