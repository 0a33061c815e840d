// Pixels, the images at the bottom of every chain, and what stands in for CUDA where a C++ compiler builds
// this text for the host. An image is anything with a type `Pixel` and a function `at(x, y)`; an operator
// wraps an image and is an image. Twin of the leaf structs in src/op/kernel_text.rs.
//
// An operator that may stand between resampling and the tensor of a tiled kernel (src/op/mod.rs, `Tiling`) has
// four members more: `resampled()`, the resampling below it; `columns()` and `rows()`, where its pixels come from
// in what that gives; and `of(pixel)`, what it makes of a pixel that comes from there, each channel by itself.
#ifndef __CUDACC__
#define __device__
#define __global__
struct Index3 {
    unsigned x, y, z;
};
static thread_local Index3 threadIdx, blockIdx, blockDim, gridDim;
#endif

// Where the columns, or the rows, of an image come from in the resampled one below it: number `p` of those from
// `begin` to before `end` is number `at + step * p` there. All others are fill.
struct Origin {
    int at, step, begin, end;
    // Of an image of `len` that is mirrored.
    __device__ Origin mirrored(int len) const {
        const Origin origin = {at + step * (len - 1), -step, len - end, len - begin};
        return origin;
    }
    // Of the window that begins at `first` of an image of `len`. Where that is far outside, nothing is left.
    __device__ Origin cut(int first, int len) const {
        const int low = begin > 0 ? begin : 0, high = end < len ? end : len;
        const Origin origin = {(int)((unsigned)at + (unsigned)step * (unsigned)first), step, low - first, high - first};
        return origin;
    }
};

struct Bytes {
    unsigned char r, g, b;
    static __device__ Bytes of(float r, float g, float b) {
        const Bytes pixel = {(unsigned char)r, (unsigned char)g, (unsigned char)b};
        return pixel;
    }
};

struct Floats3 {
    float r, g, b;
    static __device__ Floats3 of(float r, float g, float b) {
        const Floats3 pixel = {r, g, b};
        return pixel;
    }
};

// A window of a decoded image, as it is stored; coordinates are those of the upright image.
struct Roi {
    typedef Bytes Pixel;
    const unsigned char* pixels;        // interleaved red, green, blue
    int pitch;                          // bytes from a row to the next
    int x, y, width, height;            // the window, in stored coordinates
    int stored_width, stored_height;    // of the whole image
    int orientation;                    // 1 transpose, then 2 mirror columns, 4 mirror rows
    __device__ Bytes at(int px, int py) const {
        const bool transpose = orientation & 1;
        if (orientation & 2) px = (transpose ? stored_height : stored_width) - 1 - px;
        if (orientation & 4) py = (transpose ? stored_width : stored_height) - 1 - py;
        const int column = (transpose ? py : px) - x, row = (transpose ? px : py) - y;
        const unsigned char* at = pixels + (long long)row * pitch + 3 * column;
        const Bytes pixel = {at[0], at[1], at[2]};
        return pixel;
    }
};

// A window of floats, upright: what operators on the host left behind.
struct Floats {
    typedef Floats3 Pixel;
    const float* pixels;                // interleaved red, green, blue
    int pitch;                          // floats from a row to the next
    int x, y, unused;
    __device__ Floats3 at(int px, int py) const {
        const float* at = pixels + (long long)(py - y) * pitch + 3 * (px - x);
        const Floats3 pixel = {at[0], at[1], at[2]};
        return pixel;
    }
};
