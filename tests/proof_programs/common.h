// What the CUDA programs of this folder share: the option --repaired, the measured loop, and turns on one GPU.
#pragma once
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <sys/file.h>
#include <fcntl.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                              \
    do {                                                                                         \
        cudaError_t status = (call);                                                             \
        if (status != cudaSuccess) {                                                             \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status)); \
            std::exit(1);                                                                        \
        }                                                                                        \
    } while (0)

// Work: double work(bool repaired, int steps), prepared outside; returns a number that both variants agree on.
template <class Work>
int measure(const char *name, int argc, char **argv, int steps, Work work) {
    bool repaired = false, both = false;
    int repeats = 1;
    for (int i = 1; i < argc; ++i) {
        if (!std::strcmp(argv[i], "--repaired")) repaired = true;
        if (!std::strcmp(argv[i], "--both")) both = true;
        if (!std::strcmp(argv[i], "--repeats")) repeats = std::atoi(argv[++i]);
    }
    std::vector<double> times[2], sums[2];
    for (int round = -1; round < repeats; ++round)  // the first round warms up
        for (int variant = 0; variant < 2; ++variant) {
            if (!both && variant != repaired) continue;
            if (round < 0) {
                work(variant, 2);
                CHECK(cudaDeviceSynchronize());
                continue;
            }
            CHECK(cudaProfilerStart());
            auto start = std::chrono::steady_clock::now();
            double sum = work(variant, steps);
            CHECK(cudaDeviceSynchronize());
            std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
            CHECK(cudaProfilerStop());
            times[variant].push_back(taken.count());
            sums[variant].push_back(sum);
        }
    for (int variant = 0; variant < 2; ++variant) {
        auto &t = times[variant];
        if (t.empty()) continue;
        std::sort(t.begin(), t.end());
        std::printf("{\"program\": \"%s\", \"repaired\": %s, \"steps\": %d, \"ms\": %.4f, \"checksum\": %.9g}\n", name,
                    variant ? "true" : "false", steps, (t[t.size() / 2] + t[(t.size() - 1) / 2]) / 2, sums[variant][0]);
    }
    return 0;
}

// Waits for the turn on the GPU: one program at a time holds the file that PROGRAMS_LOCK names.
inline void turn() {
    CHECK(cudaFree(nullptr));  // makes the context, which takes a while, before it
    if (const char *name = std::getenv("PROGRAMS_LOCK")) {
        int file = open(name, O_RDWR | O_CREAT, 0666);
        if (file >= 0) flock(file, LOCK_EX);
    }
}
