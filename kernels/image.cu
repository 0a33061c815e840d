// Pixel types, the images that every chain reads from, and replacements for CUDA's keywords and
// variables when a C++ compiler builds this source for the host. An image is any type with a member
// type `Pixel` and a function `at(x, y)`. An operator wraps an image and is itself an image. The
// structs `Roi` and `Floats` have the same layout as `RoiParams` and `FloatsParams` in
// src/op/kernel_text.rs.
//
// An operator that may follow the resampling in a tiled kernel (`Tiling` in src/op/kind/cuda.rs)
// has four more members. `resampled()` returns the resampling that it wraps, directly or through
// other operators. `columns()` and `rows()` map the columns and rows of its image to those of the
// resampled image. `of(pixel)` applies the operator to a pixel of the resampled image, to each
// channel separately.
#ifndef __CUDACC__
#define __device__
#define __global__
struct Index3 {
    unsigned x, y, z;
};
static thread_local Index3 threadIdx, blockIdx, blockDim, gridDim;
// Launch of a kernel on the host: runs all threads of all blocks, one after another. `params` holds
// the addresses of the arguments, like the parameter of cuLaunchKernel.
#define HOST_LAUNCH(kernel)                                                                                          \
    extern "C" void kernel##__host(void** params, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,  \
                                   unsigned bz) {                                                                    \
        gridDim = {gx, gy, gz};                                                                                      \
        blockDim = {bx, by, bz};                                                                                     \
        for (unsigned block = 0; block < gx * gy * gz; block++)                                                      \
            for (unsigned thread = 0; thread < bx * by * bz; thread++) {                                             \
                blockIdx = {block % gx, block / gx % gy, block / gx / gy};                                           \
                threadIdx = {thread % bx, thread / bx % by, thread / bx / by};                                       \
                kernel(*(const Sample**)params[0], *(int*)params[1], *(int*)params[2], *(int*)params[3]);            \
            }                                                                                                        \
    }
#else
#define HOST_LAUNCH(kernel)
#endif

// Mapping from the columns (or rows) of an operator's image to those of the resampled image. Column
// `p` in `begin..end` is column `at + step * p` of the resampled image. All other columns have the
// fill color. The same holds for rows.
struct Origin {
    int at, step, begin, end;
    // Origin for a mirrored image of length `len`.
    __device__ Origin mirrored(int len) const {
        const Origin origin = {at + step * (len - 1), -step, len - end, len - begin};
        return origin;
    }
    // Origin for a window that begins at column (or row) `first` of an image of length `len`. If
    // the window lies outside the image, none of its columns is in `begin..end`.
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

// Window of a decoded image, which is stored as decoded, without its EXIF orientation. `at` takes
// coordinates of the upright image.
struct Roi {
    typedef Bytes Pixel;
    const unsigned char* pixels;        // interleaved red, green, blue
    int pitch;                          // bytes per row
    int x, y, width, height;            // the window, in stored coordinates
    int stored_width, stored_height;    // size of the whole image
    int orientation;                    // flags: 1 swaps x and y; then 2 flips x, 4 flips y
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

// Upright window of floats, which operators on the host have computed.
struct Floats {
    typedef Floats3 Pixel;
    const float* pixels;                // interleaved red, green, blue
    int pitch;                          // floats per row
    int x, y, unused;
    __device__ Floats3 at(int px, int py) const {
        const float* at = pixels + (long long)(py - y) * pitch + 3 * (px - x);
        const Floats3 pixel = {at[0], at[1], at[2]};
        return pixel;
    }
};
