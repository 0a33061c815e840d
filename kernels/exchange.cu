// Exchanges parts of pairs of masks in place, as batch operators exchange parts of their images. One thread per pixel of
// both masks, blocks of 32 x 8 pixels, one grid layer per pair. Same results as `exchange` in
// src/transform/blend_pair.rs. The host prepends PAIR_BYTES.
struct Window {
    int x, y, right, bottom;
};

struct Sample {
    void* masks[2];
    int element_bytes, count;       // 1, 4 or 8 bytes; number of windows
    Window windows[4];
};

static_assert(sizeof(Sample) == PAIR_BYTES, "a pair's parameters are laid out differently on the host");

template <class T> __device__ inline void exchange_at(const Sample& pair, long long place) {
    T *first = (T*)pair.masks[0] + place, *second = (T*)pair.masks[1] + place;
    const T value = *first;
    *first = *second;
    *second = value;
}

extern "C" __global__ void exchange(const Sample* pairs, int count, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if ((int)blockIdx.z >= count || x >= width || y >= height) return;
    const Sample& pair = pairs[blockIdx.z];
    const long long place = (long long)y * width + x;
    for (int at = 0; at < pair.count; at++) {
        const Window& window = pair.windows[at];
        if (x < window.x || y < window.y || x >= window.right || y >= window.bottom) continue;
        if (pair.element_bytes == 1) exchange_at<unsigned char>(pair, place);
        else if (pair.element_bytes == 4) exchange_at<unsigned>(pair, place);
        else exchange_at<unsigned long long>(pair, place);
    }
}

HOST_LAUNCH(exchange)
