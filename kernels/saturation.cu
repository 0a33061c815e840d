// Blends each pixel with its gray. Same results as src/op/colour/saturation.rs.
struct SaturationParams {
    float factor;
    unsigned padding;
};

struct Saturation {
    static __device__ Bytes of(const SaturationParams& p, Bytes pixel) {
        const unsigned char gray = luma(pixel);
        const Bytes degenerate = {gray, gray, gray};
        return blend(degenerate, pixel, p.factor);
    }
};
