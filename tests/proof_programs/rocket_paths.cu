// Follows a million possible paths of a rocket among planets, moons and clouds of dust, each of which pulls it in its way.
#include "common.h"
#include <new>

constexpr int ROCKETS = 1 << 20, THREADS = 256, MOMENTS = 32, BODIES = 12, OF_A_KIND = BODIES / 3;

struct Place {
    float x, y, z, weight;
};

__device__ float3 pull_of_planet(const Place &p, float3 at) {
    float x = p.x - at.x, y = p.y - at.y, z = p.z - at.z;
    float near = rsqrtf(x * x + y * y + z * z + 0.01f), by = p.weight * near * near * near;
    return make_float3(by * x, by * y, by * z);
}

__device__ float3 pull_of_moon(const Place &p, float3 at) {
    float x = p.x - at.x, y = p.y - at.y, z = p.z - at.z;
    float near = rsqrtf(x * x + y * y + z * z + 0.01f), square = near * near;
    float by = p.weight * square * near * (1 + 0.1f * square * (1 - 3 * z * z * square));
    return make_float3(by * x, by * y, by * z);
}

__device__ float3 pull_of_cloud(const Place &p, float3 at) {
    float x = p.x - at.x, y = p.y - at.y, z = p.z - at.z;
    float by = __fdividef(p.weight, 1 + x * x + y * y + z * z);
    return make_float3(by * x, by * y, by * z);
}

struct Body {
    Place place;
    __device__ virtual float3 pull(float3 at) const = 0;
};

struct Planet : Body {
    __device__ float3 pull(float3 at) const override { return pull_of_planet(place, at); }
};

struct Moon : Body {
    __device__ float3 pull(float3 at) const override { return pull_of_moon(place, at); }
};

struct Cloud : Body {
    __device__ float3 pull(float3 at) const override { return pull_of_cloud(place, at); }
};

__device__ void add(float3 &sum, float3 by) { sum.x += by.x, sum.y += by.y, sum.z += by.z; }

// All bodies, whatever they are.
struct Any {
    const Body *const *bodies;

    __device__ float3 operator()(float3 at) const {
        float3 sum = make_float3(0, 0, 0);
        for (int k = 0; k < BODIES; ++k) add(sum, bodies[k]->pull(at));
        return sum;
    }
};

// All planets, then all moons, then all clouds.
struct Kinds {
    const Place *places;

    __device__ float3 operator()(float3 at) const {
        float3 sum = make_float3(0, 0, 0);
        for (int k = 0; k < OF_A_KIND; ++k) add(sum, pull_of_planet(places[k], at));
        for (int k = 0; k < OF_A_KIND; ++k) add(sum, pull_of_moon(places[OF_A_KIND + k], at));
        for (int k = 0; k < OF_A_KIND; ++k) add(sum, pull_of_cloud(places[2 * OF_A_KIND + k], at));
        return sum;
    }
};

template <class Pull>
__device__ void fly(Pull pull, float3 *rockets, float start) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float3 at = make_float3(start + i * 1e-6f, 0.3f - i * 5e-7f, 0.1f), speed = make_float3(0, 0.2f, 0.1f);
    for (int moment = 0; moment < MOMENTS; ++moment) {
        float3 by = pull(at);
        speed.x += 0.01f * by.x, speed.y += 0.01f * by.y, speed.z += 0.01f * by.z;
        at.x += 0.01f * speed.x, at.y += 0.01f * speed.y, at.z += 0.01f * speed.z;
    }
    rockets[i] = at;
}

__global__ void fly_by_any(const Body *const *bodies, float3 *rockets, float start) { fly(Any{bodies}, rockets, start); }

__global__ void fly_by_kinds(const Place *places, float3 *rockets, float start) { fly(Kinds{places}, rockets, start); }

union Room {
    Place place;
    char bytes[64];
};

__global__ void create(Room *rooms, const Body **bodies, Place *places) {
    for (int k = 0; k < BODIES; ++k) {
        places[k] = {1.5f + 0.7f * k, 0.9f * (k % 3) - 1, 0.4f * (k % 5) - 0.8f, 0.2f + 0.05f * k};
        Body *body;
        if (k < OF_A_KIND)
            body = new (rooms + k) Planet;
        else if (k < 2 * OF_A_KIND)
            body = new (rooms + k) Moon;
        else
            body = new (rooms + k) Cloud;
        body->place = places[k];
        bodies[k] = body;
    }
}

int main(int argc, char **argv) {
    turn();
    Room *rooms;
    const Body **bodies;
    Place *places;
    float3 *rockets;
    CHECK(cudaMalloc(&rooms, BODIES * sizeof(Room)));
    CHECK(cudaMalloc(&bodies, BODIES * sizeof(Body *)));
    CHECK(cudaMalloc(&places, BODIES * sizeof(Place)));
    CHECK(cudaMalloc(&rockets, ROCKETS * sizeof(float3)));
    create<<<1, 1>>>(rooms, bodies, places);
    CHECK(cudaDeviceSynchronize());
    return measure("rocket_paths", argc, argv, 1000, [&](bool repaired, int steps) {
        for (int step = 0; step < steps; ++step) {
            float start = 0.1f + 0.01f * (step % 10);
            if (repaired)
                fly_by_kinds<<<ROCKETS / THREADS, THREADS>>>(places, rockets, start);
            else
                fly_by_any<<<ROCKETS / THREADS, THREADS>>>(bodies, rockets, start);
        }
        CHECK(cudaGetLastError());
        std::vector<float3> some(1 << 16);
        CHECK(cudaMemcpy(some.data(), rockets, some.size() * sizeof(float3), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float3 at : some) sum += at.x + 2 * at.y + 3 * at.z;
        return sum / some.size();
    });
}
