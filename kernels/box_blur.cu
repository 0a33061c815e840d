// Pillow's GaussianBlur: three box filters along rows, then three along columns. Each filter rounds
// its result to bytes. Same results as src/op/filter/box_blur/mod.rs. The thread of an output pixel
// itself computes all intermediate pixels that it needs.
struct BoxBlurredParams {
    unsigned radius;            // at most REACH - 1
    unsigned weight, far;       // 2^24 times the weight of a pixel within the radius, and of a pixel just beyond it
    int width, height;          // size of the image
    int unused;
};

template <class Src> struct BoxBlurred {
    typedef Bytes Pixel;
    Src src;
    BoxBlurredParams p;
    enum { REACH = 2, PASSES = 3, MIDDLE = REACH * PASSES, LINE = 2 * MIDDLE + 1 };

    __device__ Bytes at(int x, int y) const {
        Bytes column[LINE], row[LINE];
        // The three passes along one axis read this many pixels on each side. Only these elements
        // of `row` and `column` are filled.
        const int around = reach() * PASSES;
        for (int j = -around; j <= around; j++) {
            if (y + j < 0 || y + j >= p.height) continue;
            for (int i = -around; i <= around; i++)
                if (x + i >= 0 && x + i < p.width) row[MIDDLE + i] = src.at(x + i, y + j);
            column[MIDDLE + j] = filtered(row, x, p.width);
        }
        return filtered(column, y, p.height);
    }

    // Number of pixels on each side that a pass reads, at most REACH.
    __device__ int reach() const { return (int)p.radius + 1; }

    // Applies the three passes to a line of `len` pixels, and returns the result at position `at`.
    // `line` holds the pixels around `at`.
    __device__ Bytes filtered(Bytes (&line)[LINE], int at, int len) const {
        for (int pass = PASSES - 1; pass >= 0; pass--) {
            Bytes out[LINE];
            for (int i = -reach() * pass; i <= reach() * pass; i++)
                if (at + i >= 0 && at + i < len) out[MIDDLE + i] = one(line, at, at + i, len);
            for (int i = -reach() * pass; i <= reach() * pass; i++)
                if (at + i >= 0 && at + i < len) line[MIDDLE + i] = out[MIDDLE + i];
        }
        return line[MIDDLE];
    }

    // Returns the result of one pass at `place`. Beyond an edge, the pixel at the edge is repeated.
    __device__ Bytes one(const Bytes (&line)[LINE], int at, int place, int len) const {
        const int radius = (int)p.radius, first = MIDDLE - at;
        const Bytes low = line[first + inside(place - radius - 1, len)], high = line[first + inside(place + radius + 1, len)];
        unsigned r = 0, g = 0, b = 0;
        for (int i = -radius; i <= radius; i++) {
            const Bytes pixel = line[first + inside(place + i, len)];
            r += pixel.r;
            g += pixel.g;
            b += pixel.b;
        }
        const Bytes out = {byte(r, low.r + high.r), byte(g, low.g + high.g), byte(b, low.b + high.b)};
        return out;
    }
    static __device__ int inside(int at, int len) { return at < 0 ? 0 : at < len ? at : len - 1; }
    __device__ unsigned char byte(unsigned sum, unsigned ends) const {
        return (unsigned char)((sum * p.weight + ends * p.far + (1u << 23)) >> 24);
    }
};
