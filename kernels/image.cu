// Pixels, the images at the bottom of every chain, and what stands in for CUDA where a C++ compiler builds
// this text for the host. An image is anything with a type `Pixel` and a function `at(x, y)`; an operator
// wraps an image and is an image. Twin of the leaf structs in src/op/kernel_text.rs.
#ifndef __CUDACC__
#define __device__
#define __global__
struct Index3 {
    unsigned x, y, z;
};
static thread_local Index3 threadIdx, blockIdx, blockDim, gridDim;
#endif

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

// A window of a decoded picture, as it is stored; coordinates are those of the upright picture.
struct Roi {
    typedef Bytes Pixel;
    const unsigned char* pixels;        // interleaved red, green, blue
    int pitch;                          // bytes from a row to the next
    int x, y, width, height;            // the window, in stored coordinates
    int stored_width, stored_height;    // of the whole picture
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
