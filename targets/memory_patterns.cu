// DRAM traffic with a chosen order: mixes of reads and writes, strided sectors, random gathers.
//
// Compiled by NVRTC from targets/memory_patterns.py, so there are no headers. Every kernel is a
// one-shot grid: each thread does a few accesses of 16 bytes and ends, so that the number of a
// block is, up to the few thousand blocks that are resident at a time, its place in time. Loads and
// stores are volatile assembly: none is left out, and none moves across another.
#ifndef UNROLL
#define UNROLL 4
#endif

typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ u32 load(const uint4* from) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from) : "memory");
    return v.x ^ v.y ^ v.z ^ v.w;
}

__device__ __forceinline__ u32 load(const uint2* from) {
    uint2 v;
    asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.x), "=r"(v.y) : "l"(from) : "memory");
    return v.x ^ v.y;
}

__device__ __forceinline__ u32 load(const u32* from) {
    u32 v;
    asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
    return v;
}

// Cached in L1: lanes and warps that share an index fetch it once.
__device__ __forceinline__ u32 load_index(const u32* from) {
    u32 v;
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
    return v;
}

// Bits that no compression or power saving can make use of: a multiplicative hash of the place.
__device__ __forceinline__ void store(uint4* to, u64 place) {
    const u32 h = u32(place) * 0x9E3779B9u;
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :: "l"(to), "r"(h), "r"(h ^ 0x85EBCA6Bu), "r"(h * 5u), "r"(~h) : "memory");
}

// Uses what was loaded without writing it: the value comes up once in four billion.
__device__ __forceinline__ void use(u32 bits, u32* sink) {
    if (bits == 0x5BD1E995u) *sink = bits;
}

__device__ __forceinline__ void read_tile(const uint4* src, u64 tile, u32* sink) {
    const u64 first = tile * (blockDim.x * UNROLL) + threadIdx.x;
    u32 bits[UNROLL];
#pragma unroll
    for (int i = 0; i < UNROLL; i++) bits[i] = load(src + first + i * blockDim.x);
    u32 all = 0;
#pragma unroll
    for (int i = 0; i < UNROLL; i++) all ^= bits[i];
    use(all, sink);
}

__device__ __forceinline__ void write_tile(uint4* dst, u64 tile) {
    const u64 first = tile * (blockDim.x * UNROLL) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < UNROLL; i++) store(dst + first + i * blockDim.x, first + i * blockDim.x);
}

// Runs of blocks: `read_run` blocks that only read, then `write_run` that only write, and again.
extern "C" __global__ void mix_runs(const uint4* src, uint4* dst, u32* sink, long long read_run,
                                    long long write_run) {
    const u32 reads = u32(read_run), writes = u32(write_run);
    const u32 period = blockIdx.x / (reads + writes), at = blockIdx.x % (reads + writes);
    if (at < reads) read_tile(src, u64(period) * reads + at, sink);
    else write_tile(dst, u64(period) * writes + at - reads);
}

// Alternation inside each warp: R loads, W stores, and again, `UNITS` times.
#define MIX_WARP(R, W, UNITS)                                                                    \
    extern "C" __global__ void mix_warp_##R##_##W(const uint4* src, uint4* dst, u32* sink) {     \
        const u64 block = blockIdx.x;                                                            \
        const uint4* from = src + block * (blockDim.x * R * UNITS) + threadIdx.x;                \
        const u64 place = block * (blockDim.x * W * UNITS) + threadIdx.x;                        \
        u32 bits[R * UNITS];                                                                     \
        _Pragma("unroll") for (int unit = 0; unit < UNITS; unit++) {                             \
            _Pragma("unroll") for (int i = 0; i < R; i++)                                        \
                bits[unit * R + i] = load(from + (unit * R + i) * blockDim.x);                   \
            _Pragma("unroll") for (int i = 0; i < W; i++)                                        \
                store(dst + place + (unit * W + i) * blockDim.x,                                 \
                      place + (unit * W + i) * blockDim.x);                                      \
        }                                                                                        \
        u32 all = 0;                                                                             \
        _Pragma("unroll") for (int i = 0; i < R * UNITS; i++) all ^= bits[i];                    \
        use(all, sink);                                                                          \
    }

MIX_WARP(7, 1, 1)
MIX_WARP(3, 1, 2)
MIX_WARP(2, 1, 2)
MIX_WARP(1, 1, 4)
MIX_WARP(1, 2, 2)

// Two lanes touch one sector of 32 bytes; the next sector is `stride` sectors on.
__device__ __forceinline__ u64 strided(int i, u64 stride) {
    const u64 v = u64(blockIdx.x) * (blockDim.x * UNROLL) + i * blockDim.x + threadIdx.x;
    return (v >> 1) * stride * 2 + (v & 1);
}

extern "C" __global__ void strided_read(const uint4* src, u32* sink, long long stride) {
    u32 bits[UNROLL], all = 0;
#pragma unroll
    for (int i = 0; i < UNROLL; i++) bits[i] = load(src + strided(i, stride));
#pragma unroll
    for (int i = 0; i < UNROLL; i++) all ^= bits[i];
    use(all, sink);
}

extern "C" __global__ void strided_write(uint4* dst, long long stride) {
#pragma unroll
    for (int i = 0; i < UNROLL; i++) store(dst + strided(i, stride), strided(i, stride));
}

// `LANES` neighbouring lanes fetch one item of LANES * sizeof(PART) bytes; they share its index.
#define GATHER(SIZE, PART, LANES)                                                                 \
    extern "C" __global__ void gather_##SIZE(const u32* index, const PART* table, u32* sink) {    \
        const u64 first = u64(blockIdx.x) * (blockDim.x * UNROLL) + threadIdx.x;                  \
        u64 item[UNROLL];                                                                         \
        u32 bits[UNROLL], all = 0;                                                                \
        _Pragma("unroll") for (int i = 0; i < UNROLL; i++)                                        \
            item[i] = load_index(index + (first + i * blockDim.x) / LANES);                       \
        _Pragma("unroll") for (int i = 0; i < UNROLL; i++)                                        \
            bits[i] = load(table + item[i] * LANES + (first + i * blockDim.x) % LANES);           \
        _Pragma("unroll") for (int i = 0; i < UNROLL; i++) all ^= bits[i];                        \
        use(all, sink);                                                                           \
    }

GATHER(4, u32, 1)
GATHER(8, uint2, 1)
GATHER(16, uint4, 1)
GATHER(32, uint4, 2)
GATHER(64, uint4, 4)
GATHER(128, uint4, 8)
