// Extends the image by repeating its border or mirroring it. Same results as
// src/op/spatial/border.rs, which describes the modes.
enum BorderMode { BORDER_EDGE, BORDER_REFLECT, BORDER_SYMMETRIC };

struct BorderParams {
    int left, top;                  // columns added at the left, rows added at the top
    int width, height;              // size of the input
    int mode, unused;
};

template <class Src> struct Border {
    typedef typename Src::Pixel Pixel;
    Src src;
    BorderParams p;
    __device__ Pixel at(int x, int y) const { return src.at(inside(x - p.left, p.width), inside(y - p.top, p.height)); }
    __device__ int inside(int at, int len) const {
        if (at >= 0 && at < len) return at;
        if (p.mode == BORDER_EDGE) return at < 0 ? 0 : len - 1;
        const int last = p.mode == BORDER_REFLECT ? len - 1 : len, period = 2 * last;
        if (period == 0) return 0;
        int place = at % period;
        if (place < 0) place += period;
        return place < len ? place : p.mode == BORDER_REFLECT ? period - place : period - 1 - place;
    }
};
