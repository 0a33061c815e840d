// Reads an image through an inverse map, like Pillow's `Image.transform`. Same results as src/op/warp/mod.rs,
// which describes the kinds of maps.
enum WarpKind { WARP_WHOLE, WARP_FIXED, WARP_SUMMED, WARP_AFFINE, WARP_PERSPECTIVE, WARP_DISPLACED };
enum WarpInterpolation { WARP_NEAREST, WARP_BILINEAR, WARP_BICUBIC };

struct WarpParams {
    union {
        double real[9];
        int integer[18];
        // Two kinds of maps have a table, to which `table[8]` points. The table of WARP_DISPLACED
        // has pairs of displacements in 1/65536 pixel. The table of WARP_SUMMED has 64 start values
        // of columns, then 64 of rows, with two words each. For WARP_SUMMED, `integer[12]` and
        // `integer[13]` are the numbers of columns and rows between two start values, or 0 without
        // start values.
        const int* table[9];
    } data;
    int width, height;              // size of the input
    unsigned char fill[3];
    unsigned char kind;             // WarpKind
    unsigned interpolation;         // WarpInterpolation
};

template <class Src> struct Warp {
    typedef Bytes Pixel;
    Src src;
    WarpParams p;

    // Channels of a pixel before they are truncated to bytes.
    struct Reals {
        double of[3];
    };

    __device__ Bytes at(int x, int y) const {
        if (p.kind == WARP_WHOLE || p.kind == WARP_FIXED) return nearest(whole(0, x, y), whole(3, x, y));
        if (p.kind == WARP_DISPLACED) return displaced(x, y);
        double column, row;
        position(x, y, column, row);
        return interpolated(column, row);
    }

    // Computes the source position of the pixel (x, y), for maps that compute in f64.
    __device__ void position(int x, int y, double& column, double& row) const {
        if (p.kind == WARP_SUMMED) {
            const bool starts = p.data.integer[12] > 0;
            column = starts ? started(0, x) : summed(0, x, y);
            row = starts ? started(1, y) : summed(3, x, y);
        } else {
            column = product(0, x, y) + real(2);
            row = product(3, x, y) + real(5);
        }
        if (p.kind == WARP_PERSPECTIVE) {
            const double below = product(6, x, y) + 1.0;
            column = column / below;
            row = row / below;
        }
    }

    __device__ double real(int number) const { return p.data.real[number]; }

    // Returns the source column (`first` = 0) or row (`first` = 3) of the pixel (x, y). Integer
    // products and sums may wrap around, so they are computed as unsigned numbers.
    __device__ int whole(int first, int x, int y) const {
        const int* of = p.data.integer + first;
        const unsigned moved = (unsigned)of[0] * (unsigned)x + (unsigned)of[1] * (unsigned)y;
        return (int)((unsigned)of[2] + moved) >> (p.kind == WARP_FIXED ? 16 : 0);
    }
    __device__ double product(int first, int x, int y) const {
        return real(first) * (x + 0.5) + real(first + 1) * (y + 0.5);
    }
    // Source position of output column (axis 0) or row (axis 1) number `at`: the last start value
    // before it, plus one step for each column or row from there.
    __device__ double started(int axis, int at) const {
        const int distance = p.data.integer[12 + axis], start = at / distance;
        const unsigned* word = (const unsigned*)p.data.table[8] + 2 * (64 * axis + start);
        double sum = number(word[0] | (unsigned long long)word[1] << 32);
        for (int i = at - start * distance; i > 0; i--) sum += real(4 * axis);
        return sum;
    }
    __device__ double summed(int first, int x, int y) const {
        const double at = real(first + 2) + real(first + 1) * 0.5 + real(first) * 0.5;
        return added(added(at, real(first + 1), y), real(first), x);
    }

    // Returns `at` after `count` additions of `step`, each of which rounds. Between two powers of
    // two, all sums are multiples of one unit. After two additions in such an interval, each
    // further addition adds the same amount, even if it rounds to even. Many further additions are
    // then computed as one exact product.
    static __device__ double added(double at, double step, int count) {
        while (count >= 3) {
            const double one = at + step, two = one + step, each = two + step - two;
            at = two + step;
            count -= 3;
            const unsigned long long exponent = bits(at) >> 52;
            if (bits(one) >> 52 != exponent) continue;
            // The value is constant, infinite, or not a number from here on.
            if (!(each < 0.0 || each > 0.0)) return at;
            const double power = number(exponent << 52), end = (each < 0.0) == (power < 0.0) ? 2.0 * power : power;
            const double steps = (end - at) / each - 1.0;
            const int more = steps < 1.0 ? 0 : steps < count ? (int)steps : count;
            at += more * each;
            count -= more;
        }
        for (; count > 0; count--) at += step;
        return at;
    }
    union Word {
        unsigned long long bits;
        double value;
    };
    static __device__ unsigned long long bits(double value) {
        Word word;
        word.value = value;
        return word.bits;
    }
    static __device__ double number(unsigned long long bits) {
        Word word;
        word.bits = bits;
        return word.value;
    }

    __device__ Bytes fill() const {
        const Bytes pixel = {p.fill[0], p.fill[1], p.fill[2]};
        return pixel;
    }
    __device__ bool inside(int x, int y) const { return x >= 0 && y >= 0 && x < p.width && y < p.height; }
    __device__ Bytes nearest(int x, int y) const { return inside(x, y) ? src.at(x, y) : fill(); }

    __device__ Bytes interpolated(double x, double y) const {
        if (x < 0.0 || y < 0.0 || x >= p.width || y >= p.height) return fill();
        if (p.interpolation == WARP_NEAREST) return x >= 0.0 && y >= 0.0 ? src.at((int)x, (int)y) : fill();
        // For a position that is not a number, Pillow interpolates and truncates the result to 0.
        if (!(x >= 0.0 && y >= 0.0)) return bytes(0.0, 0.0, 0.0);
        x -= 0.5;
        y -= 0.5;
        const int left = x < 0.0 ? -1 : (int)x, top = y < 0.0 ? -1 : (int)y;
        const double dx = x - left, dy = y - top;
        if (p.interpolation == WARP_BILINEAR) {
            const Reals upper = linear(left, top, dx), lower = linear(left, top + 1, dx);
            double value[3];
            for (int c = 0; c < 3; c++) value[c] = lerp(upper.of[c], lower.of[c], dy);
            return bytes(value[0], value[1], value[2]);
        }
        const Reals a = cubic(left, top - 1, dx), b = cubic(left, top, dx);
        const Reals c = cubic(left, top + 1, dx), d = cubic(left, top + 2, dx);
        return bytes(cubic_of(a.of[0], b.of[0], c.of[0], d.of[0], dy), cubic_of(a.of[1], b.of[1], c.of[1], d.of[1], dy),
                     cubic_of(a.of[2], b.of[2], c.of[2], d.of[2], dy));
    }

    static __device__ unsigned char byte(double value) {
        return value <= 0.0 ? 0 : value >= 255.0 ? 255 : (unsigned char)(int)value;
    }
    static __device__ Bytes bytes(double r, double g, double b) {
        const Bytes pixel = {byte(r), byte(g), byte(b)};
        return pixel;
    }
    // Returns a pixel. Beyond an edge, the pixel at the edge is repeated.
    __device__ Bytes edge(int x, int y) const {
        x = x < 0 ? 0 : x < p.width ? x : p.width - 1;
        y = y < 0 ? 0 : y < p.height ? y : p.height - 1;
        return src.at(x, y);
    }
    static __device__ double lerp(double a, double b, double d) { return a + (b - a) * d; }
    static __device__ double cubic_of(double a, double b, double c, double d, double at) {
        const double p1 = b, p2 = -a + c, p3 = 2.0 * (a - b) + c - d, p4 = -a + b - c + d;
        return p1 + at * (p2 + at * (p3 + at * p4));
    }
    __device__ Reals linear(int x, int y, double d) const {
        const Bytes a = edge(x, y), b = edge(x + 1, y);
        const Reals row = {{lerp(a.r, b.r, d), lerp(a.g, b.g, d), lerp(a.b, b.b, d)}};
        return row;
    }
    __device__ Reals cubic(int x, int y, double at) const {
        const Bytes a = edge(x - 1, y), b = edge(x, y), c = edge(x + 1, y), d = edge(x + 2, y);
        const Reals row = {{cubic_of(a.r, b.r, c.r, d.r, at), cubic_of(a.g, b.g, c.g, d.g, at),
                            cubic_of(a.b, b.b, c.b, d.b, at)}};
        return row;
    }

    __device__ Bytes displaced(int x, int y) const {
        const int* of = p.data.integer;
        const long long pair = 2 * ((long long)(y - of[1]) * of[2] + (x - of[0]));
        const int dx = p.data.table[8][pair], dy = p.data.table[8][pair + 1];
        if (p.interpolation == WARP_NEAREST) return nearest(x + rounded(dx), y + rounded(dy));
        x += dx >> 16;
        y += dy >> 16;
        const long long right = dx & 0xffff, below = dy & 0xffff, left = 65536 - right, above = 65536 - below;
        Weighted sum = {{0, 0, 0}, 0};
        add(sum, left * above, x, y);
        add(sum, right * above, x + 1, y);
        add(sum, left * below, x, y + 1);
        add(sum, right * below, x + 1, y + 1);
        const Bytes pixel = {blended(sum, 0), blended(sum, 1), blended(sum, 2)};
        return pixel;
    }
    static __device__ int rounded(int displacement) {
        return displacement > 0x7fffffff - 0x8000 ? 0x7fff : (displacement + 0x8000) >> 16;
    }
    // Sums of weighted channels, and the sum of the weights (`mask`). Weights have 32 fractional
    // bits.
    struct Weighted {
        long long of[3], mask;
    };
    __device__ void add(Weighted& sum, long long weight, int x, int y) const {
        if (!inside(x, y)) return;
        const Bytes pixel = src.at(x, y);
        sum.of[0] += weight * pixel.r;
        sum.of[1] += weight * pixel.g;
        sum.of[2] += weight * pixel.b;
        sum.mask += weight;
    }
    __device__ unsigned char blended(const Weighted& sum, int channel) const {
        const double unit = 1.0 / 4294967296.0, fill = p.fill[channel], mask = (double)sum.mask * unit;
        return byte(((double)sum.of[channel] * unit - fill) * mask + fill + 0.5);
    }
};
