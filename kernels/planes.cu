// Reading of 16 pixels at a time from planes of luma and chroma: upsampling as in libjpeg-turbo, and
// conversion to red, green and blue. Same results as `Roi::of_planes` (image.cu), with words of four
// samples. All rows begin at multiples of 16 bytes, and so does the first sample of luma.

// The lower bytes of two numbers of 16 bits.
enum : unsigned { LOWER_BYTES = 0x00ff00ff };

// Eight samples of a row of chroma, and the sample before and after them. Next to the last sample of
// a row of the image, the same value is repeated.
struct Eight {
    unsigned pairs[4], before, after;   // a pair is two numbers of 16 bits
    __device__ Eight(const unsigned char* row, int column, int columns) {
        const unsigned* at = (const unsigned*)(row + column);
        unsigned low = at[0], high = at[1];
        before = row[larger(column - 1, 0)];
        after = row[smaller(column + 8, columns - 1)];
        const int inside = columns - column;
        if (inside < 8) {
            // The samples of the image, then the last one again.
            const unsigned long long words = (unsigned long long)high << 32 | low, mask = (1ull << 8 * inside) - 1;
            const unsigned long long repeated = (words & mask) | (words << 8 & ~mask);
            low = (unsigned)repeated, high = (unsigned)(repeated >> 32);
        }
        for (int i = 0; i < 4; i++) pairs[i] = picked(i < 2 ? low : high, 0, i & 1 ? 0x4342 : 0x4140);
    }
    // Adds the samples of two rows, with weight 3 for this one.
    __device__ void blend(const Eight& far) {
        for (int i = 0; i < 4; i++) pairs[i] = 3 * pairs[i] + far.pairs[i];
        before = 3 * before + far.before;
        after = 3 * after + far.after;
    }
    // Returns 16 samples, four per word, interpolated between neighbours with weights 3 and 1. Sums
    // are divided by 2^`bits`, and `even` and `odd` are added to them before.
    __device__ Words doubled(unsigned even, unsigned odd, int bits) const {
        Words words;
        unsigned left = picked(before, pairs[0], 0x5410);
        UNROLLED for (int i = 0; i < 4; i++) {
            const unsigned right = picked(pairs[i], i < 3 ? pairs[i + 1] : after, 0x5432);
            const unsigned evens = (3 * pairs[i] + left + even * 0x10001) >> bits & LOWER_BYTES;
            const unsigned odds = (3 * pairs[i] + right + odd * 0x10001) >> bits & LOWER_BYTES;
            words.of[i] = evens | odds << 8;
            left = right;
        }
        return words;
    }
};

// Returns row `row` of a plane of chroma, or the nearest row of the image.
__device__ inline const unsigned char* chroma_row(const Roi& src, const unsigned char* plane, int row) {
    return global(plane + (long long)larger(0, smaller(row, src.chroma_rows - 1)) * src.chroma_pitch);
}

// Returns the chroma values of 16 pixels. `column` is a multiple of 16.
__device__ inline Words chroma_of_plane(const Roi& src, const unsigned char* plane, int column, int line) {
    const int y = line >> src.down, next = line & 1 ? y + 1 : y - 1;
    const unsigned char* near = global(plane + (long long)y * src.chroma_pitch);
    if (src.across == 1) {
        const int x = column >> 1;
        Eight eight(near, x, src.chroma_columns);
        if (src.down == 0) return eight.doubled(1, 2, 2);
        eight.blend(Eight(chroma_row(src, plane, next), x, src.chroma_columns));
        return eight.doubled(8, 7, 4);
    }
    Words words;
    if (src.across == 2) {
        const unsigned four = *(const unsigned*)(near + (column >> 2));
        for (int i = 0; i < 4; i++) words.of[i] = picked(four, 0, 0x1111 * i);
        return words;
    }
    words = *(const Words*)(near + column);
    if (src.down == 1) {
        const Words others = *(const Words*)(chroma_row(src, plane, next) + column);
        const unsigned rounding = (1 + (line & 1)) * 0x10001;
        for (int i = 0; i < 4; i++) {
            const unsigned a = words.of[i], b = others.of[i];
            const unsigned evens = (3 * (a & LOWER_BYTES) + (b & LOWER_BYTES) + rounding) >> 2 & LOWER_BYTES;
            const unsigned odds = (3 * (a >> 8 & LOWER_BYTES) + (b >> 8 & LOWER_BYTES) + rounding) >> 2 & LOWER_BYTES;
            words.of[i] = evens | odds << 8;
        }
    }
    return words;
}

// Converts one of four pixels. `blue` and `red` are signed, and `both` has the bytes of blue and red
// of this pixel. Each product has JFIF's factor (jdcolor.c). The upper half of a 64-bit product is a
// product divided by 2^16, because the signed bytes are multiplied by 2^16. The values added to them
// round the result. They are 2^15 * 2^16 divided by the factor. JFIF's factors for green are even, so
// half of them is used, with 15 fractional bits.
template <int PLACE> struct Converted {
    int r, g, b;
    __device__ Converted(unsigned luma, unsigned blue, unsigned red, unsigned both) {
        const int y = (int)picked(luma, 0, 0x4440 + PLACE);
        r = high_sum<91881>(signed_byte<PLACE, 23372>(red), y);
        b = high_sum<116130>(signed_byte<PLACE, 18492>(blue), y);
        const unsigned factors = (unsigned)-23401 << 16 | (unsigned short)-11277;
        g = high_sum<1 << 17>(two_products<PLACE % 2 == 1>(factors, both, 1 << 14), y);
    }
};

// Converts four pixels to red, green and blue.
__device__ inline Quad quad_of_planes(unsigned luma, unsigned blue, unsigned red) {
    // Subtracts 128 from each byte.
    blue ^= 0x80808080, red ^= 0x80808080;
    const unsigned first = picked(blue, red, 0x5140), last = picked(blue, red, 0x7362);
    const Converted<0> a(luma, blue, red, first);
    const Converted<1> b(luma, blue, red, first);
    const Converted<2> c(luma, blue, red, last);
    const Converted<3> d(luma, blue, red, last);
    const Quad quad = {clamped(a.r, b.r, clamped(c.r, d.r, 0)), clamped(a.g, b.g, clamped(c.g, d.g, 0)),
                       clamped(a.b, b.b, clamped(c.b, d.b, 0))};
    return quad;
}

// Reads 16 pixels. `column`, a multiple of 16, and `line` are counted from the first sample
// of luma.
__device__ inline Sixteen sixteen_of_planes(const Roi& src, int column, int line) {
    Sixteen it;
    const Words luma = *(const Words*)global(src.pixels + (long long)line * src.pitch + column);
    if (src.format == GRAY) {
        it.r = it.g = it.b = luma;
        return it;
    }
    const Words blue = chroma_of_plane(src, src.blue, column, line), red = chroma_of_plane(src, src.red, column, line);
    for (int word = 0; word < 4; word++) it.put(word, quad_of_planes(luma.of[word], blue.of[word], red.of[word]));
    return it;
}

// Where a tile stores source rows in shared memory (tile.cu), and how many pieces of 16 pixels there
// are: `by.by` in each row.
struct LoadedRows {
    unsigned* shared;
    int plane, line;
    Divisor by;
    int pieces;
    __device__ unsigned* at(int row, int place) const {
        return shared + 3 * plane * (row & 3) + line * (row >> 2) + 4 * place;
    }
};

// Loads rows of planes, from row `first` of the pieces on. Not inlined, so that tiles of interleaved
// pixels need no more registers.
NOT_INLINE __device__ void load_rows_of_planes(const Roi& src, int column, int line, int thread, LoadedRows to) {
    NOT_UNROLLED for (int i = thread; i < to.pieces; i += blockDim.x) {
        const int row = to.by.of(i), place = i - row * to.by.by;
        sixteen_of_planes(src, column + 16 * place, line + row).store(in_shared(to.at(row, place)), to.plane);
    }
}
template <class Src> __device__ void load_planes(const Pieces<Src>&, int, int, const LoadedRows&) {}
template <> __device__ inline void load_planes(const Pieces<Roi>& pieces, int first, int thread, const LoadedRows& to) {
    const Roi& src = pieces.src;
    load_rows_of_planes(src, pieces.x - src.x, pieces.y - src.y + first, thread, to);
}
