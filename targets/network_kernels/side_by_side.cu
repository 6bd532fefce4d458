// Each block copies a part of its own, four values of 16 bytes a thread in flight.
//
// Compiled by NVRTC. `count`: values of 16 bytes a block, a multiple of 4 times the threads.

struct alignas(16) value { unsigned word[4]; };

extern "C" __global__ void copy_parts(const value *in, value *out, long long count)
{
    in += blockIdx.x * count;
    out += blockIdx.x * count;
    for (long long first = threadIdx.x; first < count; first += 4 * blockDim.x) {
        value kept[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            kept[i] = in[first + i * blockDim.x];
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[first + i * blockDim.x] = kept[i];
    }
}
