// Plays games of dice in all of a casino's halls, and counts how much the players win in each hour.
#include "common.h"

constexpr int PLAYERS = 1 << 20, THREADS = 256, THROWS = 32;
constexpr unsigned long long FACTOR = 6364136223846793005ull, ADDED = 1442695040888963407ull;

struct Dice {
    unsigned long long state;

    __device__ unsigned next() {
        state = state * FACTOR + ADDED;
        unsigned mixed = unsigned(((state >> 18) ^ state) >> 27), turn = unsigned(state >> 59);
        return (mixed >> turn) | (mixed << ((32 - turn) & 31));
    }

    // Goes on by many throws at once.
    __device__ void skip(unsigned long long many) {
        unsigned long long factor = FACTOR, added = ADDED, all = 1, sum = 0;
        while (many) {
            if (many & 1) {
                all *= factor;
                sum = sum * factor + added;
            }
            added *= factor + 1;
            factor *= factor;
            many >>= 1;
        }
        state = state * all + sum;
    }
};

__device__ Dice dice_of(int player, unsigned long long thrown) {
    Dice dice{42};
    dice.skip((static_cast<unsigned long long>(player) << 40) + thrown);
    return dice;
}

__device__ int play(Dice &dice) {
    int won = 0;
    for (int k = 0; k < THROWS / 2; ++k) {
        int sum = 2 + __umulhi(dice.next(), 6) + __umulhi(dice.next(), 6);
        won += sum == 7 ? 4 : sum > 9 ? 1 : -1;
    }
    return won;
}

// Takes the dice of each player from the beginning of the table.
__global__ void hour_from_table(int hour, int *won) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    Dice dice = dice_of(i, static_cast<unsigned long long>(hour) * THROWS);
    won[i] += play(dice);
}

// Takes them as they lay after the hour before.
__global__ void hour_from_memory(Dice *lying, int *won) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    Dice dice = lying[i];
    won[i] += play(dice);
    lying[i] = dice;
}

__global__ void lay_out(Dice *lying) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    lying[i] = dice_of(i, 0);
}

int main(int argc, char **argv) {
    turn();
    Dice *lying;
    int *won;
    CHECK(cudaMalloc(&lying, PLAYERS * sizeof(Dice)));
    CHECK(cudaMalloc(&won, PLAYERS * sizeof(int)));
    return measure("dice_tables", argc, argv, 12000, [&](bool repaired, int steps) {
        CHECK(cudaMemset(won, 0, PLAYERS * sizeof(int)));
        lay_out<<<PLAYERS / THREADS, THREADS>>>(lying);
        for (int step = 0; step < steps; ++step)
            if (repaired)
                hour_from_memory<<<PLAYERS / THREADS, THREADS>>>(lying, won);
            else
                hour_from_table<<<PLAYERS / THREADS, THREADS>>>(step, won);
        CHECK(cudaGetLastError());
        std::vector<int> some(PLAYERS);
        CHECK(cudaMemcpy(some.data(), won, some.size() * sizeof(int), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (int value : some) sum += value;
        return sum / PLAYERS / steps;
    });
}
