// Equalizes the histogram of each channel. Same results as src/op/colour/equalize.rs.
struct EqualizeParams {
    unsigned padding[2];
};

struct Equalize {
    static __device__ unsigned char of(const EqualizeParams&, const Histograms& h, int channel, int byte) {
        unsigned long long count = 0, below = 0;
        unsigned last = 0;
        for (int i = 0; i < 256; ++i) {
            const unsigned pixels = h.channel[channel][i];
            if (i < byte) below += pixels;
            if (pixels > 0) last = pixels;
            count += pixels;
        }
        const unsigned long long step = (count - last) / 255;
        if (step == 0) return (unsigned char)byte;
        const unsigned long long level = (step / 2 + below) / step;
        return (unsigned char)(level < 255 ? level : 255);
    }
};
