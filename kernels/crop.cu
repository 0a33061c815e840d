// Window of the image, with a fill color outside the image. Same results as src/op/crop.rs. All
// crop operators use this kind of action.
struct CropParams {
    int x, y, width, height;        // the window, which may begin left of or above the image
    int src_width, src_height;
    float fill[3];
    int drops_objects;              // this setting changes only boxes, so the kernel does not read it
};

template <class Src> struct Crop {
    typedef typename Src::Pixel Pixel;
    Src src;
    CropParams p;
    __device__ Pixel at(int x, int y) const {
        x += p.x;
        y += p.y;
        if (x < 0 || y < 0 || x >= p.src_width || y >= p.src_height)
            return Pixel::of(p.fill[0], p.fill[1], p.fill[2]);
        return src.at(x, y);
    }
    __device__ const auto& resampled() const { return src.resampled(); }
    __device__ Origin columns() const { return src.columns().cut(p.x, p.src_width); }
    __device__ Origin rows() const { return src.rows().cut(p.y, p.src_height); }
    __device__ Pixel of(Bytes pixel) const { return src.of(pixel); }
};
