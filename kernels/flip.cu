// Mirrors columns, rows or both. Same results as src/op/flip.rs.
struct FlipParams {
    int width, height;          // size of the whole image
    int horizontal, vertical;   // 0 or 1
};

template <class Src> struct Flip {
    typedef typename Src::Pixel Pixel;
    Src src;
    FlipParams p;
    __device__ Pixel at(int x, int y) const {
        return src.at(p.horizontal ? p.width - 1 - x : x, p.vertical ? p.height - 1 - y : y);
    }
    __device__ const auto& resampled() const { return src.resampled(); }
    __device__ Origin columns() const { return p.horizontal ? src.columns().mirrored(p.width) : src.columns(); }
    __device__ Origin rows() const { return p.vertical ? src.rows().mirrored(p.height) : src.rows(); }
    __device__ Pixel of(Bytes pixel) const { return src.of(pixel); }
};
