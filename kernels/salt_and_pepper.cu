// Turns single pixels white or black. Twin of src/op/formula/salt_and_pepper.rs.
struct SaltAndPepperParams {
    unsigned long long salt, noise;     // words below are white; others below are black
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
        const unsigned each = p.per_channel;
        const Bytes out = {noisy(p, w.word[0], pixel.r), noisy(p, w.word[each], pixel.g), noisy(p, w.word[2 * each], pixel.b)};
        return out;
    }
};
