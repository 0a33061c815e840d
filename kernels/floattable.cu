// Looks up floats in tables that the host computes. Same results as src/op/kind/table.rs.
struct FloatTableParams {
    const float* table;             // [3][256]
};

template <class Src> struct FloatTable {
    typedef Floats3 Pixel;
    Src src;
    FloatTableParams p;
    __device__ Pixel found(Bytes pixel) const {
        return Pixel::of(p.table[pixel.r], p.table[256 + pixel.g], p.table[512 + pixel.b]);
    }
    __device__ Pixel at(int x, int y) const { return found(src.at(x, y)); }
    __device__ const auto& resampled() const { return src.resampled(); }
    __device__ Origin columns() const { return src.columns(); }
    __device__ Origin rows() const { return src.rows(); }
    __device__ Pixel of(Bytes pixel) const { return found(src.of(pixel)); }
};
