// Finds how the deck of a bridge gives way under lorries: conjugate gradients on a grid of springs, one place of a lorry after another.
#include "common.h"

constexpr int SIDE = 384, CELLS = SIDE * SIDE, THREADS = 256, BLOCKS = 144, TURNS = 150;

// What a thread adds up of a block, in its first thread.
__device__ double of_block(double value) {
    __shared__ double sums[THREADS];
    sums[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    return sums[0];
}

__global__ void start(double *bend, double *rest, double *way, double *parts, int lorry) {
    double sum = 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < CELLS; i += BLOCKS * THREADS) {
        int row = i / SIDE, col = i % SIDE;
        double load = row / 8 == 20 && (col + lorry) / 16 % 4 == 0 ? 1.0 : 0.01;
        bend[i] = 0;
        rest[i] = way[i] = load;
        sum += load * load;
    }
    sum = of_block(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// The forces that a displacement along `way` would give, and the shares of way * forces.
__global__ void pull(const double *way, double *forces, double *parts) {
    double sum = 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < CELLS; i += BLOCKS * THREADS) {
        int row = i / SIDE, col = i % SIDE;
        double force = 4.05 * way[i];
        if (row > 0) force -= way[i - SIDE];
        if (row < SIDE - 1) force -= way[i + SIDE];
        if (col > 0) force -= way[i - 1];
        if (col < SIDE - 1) force -= way[i + 1];
        forces[i] = force;
        sum += way[i] * force;
    }
    sum = of_block(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// Adds up the shares of blocks.
__global__ void add_up(const double *parts, double *sum) {
    double value = of_block(threadIdx.x < BLOCKS ? parts[threadIdx.x] : 0);
    if (threadIdx.x == 0) *sum = value;
}

__device__ void step_of(double share, const double *way, const double *forces, double *bend, double *rest, double *parts) {
    double sum = 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < CELLS; i += BLOCKS * THREADS) {
        bend[i] += share * way[i];
        rest[i] -= share * forces[i];
        sum += rest[i] * rest[i];
    }
    sum = of_block(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__device__ void turn_of(double share, const double *rest, double *way) {
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < CELLS; i += BLOCKS * THREADS) way[i] = rest[i] + share * way[i];
}

__global__ void step_by(double share, const double *way, const double *forces, double *bend, double *rest, double *parts) {
    step_of(share, way, forces, bend, rest, parts);
}

__global__ void turn_by(double share, const double *rest, double *way) { turn_of(share, rest, way); }

// The same with shares that are quotients of sums on the GPU.
__global__ void step_from(const double *over, const double *under, const double *way, const double *forces, double *bend,
                          double *rest, double *parts) {
    step_of(*over / *under, way, forces, bend, rest, parts);
}

__global__ void turn_from(const double *over, const double *under, const double *rest, double *way) {
    turn_of(*over / *under, rest, way);
}

struct Deck {
    double *bend, *rest, *way, *forces, *parts, *sums;

    double total() {
        double value;
        add_up<<<1, THREADS>>>(parts, sums);
        CHECK(cudaMemcpy(&value, sums, sizeof value, cudaMemcpyDeviceToHost));
        return value;
    }

    void solve(int lorry) {
        start<<<BLOCKS, THREADS>>>(bend, rest, way, parts, lorry);
        double old = total();
        for (int turn = 0; turn < TURNS; ++turn) {
            pull<<<BLOCKS, THREADS>>>(way, forces, parts);
            double along = total();
            step_by<<<BLOCKS, THREADS>>>(old / along, way, forces, bend, rest, parts);
            double left = total();
            turn_by<<<BLOCKS, THREADS>>>(left / old, rest, way);
            old = left;
        }
    }

    void solve_there(int lorry) {
        double *old = sums, *left = sums + 1, *along = sums + 2;
        start<<<BLOCKS, THREADS>>>(bend, rest, way, parts, lorry);
        add_up<<<1, THREADS>>>(parts, old);
        for (int turn = 0; turn < TURNS; ++turn) {
            pull<<<BLOCKS, THREADS>>>(way, forces, parts);
            add_up<<<1, THREADS>>>(parts, along);
            step_from<<<BLOCKS, THREADS>>>(old, along, way, forces, bend, rest, parts);
            add_up<<<1, THREADS>>>(parts, left);
            turn_from<<<BLOCKS, THREADS>>>(left, old, rest, way);
            std::swap(old, left);
        }
    }
};

int main(int argc, char **argv) {
    turn();
    Deck deck;
    for (double **field : {&deck.bend, &deck.rest, &deck.way, &deck.forces, &deck.parts, &deck.sums})
        CHECK(cudaMalloc(field, CELLS * sizeof(double)));
    return measure("bridge_loads", argc, argv, 80, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) repaired ? deck.solve_there(step) : deck.solve(step);
        CHECK(cudaGetLastError());
        std::vector<double> bend(CELLS);
        CHECK(cudaMemcpy(bend.data(), deck.bend, CELLS * sizeof(double), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (double value : bend) sum += value;
        return sum / CELLS;
    });
}
