// Changes single pixels to white or black. Same results as src/op/noise/salt_and_pepper.rs.
struct SaltAndPepperParams {
    unsigned long long salt, noise;     // random words below `salt` become white, others below `noise` become black
    unsigned key[2];
    unsigned per_channel;               // 0 or 1
    unsigned padding;
};

struct SaltAndPepper {
    static __device__ unsigned char noisy(const SaltAndPepperParams& p, unsigned word, unsigned char byte) {
        return word < p.salt ? 255 : word < p.noise ? 0 : byte;
    }
    static __device__ Bytes of(const SaltAndPepperParams& p, int x, int y, Bytes pixel) {
        const Words w = Words::of(p.key, x, y);
        const bool each = p.per_channel == 1;
        const unsigned g = each ? w.word[1] : w.word[0], b = each ? w.word[2] : w.word[0];
        const Bytes out = {noisy(p, w.word[0], pixel.r), noisy(p, g, pixel.g), noisy(p, b, pixel.b)};
        return out;
    }
};
