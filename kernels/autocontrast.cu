// Stretches each channel to 0..=255, in double precision like Pillow. Same results as src/op/colour/autocontrast.rs.
struct AutocontrastParams {
    unsigned padding[2];
};

struct Autocontrast {
    static __device__ unsigned char of(const AutocontrastParams&, const Histograms& h, int channel, int byte) {
        int low = 0, high = 255;
        while (low < 255 && h.channel[channel][low] == 0) ++low;
        while (high > 0 && h.channel[channel][high] == 0) --high;
        if (high <= low) return (unsigned char)byte;
        const double scale = 255.0 / (double)(high - low), offset = -(double)low * scale;
        const double value = (double)byte * scale + offset;
        return value <= 0.0 ? 0 : value >= 255.0 ? 255 : (unsigned char)value;
    }
};
