// Batch operators: blends of pairs of samples in place, and the samples' soft targets. One thread per pixel of both
// tensors, blocks of 32 x 8 pixels, one grid layer per pair. Same results as src/transform/blend_pair.rs and
// src/op/batch/target.rs. The host prepends the types `Out` and `Order`, and PAIR_BYTES.

// Returns the index of one channel of the pixel (x, y) in the tensor.
__device__ inline long long place_of(Nchw, int x, int y, int channel, int width, int height) {
    return (long long)channel * width * height + (long long)y * width + x;
}
__device__ inline long long place_of(Nhwc, int x, int y, int channel, int width, int) {
    return 3 * ((long long)y * width + x) + channel;
}
__device__ inline long long place_of(Gray, int x, int y, int, int width, int) {
    return (long long)y * width + x;
}

struct Row {
    int labels[2];
    float values[3];
};

struct Sample {
    Out::type* images[2];
    float* targets[2];
    Row rows[2];
    int classes, count;
    Blend blends[4];
};

static_assert(sizeof(Sample) == PAIR_BYTES, "a pair's parameters are laid out differently on the host");

__device__ inline void write_target(const Row& row, float* out, int classes, int first, int step) {
    for (int at = first; at < classes; at += step)
        out[at] = at == row.labels[0] ? row.values[0] : at == row.labels[1] ? row.values[1] : row.values[2];
}

extern "C" __global__ void mix(const Sample* pairs, int count, int width, int height) {
    if ((int)blockIdx.z >= count) return;
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    const Sample& pair = pairs[blockIdx.z];
    const int columns = gridDim.x * blockDim.x, rows = gridDim.y * blockDim.y;
    for (int side = 0; side < 2; side++)
        if (pair.targets[side])
            write_target(pair.rows[side], pair.targets[side], pair.classes, y * columns + x, columns * rows);
    if (x >= width || y >= height) return;
    for (int at = 0; at < pair.count; at++) {
        const Blend& blend = pair.blends[at];
        if (x < blend.x || y < blend.y || x >= blend.right || y >= blend.bottom) continue;
        for (int channel = 0; channel < Order::CHANNELS; channel++) {
            const long long place = place_of(Order(), x, y, channel, width, height);
            blend_elements<Out>(pair.images[0] + place, pair.images[1] + place, blend.weight);
        }
    }
}

HOST_LAUNCH(mix)
