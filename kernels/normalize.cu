// (value / 255 - mean) / std, each step rounded to f32. Twin of src/op/normalize.rs.
struct NormalizeParams {
    float mean[3], std[3];
};

template <class Src> struct Normalize {
    typedef Floats3 Pixel;
    Src src;
    NormalizeParams p;
    __device__ float value(int channel, unsigned char byte) const {
        return ((float)byte / 255.0f - p.mean[channel]) / p.std[channel];
    }
    __device__ Pixel normalized(Bytes pixel) const {
        return Pixel::of(value(0, pixel.r), value(1, pixel.g), value(2, pixel.b));
    }
    __device__ Pixel at(int x, int y) const { return normalized(src.at(x, y)); }
    __device__ const auto& resampled() const { return src.resampled(); }
    __device__ Origin columns() const { return src.columns(); }
    __device__ Origin rows() const { return src.rows(); }
    __device__ Pixel of(Bytes pixel) const { return normalized(src.of(pixel)); }
};
