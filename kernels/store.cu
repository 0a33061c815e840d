// The last step: element type and memory order of the tensor. Twin of src/output.rs.
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

// IEEE 754 binary16, nearest even.
struct F16 {
    typedef unsigned short type;
    static __device__ type of(float value) {
        const unsigned bits = bits_of(value), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
        if (size > 0x7f800000u) return (type)(sign | 0x7e00u | (size >> 13 & 0x3ffu));
        if (size >= 0x47800000u) return (type)(sign | 0x7c00u);
        // Below 2^-14 the unit is 2^-24; from 2^-25 downwards, ties included, nothing is left.
        if (size <= 0x33000000u) return (type)sign;
        const int small = size < 0x38800000u;
        const unsigned shift = small ? 126u - (size >> 23) : 13u;
        const unsigned mantissa = small ? (size & 0x7fffffu) | 0x800000u : size - 0x38000000u;
        const unsigned odd = mantissa >> shift & 1u;
        return (type)(sign | ((mantissa + (1u << (shift - 1)) - 1u + odd) >> shift));
    }
};

// The upper half of an f32, nearest even.
struct BF16 {
    typedef unsigned short type;
    static __device__ type of(float value) {
        const unsigned bits = bits_of(value);
        if ((bits & 0x7fffffffu) > 0x7f800000u) return (type)(bits >> 16 | 0x40u);
        return (type)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    }
};

struct Nchw {
    template <class Out, class Pixel>
    static __device__ void store(typename Out::type* out, int x, int y, int width, int height, Pixel p) {
        const long long plane = (long long)width * height, at = (long long)y * width + x;
        out[at] = Out::of(p.r);
        out[at + plane] = Out::of(p.g);
        out[at + 2 * plane] = Out::of(p.b);
    }
};

struct Nhwc {
    template <class Out, class Pixel>
    static __device__ void store(typename Out::type* out, int x, int y, int width, int height, Pixel p) {
        const long long at = 3 * ((long long)y * width + x);
        out[at] = Out::of(p.r);
        out[at + 1] = Out::of(p.g);
        out[at + 2] = Out::of(p.b);
    }
};
