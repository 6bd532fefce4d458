// What a kernel needs of CUDA, on a CPU: each thread of a block is a coroutine, blocks run in turn.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ucontext.h>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)

struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct Place { unsigned x, y, z; };
inline Place gridDim, blockDim, blockIdx, threadIdx;

namespace cpu {
constexpr int WARP = 32, MOST = 1024, STACK = 64 << 10;
struct Meeting { int arrived = 0, generation = 0; };
inline ucontext_t scheduler, threads[MOST];
inline std::vector<char> stacks(size_t(MOST) * STACK);
inline bool done[MOST];
inline int current, alive;
inline Meeting block_meeting, warp_meeting[MOST / WARP];
inline uint64_t slots[MOST];
using Call = void (*)(long, long, long, long, long, long, double, double);
inline Call call;
inline long integers[6];
inline double reals[2];

inline void yield() { swapcontext(&threads[current], &scheduler); }

inline void meet(Meeting& meeting, int wanted) {
    const int generation = meeting.generation;
    if (++meeting.arrived == wanted) {
        meeting.arrived = 0;
        meeting.generation++;
    }
    while (meeting.generation == generation) yield();
}

inline void meet_warp() { meet(warp_meeting[current / WARP], WARP); }

template <typename T>
T from_lane(T mine, int lane) {
    std::memcpy(&slots[current], &mine, sizeof(T));
    meet_warp();
    T theirs = mine;
    if (lane < WARP) std::memcpy(&theirs, &slots[current / WARP * WARP + lane], sizeof(T));
    meet_warp();
    return theirs;
}

inline void body() {
    const long* i = integers;
    call(i[0], i[1], i[2], i[3], i[4], i[5], reals[0], reals[1]);
    done[current] = true;
    alive--;
    yield();
}

inline void run_block() {
    alive = blockDim.x * blockDim.y * blockDim.z;
    const int count = alive;
    for (int t = 0; t < count; t++) {
        done[t] = false;
        getcontext(&threads[t]);
        threads[t].uc_stack.ss_sp = stacks.data() + size_t(t) * STACK;
        threads[t].uc_stack.ss_size = STACK;
        makecontext(&threads[t], body, 0);
    }
    while (alive)
        for (int t = 0; t < count; t++) {
            if (done[t]) continue;
            current = t;
            threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
            swapcontext(&scheduler, &threads[t]);
        }
}
}  // namespace cpu

// Integers and pointers of a kernel's arguments come in order, and so do its doubles: as the
// calling convention of x86-64 passes them.
extern "C" inline void __attribute__((used)) launch(void* kernel, const unsigned* shape,
                                                    const long* integers, const double* reals) {
    cpu::call = cpu::Call(kernel);
    std::memcpy(cpu::integers, integers, sizeof(cpu::integers));
    std::memcpy(cpu::reals, reals, sizeof(cpu::reals));
    gridDim = {shape[0], shape[1], shape[2]};
    blockDim = {shape[3], shape[4], shape[5]};
    for (unsigned z = 0; z < shape[2]; z++)
        for (unsigned y = 0; y < shape[1]; y++)
            for (unsigned x = 0; x < shape[0]; x++) {
                blockIdx = {x, y, z};
                cpu::run_block();
            }
}

inline void __syncthreads() {
    cpu::meet(cpu::block_meeting, blockDim.x * blockDim.y * blockDim.z);
}
template <typename T> T __shfl_sync(unsigned, T v, int lane) { return cpu::from_lane(v, lane); }
template <typename T> T __shfl_down_sync(unsigned, T v, int by) {
    return cpu::from_lane(v, cpu::current % cpu::WARP + by);
}
template <typename T> T __shfl_xor_sync(unsigned, T v, int by) {
    return cpu::from_lane(v, cpu::current % cpu::WARP ^ by);
}
inline unsigned __reduce_add_sync(unsigned, unsigned v) {
    for (int by = 1; by < cpu::WARP; by *= 2) v += __shfl_xor_sync(~0u, v, by);
    return v;
}
template <typename T, typename U> T atomicAdd(T* to, U value) {
    const T old = *to;
    *to += T(value);
    return old;
}
template <typename To, typename From> To bits(From v) {
    To to;
    std::memcpy(&to, &v, sizeof(To));
    return to;
}
inline int __float_as_int(float v) { return bits<int>(v); }
inline unsigned __float_as_uint(float v) { return bits<unsigned>(v); }
inline float __uint_as_float(unsigned v) { return bits<float>(v); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float rsqrtf(float v) { return 1 / std::sqrt(v); }
inline float __expf(float v) { return std::exp(v); }
inline float __logf(float v) { return std::log(v); }
inline unsigned __brev(unsigned v) {
    unsigned to = 0;
    for (int bit = 0; bit < 32; bit++) to |= (v >> bit & 1) << (31 - bit);
    return to;
}
