// Brightness, contrast, saturation and hue as one linear map. Same results as src/op/colour/color_twist.rs.
struct ColorTwistParams {
    float matrix[3][3];
    float offset;
};

struct ColorTwist {
    static __device__ unsigned char channel(const float (&row)[3], float offset, Bytes pixel) {
        const float value = row[0] * (float)pixel.r + row[1] * (float)pixel.g + row[2] * (float)pixel.b + offset;
        const float cut = value < 0.0f ? 0.0f : value > 255.0f ? 255.0f : value;
        // 12582912 is 1.5 * 2^23. Floats of this size have no fraction bits, so the addition rounds
        // half to even.
        const float rounds = 12582912.0f;
        return (unsigned char)((cut + rounds) - rounds);
    }
    static __device__ Bytes of(const ColorTwistParams& p, Bytes pixel) {
        const Bytes out = {channel(p.matrix[0], p.offset, pixel), channel(p.matrix[1], p.offset, pixel), channel(p.matrix[2], p.offset, pixel)};
        return out;
    }
};
