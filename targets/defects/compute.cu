// Defects of arithmetic and of its distribution, and their repaired twins, compiled by NVRTC.

typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void

__device__ __forceinline__ u64 place() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }

// Four independent chains of multiply-adds: eight warps a scheduler fill its issue slots.
__device__ __forceinline__ float iterate(float x, int rounds, float factor, float term) {
    float a = x, b = x + 1, c = x + 2, d = x + 3;
#pragma unroll 4
    for (int i = 0; i < rounds; i++) {
        a = fmaf(a, factor, term);
        b = fmaf(b, factor, term);
        c = fmaf(c, factor, term);
        d = fmaf(d, factor, term);
    }
    return a + b + c + d;
}

// Blocks below `heavy` do `more` rounds, the others `rounds`. Two blocks of 1024 fill an SM.
#define MAPS(NAME)                                                                              \
    KERNEL __launch_bounds__(1024, 2) NAME(float* out, long long rounds, long long heavy,       \
                                           long long more, float factor, float term) {          \
        const int mine = int(blockIdx.x < heavy ? more : rounds);                               \
        out[place()] = iterate(float(place()), mine, factor, term);                             \
    }

MAPS(maps_with_tail)
MAPS(maps_whole_wave)
MAPS(maps_on_few_sms)
MAPS(maps_on_all_sms)
MAPS(maps_unequal)
MAPS(maps_equal)

// ---- divergence: eight kinds of element, each with arithmetic of its own -------------------------

__device__ __forceinline__ float by_kind(int kind, float x, int rounds, float factor, float term) {
    u32 bits = __float_as_uint(x);
    switch (kind) {
        case 0:
            for (int i = 0; i < rounds; i++) x = fmaf(x, factor, term);
            return x;
        case 1:
            for (int i = 0; i < rounds; i++) x = fmaf(x, x, -term);
            return x;
        case 2:
            for (int i = 0; i < rounds; i++) x = fabsf(x - term) * factor;
            return x;
        case 3:
            for (int i = 0; i < rounds; i++) x = fminf(x + term, factor);
            return x;
        case 4:
            for (int i = 0; i < rounds; i++) bits = bits ^ (bits << 13) ^ (bits >> 17);
            return __uint_as_float(bits >> 9);
        case 5:
            for (int i = 0; i < rounds; i++) bits = bits * 1664525u + 1013904223u;
            return __uint_as_float(bits >> 9);
        case 6:
            for (int i = 0; i < rounds; i++) x = fmaxf(fmaf(x, term, factor), -x);
            return x;
        default:
            for (int i = 0; i < rounds; i++) x = term - x * factor;
            return x * factor;
    }
}

// Neighbouring lanes differ in kind: a warp walks through all eight branches.
KERNEL kinds_mixed(float* out, long long rounds, float factor, float term) {
    out[place()] = by_kind(threadIdx.x % 8, float(place()), int(rounds), factor, term);
}

// Sorted by kind: the 32 lanes of a warp take one branch. Block of 256.
KERNEL kinds_sorted(float* out, long long rounds, float factor, float term) {
    out[place()] = by_kind(threadIdx.x / 32, float(place()), int(rounds), factor, term);
}

// ---- what the elementwise chain of torch does in six kernels -------------------------------------

// `steps` multiply-adds on each value: what as many tiny kernels do one after another.
KERNEL many_steps_at_once(float* x, long long steps, float factor, float term) {
    float v = x[place()];
    for (int i = 0; i < int(steps); i++) v = v * factor + term;
    x[place()] = v;
}
