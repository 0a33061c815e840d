// Adds normal noise. Twin of src/op/noise/gaussian_noise.rs.
struct GaussianNoiseParams {
    float mean, sigma;          // in bytes
    unsigned key[2];
};

struct GaussianNoise {
    static __device__ unsigned char noisy(const GaussianNoiseParams& p, unsigned word, unsigned char byte) {
        return clamped((int)byte + (int)(p.mean + p.sigma * normal(word)));
    }
    static __device__ Bytes of(const GaussianNoiseParams& p, int x, int y, Bytes pixel) {
        const Words w = Words::of(p.key, x, y);
        const Bytes out = {noisy(p, w.word[0], pixel.r), noisy(p, w.word[1], pixel.g), noisy(p, w.word[2], pixel.b)};
        return out;
    }
};
