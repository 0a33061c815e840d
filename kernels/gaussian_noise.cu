// Adds normally distributed noise. Same results as src/op/noise/gaussian_noise.rs.
struct GaussianNoiseParams {
    float mean, sigma;          // on the scale of a byte: 255 is white
    unsigned key[2];
    unsigned is_gray, padding;  // is_gray: 1 if all channels have the noise of the first
};

struct GaussianNoise {
    static __device__ unsigned char noisy(const GaussianNoiseParams& p, float normal, unsigned char byte) {
        return clamped((int)byte + (int)(p.mean + p.sigma * normal));
    }
    static __device__ Bytes of(const GaussianNoiseParams& p, int x, int y, Bytes pixel) {
        const Floats3 each = normals(Words::of(p.key, x, y));
        const Floats3 n = p.is_gray ? Floats3::of(each.r, each.r, each.r) : each;
        const Bytes out = {noisy(p, n.r, pixel.r), noisy(p, n.g, pixel.g), noisy(p, n.b, pixel.b)};
        return out;
    }
};
