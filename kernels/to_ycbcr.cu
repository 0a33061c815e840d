// JPEG's YCbCr with Pillow's rounding. Same results as src/op/colour/to_ycbcr.rs.
struct ToYcbcrParams {
    unsigned padding[2];
};

struct ToYcbcr {
    static __device__ int plus(int byte, int weight) { return (byte * weight + (1 << 14)) >> 15; }
    static __device__ int minus(int byte, int weight) { return greater(byte * weight - (1 << 14), 0) >> 15; }
    static __device__ Bytes of(const ToYcbcrParams&, Bytes pixel) {
        const int r = pixel.r, g = pixel.g, b = pixel.b, half = 32 << 15;
        const int y = plus(r, 627048) + plus(g, 1231028) + plus(b, 239075);
        const int cb = plus(b, half) - minus(r, 353873) - minus(g, 694703);
        const int cr = plus(r, half) - minus(g, 878057) - minus(b, 170519);
        const Bytes out = {(unsigned char)(y >> 6), (unsigned char)((cb >> 6) + 128), (unsigned char)((cr >> 6) + 128)};
        return out;
    }
};
