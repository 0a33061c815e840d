// Batch operators: blends of pairs of samples in place, and the samples' soft targets. One thread per pixel of both
// tensors, blocks of 32 x 8 pixels, one grid layer per pair. Same results as src/transform/blend_pair.rs and
// src/op/batch/target.rs. The host prepends the types `Out` and `Order`, and PAIR_BYTES.
__device__ inline float float_of(unsigned bits) {
    union {
        unsigned bits;
        float value;
    } both;
    both.bits = bits;
    return both.value;
}

// Conversions of an element of the tensor: `value` returns its exact value as a float. `of` returns
// the element that is nearest to a float, ties to even.
template <class Out> struct Element;
template <> struct Element<U8> {
    static __device__ float value(unsigned char byte) { return byte; }
    // Floats of at least 2^23 have no fraction bits, so adding 2^23 rounds to an integer. The
    // integer is then in the lowest bits.
    static __device__ unsigned char of(float value) { return (unsigned char)bits_of(value + 8388608.0f); }
};
template <> struct Element<F16> {
    static __device__ float value(unsigned short half) {
        const unsigned sign = (half & 0x8000u) << 16, size = half & 0x7fffu;
        if (size >= 0x7c00u) return float_of(sign | 0x7f800000u | (size & 0x3ffu) << 13);
        if (size >= 0x400u) return float_of(sign | ((size << 13) + 0x38000000u));
        return float_of(sign | bits_of((float)size * 5.9604644775390625e-8f));
    }
    static __device__ unsigned short of(float value) { return F16::of(value); }
};
template <> struct Element<BF16> {
    static __device__ float value(unsigned short half) { return float_of((unsigned)half << 16); }
    static __device__ unsigned short of(float value) { return BF16::of(value); }
};
template <> struct Element<F32> {
    static __device__ float value(float value) { return value; }
    static __device__ float of(float value) { return value; }
};

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

struct Blend {
    int x, y, right, bottom;
    float weight;
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
            Out::type *first = pair.images[0] + place, *second = pair.images[1] + place;
            const Out::type a = *first, b = *second;
            if (blend.weight == 0) {
                *first = b, *second = a;
                continue;
            }
            const float own = blend.weight, other = 1.0f - own;
            const float p = Element<Out>::value(a), q = Element<Out>::value(b);
            *first = Element<Out>::of(own * p + other * q);
            *second = Element<Out>::of(own * q + other * p);
        }
    }
}

HOST_LAUNCH(mix)
