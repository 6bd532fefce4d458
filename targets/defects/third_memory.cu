// Third set: defects of memory accesses and their repaired twins, compiled by NVRTC (no headers).
// Both of a pair compute the same values.

typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void

__device__ __forceinline__ u64 place() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }

// ---- uncoalesced loads: which of 4 centres is nearest to each point of 16 dimensions -------------

#define DIMENSIONS 16
#define CENTRES 4

// VALUE(d) is value d of this thread's point.
#define NEAREST(NAME, VALUE)                                                                    \
    KERNEL NAME(const float* points, const float* centres, int* nearest, long long count) {     \
        __shared__ float centre[CENTRES][DIMENSIONS];                                           \
        if (threadIdx.x < CENTRES * DIMENSIONS)                                                 \
            centre[threadIdx.x / DIMENSIONS][threadIdx.x % DIMENSIONS] = centres[threadIdx.x];  \
        __syncthreads();                                                                        \
        float far[CENTRES] = {0, 0, 0, 0};                                                      \
        _Pragma("unroll") for (int d = 0; d < DIMENSIONS; d++) {                                \
            const float v = points[VALUE(d)];                                                   \
            _Pragma("unroll") for (int c = 0; c < CENTRES; c++)                                 \
                far[c] += (v - centre[c][d]) * (v - centre[c][d]);                              \
        }                                                                                       \
        int best = 0;                                                                           \
        float least = far[0];                                                                   \
        _Pragma("unroll") for (int c = 1; c < CENTRES; c++) if (far[c] < least) {               \
            best = c;                                                                           \
            least = far[c];                                                                     \
        }                                                                                       \
        nearest[place()] = best;                                                                \
    }

#define OF_POINTS(d) place() * DIMENSIONS + d
#define OF_DIMENSIONS(d) u64(d) * u64(count) + place()
NEAREST(nearest_of_points, OF_POINTS)
NEAREST(nearest_of_dimensions, OF_DIMENSIONS)

// ---- uncoalesced stores: vectors of 4096 complex values are put in bit-reversed order ------------

#define BITS 12

__device__ __forceinline__ u32 reversed(u32 v, int bits) { return __brev(v) >> (32 - bits); }

// Lanes load neighbours, and each of them stores 128 values away from the next. 4 values a thread.
KERNEL reverse_bits_directly(const float2* in, float2* out) {
    const u64 first = u64(blockIdx.x) * 1024 + threadIdx.x;
    float2 v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = in[first + 256 * i];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u64 at = first + 256 * i, low = at & ((1 << BITS) - 1);
        out[at - low + reversed(u32(low), BITS)] = v[i];
    }
}

// The index is 5 high bits, 2 between, 5 low ones: a block has all of the high and the low ones.
KERNEL reverse_bits_by_tiles(const float2* in, float2* out) {
    __shared__ float real[32][33], imaginary[32][33];
    const u64 vector = u64(blockIdx.x / 4) << BITS;
    const u32 between = blockIdx.x % 4;
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
#pragma unroll
    for (int high = y; high < 32; high += 8) {
        const float2 v = in[vector + (high << 7 | between << 5 | x)];
        real[high][x] = v.x;
        imaginary[high][x] = v.y;
    }
    __syncthreads();
    const u32 high = reversed(x, 5);
#pragma unroll
    for (int low = y; low < 32; low += 8) {
        float2 v;
        v.x = real[high][low];
        v.y = imaginary[high][low];
        out[vector + (reversed(low, 5) << 7 | reversed(between, 2) << 5 | x)] = v;
    }
}

// ---- bank conflicts: a complex FIR filter of 64 real taps that keeps every second value -----------

#define TAPS 64
#define FIR_BLOCK 256

// out[m] = sum over k of taps[k] x[2 m + k + delay]; delay is 0 or 1. TAP(k) is where x is.
#define FIR(NAME, SPACE, FROM, TO, TAP)                                                         \
    KERNEL NAME(const float2* x, const float4* taps, float2* out, long long delay) {            \
        __shared__ float2 tile[SPACE];                                                          \
        __shared__ float4 weights[TAPS / 4];                                                    \
        const int t = threadIdx.x;                                                              \
        const u64 first = u64(blockIdx.x) * (2 * FIR_BLOCK);                                    \
        if (t < TAPS / 4) weights[t] = taps[t];                                                 \
        for (int j = t; j <= 2 * FIR_BLOCK + TAPS; j += FIR_BLOCK) tile[TO(j)] = x[first + FROM(j)]; \
        __syncthreads();                                                                        \
        float re = 0, im = 0;                                                                   \
        _Pragma("unroll 4") for (int q = 0; q < TAPS / 4; q++) {                                \
            const float4 four = weights[q];                                                     \
            const float w[4] = {four.x, four.y, four.z, four.w};                                \
            _Pragma("unroll") for (int i = 0; i < 4; i++) {                                     \
                const float2 v = tile[TAP(4 * q + i)];                                          \
                re += w[i] * v.x;                                                               \
                im += w[i] * v.y;                                                               \
            }                                                                                   \
        }                                                                                       \
        float2 sum;                                                                             \
        sum.x = re;                                                                             \
        sum.y = im;                                                                             \
        out[place()] = sum;                                                                     \
    }

// As it comes: lanes are two values of 8 bytes apart.
#define AS_IT_COMES(j) (j)
#define NEXT_BUT_ONE(k) 2 * t + (k) + int(delay)
FIR(decimate_as_it_comes, 2 * FIR_BLOCK + TAPS + 2, AS_IT_COMES, AS_IT_COMES, NEXT_BUT_ONE)

// Even and odd values apart: lanes are neighbours. The distance has the halves in other banks.
#define APART 296
#define DELAYED(j) (j) + u64(delay)
#define BY_PHASE(j) (j) % 2 * APART + (j) / 2
#define NEIGHBOUR(k) (k) % 2 * APART + t + (k) / 2
FIR(decimate_by_phase, 2 * APART, DELAYED, BY_PHASE, NEIGHBOUR)

// ---- L2 thrashing: a Jacobi step of seven points on planes of 64 MiB -----------------------------

__device__ __forceinline__ float mean(float c, float w, float e, float s, float n, float d, float u) {
    return c * 0.25f + (w + e + s + n + d + u) * 0.125f;
}

// Vectors of 4 values; at the edges of a plane, a point is its own neighbour.
__device__ __forceinline__ void relax(const float4* u, float4* out, u64 part, u64 y, u64 z,
                                      u64 width, u64 rows) {
    const u64 x = part * 256 + threadIdx.x, at = (z * rows + y) * width + x;
    const float* flat = (const float*)u;
    const float4 c = u[at], down = u[at - rows * width], up = u[at + rows * width];
    const float4 south = u[y ? at - width : at], north = u[y + 1 < rows ? at + width : at];
    const float west = x ? flat[4 * at - 1] : c.x, east = x + 1 < width ? flat[4 * at + 4] : c.w;
    float4 v;
    v.x = mean(c.x, west, c.y, south.x, north.x, down.x, up.x);
    v.y = mean(c.y, c.x, c.z, south.y, north.y, down.y, up.y);
    v.z = mean(c.z, c.y, c.w, south.z, north.z, down.z, up.z);
    v.w = mean(c.w, c.z, east, south.w, north.w, down.w, up.w);
    out[at] = v;
}

// Sizes are (planes, rows, width vectors); the first and the last plane are kept. Blocks run in the
// order of x, y, z: here parts of a row, rows, planes.
KERNEL jacobi_plane_by_plane(const float4* u, float4* out, long long width, long long rows,
                             long long planes) {
    relax(u, out, blockIdx.x, blockIdx.y, blockIdx.z + 1, width, rows);
}

// All planes of gridDim.y rows, then the next rows.
KERNEL jacobi_slab_by_slab(const float4* u, float4* out, long long width, long long rows,
                           long long planes) {
    const u32 inner = u32(planes) - 2, slab = blockIdx.z / inner;
    relax(u, out, blockIdx.x, slab * gridDim.y + blockIdx.y, blockIdx.z % inner + 1, width, rows);
}

// ---- atomics: a bias gradient is the sum of the rows of (rows, columns); 64 rows a thread --------

KERNEL bias_gradient_by_value(const float* gradient, float* bias, long long columns) {
    const u64 column = u64(blockIdx.x) * 256 + threadIdx.x, first = u64(blockIdx.y) * 64;
#pragma unroll 1
    for (int r = 0; r < 64; r += 8) {
        float v[8];
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = gradient[(first + r + i) * columns + column];
#pragma unroll
        for (int i = 0; i < 8; i++) atomicAdd(bias + column, v[i]);
    }
}

KERNEL bias_gradient_by_thread(const float* gradient, float* bias, long long columns) {
    const u64 column = u64(blockIdx.x) * 256 + threadIdx.x, first = u64(blockIdx.y) * 64;
    float sum = 0;
#pragma unroll 8
    for (int r = 0; r < 64; r++) sum += gradient[(first + r) * columns + column];
    atomicAdd(bias + column, sum);
}
