// Blends of pairs of elements of tensors, for the kernels `mix` and `mix_masks`.
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

// Window of a pair, and the weight of a sample's own elements there.
struct Blend {
    int x, y, right, bottom;
    float weight;
};

template <class T> __device__ inline void exchange_elements(T* first, T* second) {
    const T value = *first;
    *first = *second;
    *second = value;
}

// Replaces two elements by their weighted sums. A weight of 0 exchanges them.
template <class Out>
__device__ inline void blend_elements(typename Out::type* first, typename Out::type* second, float weight) {
    if (weight == 0) return exchange_elements(first, second);
    const typename Out::type a = *first, b = *second;
    const float own = weight, other = 1.0f - own;
    const float p = Element<Out>::value(a), q = Element<Out>::value(b);
    *first = Element<Out>::of(own * p + other * q);
    *second = Element<Out>::of(own * q + other * p);
}
