// Blends each byte with the image's mean gray. Same results as src/op/colour/contrast.rs.
struct ContrastParams {
    float factor;
    unsigned padding;
};

struct Contrast {
    static __device__ unsigned char of(const ContrastParams& p, const Histograms& h, int, int byte) {
        unsigned long long count = 0, sum = 0;
        for (int i = 0; i < 256; ++i) {
            count += h.gray[i];
            sum += (unsigned long long)h.gray[i] * i;
        }
        const unsigned long long twice = count > 0 ? 2 * count : 1;
        return blend((unsigned char)((2 * sum + count) / twice), (unsigned char)byte, p.factor);
    }
};
