// Blends the image with Pillow's SHARPEN filter. Same results as src/op/filter/sharpen.rs.
struct SharpenParams {
    float amount;
    unsigned padding;
};

struct Sharpen {
    // Returns the filtered value of a channel. `sum` is the sum of the channel's 3 x 3
    // neighbourhood.
    static __device__ unsigned char sharp(int sum, unsigned char middle) { return clamped((34 * middle - 2 * sum + 8) >> 4); }
    // `around` is the neighbourhood in row order. Pixels at the border of the image are not changed.
    static __device__ Bytes of(const SharpenParams& p, const Bytes (&around)[9]) {
        int r = 0, g = 0, b = 0;
        for (int i = 0; i < 9; ++i) r += around[i].r, g += around[i].g, b += around[i].b;
        const Bytes middle = around[4], sharpened = {sharp(r, middle.r), sharp(g, middle.g), sharp(b, middle.b)};
        return blend(middle, sharpened, p.amount);
    }
};
