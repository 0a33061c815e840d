// Last step: conversion to the element type and memory order of the tensor. Same results as src/output.rs.
__device__ inline unsigned bits_of(float value) {
    union {
        float value;
        unsigned bits;
    } both;
    both.value = value;
    return both.bits;
}

struct U8 {
    typedef unsigned char type;
    static __device__ type of(unsigned char byte) { return byte; }
    static __device__ type of(float) = delete;
};

struct F32 {
    typedef float type;
    static __device__ type of(float value) { return value; }
};

// Conversion to IEEE 754 binary16, rounded to nearest even.
struct F16 {
    typedef unsigned short type;
    static __device__ type of(float value) {
        const unsigned bits = bits_of(value), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
        if (size > 0x7f800000u) return (type)(sign | 0x7e00u | (size >> 13 & 0x3ffu));
        if (size >= 0x47800000u) return (type)(sign | 0x7c00u);
        // Below 2^-14, binary16 numbers are multiples of 2^-24. Values up to half of that, 2^-25,
        // become 0.
        if (size <= 0x33000000u) return (type)sign;
        const int small = size < 0x38800000u;
        const unsigned shift = small ? 126u - (size >> 23) : 13u;
        const unsigned mantissa = small ? (size & 0x7fffffu) | 0x800000u : size - 0x38000000u;
        const unsigned odd = mantissa >> shift & 1u;
        return (type)(sign | ((mantissa + (1u << (shift - 1)) - 1u + odd) >> shift));
    }
};

// Conversion to bfloat16, the upper half of an f32, rounded to nearest even.
struct BF16 {
    typedef unsigned short type;
    static __device__ type of(float value) {
        const unsigned bits = bits_of(value);
        if ((bits & 0x7fffffffu) > 0x7f800000u) return (type)(bits >> 16 | 0x40u);
        return (type)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    }
};

// Four adjacent elements, which one instruction stores.
template <class T> struct alignas(4 * sizeof(T)) Four {
    T of[4];
};
template <class T> __device__ inline void store_side_by_side(T* at, T a, T b, T c, T d) {
    const Four<T> four = {{a, b, c, d}};
    *(Four<T>*)at = four;
}

// Memory order of a pixel's elements. `store` converts a pixel and stores it. `store_four` stores
// four adjacent pixels that are already converted, given as four elements per channel. The tensor
// must be aligned for four elements, and the width and the first column must be multiples of four.
struct Nchw {
    static const int CHANNELS = 3;
    template <class Out, class Pixel>
    static __device__ void store(typename Out::type* out, int x, int y, int width, int height, Pixel p) {
        const typename Out::type elements[3] = {Out::of(p.r), Out::of(p.g), Out::of(p.b)};
        store_elements<Out>(out, x, y, width, height, elements);
    }
    template <class Out>
    static __device__ void store_elements(typename Out::type* out, int x, int y, int width, int height,
                                          const typename Out::type p[3]) {
        const long long plane = (long long)width * height;
        for (int channel = 0; channel < 3; channel++) out[y * width + x + channel * plane] = p[channel];
    }
    template <class Out>
    static __device__ void store_four(typename Out::type* out, int x, int y, int width, int height,
                                      const typename Out::type p[3][4]) {
        const long long plane = (long long)width * height;
        typename Out::type* at = out + (y * width + x);
        for (int channel = 0; channel < 3; channel++) {
            const typename Out::type* of = p[channel];
            store_side_by_side(at + channel * plane, of[0], of[1], of[2], of[3]);
        }
    }
};

struct Nhwc {
    static const int CHANNELS = 3;
    template <class Out, class Pixel>
    static __device__ void store(typename Out::type* out, int x, int y, int width, int height, Pixel p) {
        const typename Out::type elements[3] = {Out::of(p.r), Out::of(p.g), Out::of(p.b)};
        store_elements<Out>(out, x, y, width, height, elements);
    }
    template <class Out>
    static __device__ void store_elements(typename Out::type* out, int x, int y, int width, int,
                                          const typename Out::type p[3]) {
        typename Out::type* at = out + 3ll * (y * width + x);
        for (int channel = 0; channel < 3; channel++) at[channel] = p[channel];
    }
    template <class Out>
    static __device__ void store_four(typename Out::type* out, int x, int y, int width, int,
                                      const typename Out::type p[3][4]) {
        typename Out::type* at = out + 3ll * (y * width + x);
        store_side_by_side(at, p[0][0], p[1][0], p[2][0], p[0][1]);
        store_side_by_side(at + 4, p[1][1], p[2][1], p[0][2], p[1][2]);
        store_side_by_side(at + 8, p[2][2], p[0][3], p[1][3], p[2][3]);
    }
};

// Stores one channel, the first of the three equal channels of a gray image, in both layouts.
struct Gray {
    static const int CHANNELS = 1;
    template <class Out, class Pixel>
    static __device__ void store(typename Out::type* out, int x, int y, int width, int, Pixel p) {
        out[y * width + x] = Out::of(p.r);
    }
    template <class Out>
    static __device__ void store_elements(typename Out::type* out, int x, int y, int width, int,
                                          const typename Out::type p[3]) {
        out[y * width + x] = p[0];
    }
    template <class Out>
    static __device__ void store_four(typename Out::type* out, int x, int y, int width, int,
                                      const typename Out::type p[3][4]) {
        store_side_by_side(out + (y * width + x), p[0][0], p[0][1], p[0][2], p[0][3]);
    }
};
