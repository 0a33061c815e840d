// (byte - mean) / (deviation + 1e-4) with the image's own statistics. Same results as src/op/colour/normalize_image.rs.
struct NormalizeImageParams {
    unsigned per_channel;       // 0 or 1
    unsigned padding;
};

struct NormalizeImage {
    static __device__ unsigned long long bin(const NormalizeImageParams& p, const Histograms& h, int channel, int byte) {
        if (p.per_channel == 1) return h.channel[channel][byte];
        return (unsigned long long)h.channel[0][byte] + h.channel[1][byte] + h.channel[2][byte];
    }
    static __device__ float of(const NormalizeImageParams& p, const Histograms& h, int channel, int byte) {
        unsigned long long pixels = 0, sum = 0;
        for (int i = 0; i < 256; ++i) {
            pixels += bin(p, h, channel, i);
            sum += bin(p, h, channel, i) * i;
        }
        const double count = (double)(pixels > 0 ? pixels : 1), mean = (double)sum / count;
        double squares = 0.0;
        for (int i = 0; i < 256; ++i) {
            const double distance = (double)i - mean;
            squares += (double)bin(p, h, channel, i) * (distance * distance);
        }
        const double deviation = sqrt(squares / count) + 1e-4, value = ((double)byte - mean) / deviation;
        return (float)(value < -20.0 ? -20.0 : value > 20.0 ? 20.0 : value);
    }
};
