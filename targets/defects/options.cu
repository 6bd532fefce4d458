// One source, compiled twice with options of the compiler that spoil it or do not; the name of the
// kernel comes from the command line (-DNAME=...).

typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void

__device__ __forceinline__ u64 place() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }

#ifdef POLYNOMIAL
// Four chains of x = x * factor + term. With -fmad=false each step takes two instructions.
KERNEL __launch_bounds__(1024, 2) NAME(float* out, long long rounds, float factor, float term) {
    float a = float(place()), b = a + 1, c = a + 2, d = a + 3;
#pragma unroll 4
    for (int i = 0; i < int(rounds); i++) {
        a = a * factor + term;
        b = b * factor + term;
        c = c * factor + term;
        d = d * factor + term;
    }
    out[place()] = a + b + c + d;
}
#endif

#ifdef STATE
// STATE values of a thread, all of them live: with -maxrregcount below that, some go to memory.
KERNEL NAME(const float* in, float* out, long long rounds, float factor) {
    float s[STATE];
#pragma unroll
    for (int i = 0; i < STATE; i++) s[i] = in[i * 256 + threadIdx.x];
#pragma unroll 1
    for (int round = 0; round < int(rounds); round++) {
#pragma unroll
        for (int i = 0; i < STATE; i++) s[i] = fmaf(s[i], factor, s[(i + 1) % STATE]);
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < STATE; i++) sum += s[i];
    out[place()] = sum;
}
#endif
