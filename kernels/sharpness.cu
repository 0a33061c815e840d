// Blends the image with a smoothed version. Same results as src/op/filter/sharpness.rs.
struct SharpnessParams {
    float factor;
    unsigned padding;
};

struct Sharpness {
    // Returns the smoothed value of a channel. `sum` is the sum of the channel's 3 x 3
    // neighbourhood.
    static __device__ unsigned char smooth(int sum, unsigned char middle) { return (unsigned char)((2 * (sum + 4 * middle) + 13) / 26); }
    // `around` is the neighbourhood in row order. Pixels at the border of the image are not changed.
    static __device__ Bytes of(const SharpnessParams& p, const Bytes (&around)[9]) {
        int r = 0, g = 0, b = 0;
        for (int i = 0; i < 9; ++i) r += around[i].r, g += around[i].g, b += around[i].b;
        const Bytes middle = around[4], smoothed = {smooth(r, middle.r), smooth(g, middle.g), smooth(b, middle.b)};
        return blend(smoothed, middle, p.factor);
    }
};
