// Restores frames of an old film: light of each colour is weighted, and flicker of frames and shade of rows are taken away.
#include "common.h"

constexpr int THREADS = 256;

struct Film {
    long long frames, colours, rows, cols;
    __host__ __device__ long long size() const { return frames * colours * rows * cols; }
};

struct Light {
    const float *flicker, *weights, *shades;
};

__device__ float restored(float value, Light light, int frame, int colour, int row) {
    return (value - light.flicker[frame]) * light.weights[colour] - light.shades[row];
}

// A thread for each number, which finds out of which frame, colour and row it is.
__global__ void restore_by_number(const float *seen, float *out, Light light, Film film) {
    long long at = blockIdx.x * (long long)THREADS + threadIdx.x;
    if (at >= film.size()) return;
    long long line = at / film.cols, row = line % film.rows, plane = line / film.rows;
    long long colour = plane % film.colours, frame = plane / film.colours;
    out[at] = restored(seen[at], light, frame, colour, row);
}

// A block for a piece of a row, whose place in the grid says of which row and plane it is.
__global__ void restore_by_place(const float *seen, float *out, Light light, Film film) {
    int col = blockIdx.x * THREADS + threadIdx.x, row = blockIdx.y, plane = blockIdx.z;
    if (col >= film.cols) return;
    int colour = plane % int(film.colours), frame = plane / int(film.colours);
    long long at = (plane * film.rows + row) * film.cols + col;
    out[at] = restored(seen[at], light, frame, colour, row);
}

__global__ void begin(float *numbers, long long size, float scale) {
    long long at = blockIdx.x * (long long)THREADS + threadIdx.x;
    unsigned key = unsigned(at) * 2654435761u;
    key = (key ^ key >> 15) * 2246822519u;
    if (at < size) numbers[at] = (key >> 8) * (scale / (1 << 24));
}

float *numbers_of(long long size, float scale) {
    float *numbers;
    CHECK(cudaMalloc(&numbers, size * sizeof(float)));
    begin<<<(size + THREADS - 1) / THREADS, THREADS>>>(numbers, size, scale);
    return numbers;
}

struct Studio {
    Film film;
    float *seen, *out;
    Light light;

    explicit Studio(Film film)
        : film(film), seen(numbers_of(film.size(), 1)), out(numbers_of(film.size(), 0)),
          light{numbers_of(film.frames, 0.1f), numbers_of(film.colours, 1), numbers_of(film.rows, 0.2f)} {}

    double run(bool by_place, int steps) {
        for (int k = 0; k < steps; ++k) {
            if (by_place) {
                dim3 grid((film.cols + THREADS - 1) / THREADS, film.rows, film.frames * film.colours);
                restore_by_place<<<grid, THREADS>>>(seen, out, light, film);
            } else {
                restore_by_number<<<(film.size() + THREADS - 1) / THREADS, THREADS>>>(seen, out, light, film);
            }
        }
        CHECK(cudaGetLastError());
        std::vector<float> found(1 << 20);
        CHECK(cudaMemcpy(found.data(), out, found.size() * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : found) sum += value;
        return sum / found.size();
    }
};

int main(int argc, char **argv) {
    turn();
    Studio studio(Film{24, 3, 1080, 1024});
    return measure("film_frames", argc, argv, 1000,
                   [&](bool repaired, int steps) { return studio.run(repaired, steps); });
}
