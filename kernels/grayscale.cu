// Replaces each channel by the pixel's luma. Same results as src/op/colour/grayscale.rs.
struct GrayscaleParams {
    unsigned padding[2];
};

struct Grayscale {
    static __device__ Bytes of(const GrayscaleParams&, Bytes pixel) {
        const unsigned char gray = luma(pixel);
        const Bytes out = {gray, gray, gray};
        return out;
    }
};
