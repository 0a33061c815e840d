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
#define NOT_INLINE
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
#define NOT_INLINE __noinline__
#define HOST_LAUNCH(kernel)
#endif

__device__ inline int smaller(int a, int b) { return a < b ? a : b; }
__device__ inline int larger(int a, int b) { return a < b ? b : a; }

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

// How the samples of a `Roi` are stored. Same values as `format` in src/op/kernel_text.rs.
enum RoiFormat {
    INTERLEAVED,    // red, green and blue of each pixel, one after another
    GRAY,           // a plane of luma
    CHROMA,         // a plane of luma and two planes of chroma, with fewer samples than luma or as many
};

// Window of a decoded image, which is stored as decoded, without its EXIF orientation. `at` takes
// coordinates of the upright image.
struct Roi {
    typedef Bytes Pixel;
    const unsigned char* pixels;        // interleaved red, green, blue, or luma
    int pitch;                          // bytes per row
    int x, y, width, height;            // the window, in stored coordinates
    int stored_width, stored_height;    // size of the whole image
    int orientation;                    // flags: 1 swaps x and y; then 2 flips x, 4 flips y
    const unsigned char *blue, *red;    // planes of chroma, whose first samples belong to the window's first pixel
    int format;                         // a RoiFormat
    int across, down;                   // luma samples per chroma sample: 2^across in a row, 2^down in a column
    int chroma_pitch;                   // bytes per row of chroma
    int chroma_columns, chroma_rows;    // size of the planes of chroma, without samples outside of the image
    // Position in the window.
    struct Position {
        int column, row;
    };
    __device__ Bytes at(int px, int py) const {
        const Position it = position(px, py);
        return format == INTERLEAVED ? of_interleaved(it) : of_planes(it);
    }

    __device__ Position position(int px, int py) const {
        const bool transpose = orientation & 1;
        if (orientation & 2) px = (transpose ? stored_height : stored_width) - 1 - px;
        if (orientation & 4) py = (transpose ? stored_width : stored_height) - 1 - py;
        const Position it = {(transpose ? py : px) - x, (transpose ? px : py) - y};
        return it;
    }
    __device__ Bytes of_interleaved(Position it) const {
        const unsigned char* at = pixels + (long long)it.row * pitch + 3 * it.column;
        const Bytes pixel = {at[0], at[1], at[2]};
        return pixel;
    }
    // Not inlined, so that reading of interleaved pixels needs no more registers.
    NOT_INLINE __device__ Bytes of_planes(Position it) const {
        const int column = it.column, row = it.row;
        const int luma = pixels[(long long)row * pitch + column];
        const int cb = format == CHROMA ? chroma_at(blue, column, row) - 128 : 0;
        const int cr = format == CHROMA ? chroma_at(red, column, row) - 128 : 0;
        // JFIF's factors, with 16 fractional bits (jdcolor.c).
        return clamped(luma + ((91881 * cr + 32768) >> 16), luma + ((-22554 * cb - 46802 * cr + 32768) >> 16),
                       luma + ((116130 * cb + 32768) >> 16));
    }

    // Returns a chroma value at a pixel. Along each axis with two luma samples per chroma sample,
    // the value is interpolated between the two nearest samples, with weights 3 and 1
    // (`fancy_upsampling` in jdsample.c). Beyond the edge of the image, the last sample is repeated.
    __device__ int chroma_at(const unsigned char* plane, int column, int row) const {
        const int x = column >> across, y = row >> down;
        const int next_x = column & 1 ? x + 1 : x - 1, next_y = row & 1 ? y + 1 : y - 1;
        const int beside = across == 1 ? larger(0, smaller(next_x, chroma_columns - 1)) : x;
        const int below = down == 1 ? larger(0, smaller(next_y, chroma_rows - 1)) : y;
        const unsigned char* near = plane + (long long)y * chroma_pitch;
        const unsigned char* far = plane + (long long)below * chroma_pitch;
        const int here = 3 * near[x] + far[x], there = 3 * near[beside] + far[beside];
        return (3 * here + there + rounding(column, row)) >> 4;
    }

    // Returns what is added to 16 times a chroma value before the division.
    __device__ int rounding(int column, int row) const {
        if (across == 1) return down == 1 ? 8 - (column & 1) : 4 + 4 * (column & 1);
        return down == 1 ? 4 + 4 * (row & 1) : 0;
    }

    static __device__ Bytes clamped(int r, int g, int b) {
        const Bytes pixel = {(unsigned char)larger(0, smaller(r, 255)), (unsigned char)larger(0, smaller(g, 255)),
                             (unsigned char)larger(0, smaller(b, 255))};
        return pixel;
    }
};

// The same image, if its format is known. In loops, this is faster than `Roi`.
struct InterleavedRoi : Roi {
    __device__ Bytes at(int px, int py) const { return of_interleaved(position(px, py)); }
};
struct PlanesRoi : Roi {
    __device__ Bytes at(int px, int py) const { return of_planes(position(px, py)); }
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
