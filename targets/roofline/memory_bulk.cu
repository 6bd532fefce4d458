// Streams by the bulk copy engine (cp.async.bulk, compute capability 9.0 and later): one thread a
// block moves chunks between global and shared memory, STAGES of them in flight.
//
// The includer defines
//   CHUNK   bytes of a chunk, a multiple of 128
//   STAGES  chunks of shared memory of a block; dynamic shared memory = STAGES * CHUNK
//   EVICT   2: stores are marked as the first to leave the L2; 0 or nothing: they are not
// The block does chunks blockIdx.x, blockIdx.x + gridDim.x, ... below `total`, each modulo
// `chunks`, the number of chunks in a buffer: total > chunks passes over the buffer repeatedly.

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void open_barrier(unsigned barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void show_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void load_chunk(unsigned to, const char* from, unsigned barrier) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "n"(CHUNK)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(to),
        "l"(from), "n"(CHUNK), "r"(barrier)
        : "memory");
}

__device__ __forceinline__ void await(unsigned barrier, unsigned parity) {
    unsigned done = 0;
    while (!done)
        asm volatile(
            "{ .reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(barrier), "r"(parity)
            : "memory");
}

__device__ __forceinline__ void store_chunk(char* to, unsigned from) {
#if EVICT & 2
    unsigned long long policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::
                     "l"(to),
                 "r"(from), "n"(CHUNK), "l"(policy)
                 : "memory");
#else
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(from), "n"(CHUNK)
                 : "memory");
#endif
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

extern "C" __global__ void bulk_read(uint4* sink, const char* in, long long chunks,
                                     long long total) {
    extern __shared__ __align__(128) char stages[];
    __shared__ __align__(8) unsigned long long barriers[STAGES];
    if (threadIdx.x != 0) return;
    unsigned stage0 = shared_address(stages), barrier0 = shared_address(barriers);
    for (int s = 0; s < STAGES; ++s) open_barrier(barrier0 + 8 * s);
    show_barriers();
    long long issued = blockIdx.x, step = gridDim.x;
    long long position = issued % chunks, hop = step % chunks;
    for (int s = 0; s < STAGES && issued < total; ++s, issued += step) {
        load_chunk(stage0 + s * CHUNK, in + position * CHUNK, barrier0 + 8 * s);
        position += hop;
        if (position >= chunks) position -= chunks;
    }
    int s = 0;
    unsigned parity = 0;
    for (long long waited = blockIdx.x; waited < total; waited += step) {
        await(barrier0 + 8 * s, parity);
        if (issued < total) {
            load_chunk(stage0 + s * CHUNK, in + position * CHUNK, barrier0 + 8 * s);
            issued += step;
            position += hop;
            if (position >= chunks) position -= chunks;
        }
        if (++s == STAGES) {
            s = 0;
            parity ^= 1;
        }
    }
    const volatile unsigned* seen = (const volatile unsigned*)stages;
    if (seen[0] == 0x7fa1c3e5u && seen[1] == 0xffb2d4f6u) sink->x = seen[2];
}

extern "C" __global__ void bulk_write(char* out, const uint4* in, long long chunks,
                                      long long total) {
    extern __shared__ __align__(128) char stages[];
    for (unsigned i = threadIdx.x; i < STAGES * CHUNK / 16; i += blockDim.x)
        ((uint4*)stages)[i] = in[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x != 0) return;
    unsigned stage0 = shared_address(stages);
    long long step = gridDim.x, position = blockIdx.x % chunks, hop = step % chunks;
    int s = 0;
    for (long long i = blockIdx.x; i < total; i += step) {
        store_chunk(out + position * CHUNK, stage0 + s * CHUNK);
        position += hop;
        if (position >= chunks) position -= chunks;
        if (++s == STAGES) s = 0;
        // Reading shared memory is all that an older store may still do: bounds what is queued.
        asm volatile("cp.async.bulk.wait_group.read 8;" ::: "memory");
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

extern "C" __global__ void bulk_copy(char* out, const char* in, long long chunks,
                                     long long total) {
    extern __shared__ __align__(128) char stages[];
    __shared__ __align__(8) unsigned long long barriers[STAGES];
    if (threadIdx.x != 0) return;
    unsigned stage0 = shared_address(stages), barrier0 = shared_address(barriers);
    for (int s = 0; s < STAGES; ++s) open_barrier(barrier0 + 8 * s);
    show_barriers();
    long long step = gridDim.x, issued = blockIdx.x;
    // One stage less than there are: the last is being stored from while the next is loaded to.
    // A single stage is for blocks of a single chunk.
    for (int s = 0; s < (STAGES > 1 ? STAGES - 1 : 1) && issued < total; ++s, issued += step)
        load_chunk(stage0 + s * CHUNK, in + (issued % chunks) * CHUNK, barrier0 + 8 * s);
    int s = 0, refill = STAGES - 1;
    unsigned parity = 0;
    for (long long i = blockIdx.x; i < total; i += step) {
        await(barrier0 + 8 * s, parity);
        store_chunk(out + (i % chunks) * CHUNK, stage0 + s * CHUNK);
        // The store before this one has read its stage, which is the one to refill.
        asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
        if (issued < total) {
            load_chunk(stage0 + refill * CHUNK, in + (issued % chunks) * CHUNK,
                       barrier0 + 8 * refill);
            issued += step;
        }
        refill = s;
        if (++s == STAGES) {
            s = 0;
            parity ^= 1;
        }
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
