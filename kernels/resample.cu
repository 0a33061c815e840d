// Pillow's resampling: horizontal sums of each source row, rounded to bytes, then vertical sums of
// the rounded bytes. All resampling operators use it. Same results as src/op/resample/mod.rs, which
// describes the table.
struct ResampleParams {
    const int* table;
    int x, y, width, height;            // part of the output for which the table has coefficients
    int h_bounds, h_coefs, h_taps;      // offsets of bounds and of coefficients in the table; coefficients per output
    int v_bounds, v_coefs, v_taps;
    int box_x, box_y, box_width, box_height;
    int out_width, out_height;
};

template <class Src> struct Resample {
    typedef Bytes Pixel;
    Src src;
    ResampleParams p;

    struct Sums {
        int r, g, b;
        __device__ void add(int k, Bytes pixel) {
            r += k * pixel.r;
            g += k * pixel.g;
            b += k * pixel.b;
        }
        __device__ Bytes rounded() const {
            const Bytes pixel = {byte(r), byte(g), byte(b)};
            return pixel;
        }
        static __device__ unsigned char byte(int sum) {
            const int value = sum >> 22;
            return (unsigned char)(value < 0 ? 0 : value > 255 ? 255 : value);
        }
    };

    __device__ Bytes at(int x, int y) const {
        const int column = x - p.x, row = y - p.y;
        const int* columns = p.table + p.h_bounds + 2 * column;
        const int* rows = p.table + p.v_bounds + 2 * row;
        const int* h = p.table + p.h_coefs + p.h_taps * column;
        const int* v = p.table + p.v_coefs + p.v_taps * row;
        const int half = 1 << 21;
        Sums sums = {half, half, half};
        for (int j = 0; j < rows[1]; j++) {
            Sums line = {half, half, half};
            for (int i = 0; i < columns[1]; i++) line.add(h[i], src.at(columns[0] + i, rows[0] + j));
            sums.add(v[j], line.rounded());
        }
        return sums.rounded();
    }

    __device__ const Resample& resampled() const { return *this; }
    __device__ Origin columns() const { return whole(p.x, p.width); }
    __device__ Origin rows() const { return whole(p.y, p.height); }
    __device__ Pixel of(Bytes pixel) const { return pixel; }
    static __device__ Origin whole(int first, int len) {
        const Origin origin = {0, 1, first, first + len};
        return origin;
    }
};
