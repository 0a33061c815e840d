// The tiled form of the kernel, for chains in which pixels only move, or are mapped each channel by itself, after the
// last resampling: a block makes a tile of one sample's tensor. Twin of `Shape::tiles` in src/gpu/kernel.rs.
//
// Both passes of a resampling are products of matrices, which the tensor cores make (matrix.cu). A coefficient is 22 bits
// and a sign. Its three bytes are multiplied apart and put together at the end: the same integers as in resample.cu,
// modulo 2^32. The highest byte is signed, so a coefficient must be in [-2, 2) once it is scaled back, which the filters'
// are. A matrix of coefficients is a band; products with what is beside it are products with 0.
//
// The threads of a block work in phases with a barrier between them, and all of them walk the same loops:
//   tables   what becomes of each byte (normalized, converted) and the rows' coefficients go into shared memory;
//   then, for strips of columns (one, unless the source is so wide that a strip's rows do not fit):
//   load     up to 32 source rows of the strip's window, split into a plane for each channel, 4 pixels to a word;
//   sum      along the rows: each source row once per tile; 32 rows by 8 columns at once. Four rows of a column become the
//            bytes of one word, in a ring of as many words as a block of output rows needs;
//   store    the blocks of output rows that are complete: sums along 8 or 16 columns at once, the table, four elements per
//            store.
//
// How a tile is made is decided by its sample alone (`Tile::fits`). Where not even one column's shares of shared memory
// suffice, and for one tap per axis (nearest), where nothing is gained, its pixels are evaluated one by one as in fused.cu.
// So one launch takes samples of every size, and an odd one costs only itself.
//
// @COST@
__device__ inline int byte_at(unsigned word, int place) { return word >> 8 * place & 255; }

// A rectangle of the tensor, half open.
struct Window {
    int left, top, right, bottom;
    __device__ bool has(int x, int y) const { return x >= left && x < right && y >= top && y < bottom; }
};

// The outputs of one axis of a tile, in the order of the source, and what they read.
struct TileAxis {
    const int* bounds;          // (first, count) of each
    const int* coefs;
    int taps;                   // coefficients of each, at most
    int len;
    int first, end;             // what all of them read
    int reach;                  // from the first output's first to the last one's first
    // Of the outputs from `begin` to before `end` of the tensor; the resampled image's first one is `first`.
    __device__ TileAxis(const ResampleParams& p, bool columns, const Origin& origin, int from, int to)
        : taps(columns ? p.h_taps : p.v_taps), len(to - from), first(0), end(0), reach(0) {
        const int place = origin.at + (origin.step > 0 ? from : 1 - to) - (columns ? p.x : p.y);
        bounds = p.table + (columns ? p.h_bounds : p.v_bounds) + 2 * place;
        coefs = p.table + (columns ? p.h_coefs : p.v_coefs) + (long long)taps * place;
        if (len > 0) {
            first = bounds[0];
            end = bounds[2 * len - 2] + bounds[2 * len - 1];
            reach = bounds[2 * len - 2] - first;
        }
    }
    // What `outputs` of them, one after another, read at most. The centres of taps are evenly spaced; the firsts are
    // rounded, and those at the border of the source moved by less than all taps.
    __device__ int span(int outputs) const {
        if (outputs >= len) return end - first;
        return (outputs - 1) * (reach + 1 + taps) / (len - 1) + 2 + taps;
    }
};

// How a tile is made, and where its parts lie in shared memory.
template <class Src> struct Tile {
    typedef Out::type Element;
    static const int MOST_LOADED = 8;

    const Sample& sample;
    Element* out;
    const Src& src;
    const ResampleParams& p;
    int width, height;          // of the tensor
    Origin across, down;
    Window window;              // what comes from the resampled image
    TileAxis rows;
    int columns;                // of a strip, but for the last: a multiple of 16
    int block_rows;             // output rows that are made at once: at most 16
    int line;                   // words of a source row, of one channel: 4 more than a multiple of 8
    int stride;                 // words of a row of the ring, of one channel: 8 more than a multiple of 16
    int column_groups;          // words that a column's taps lie in
    int row_groups;             // words that a row's taps lie in
    int loaded, kept;           // groups of four source rows: loaded at once, and in the ring

    unsigned* shared;           // [rows][row_groups + 1] Factors, the last of them 0, and then, by their places:
    int column_factors;         // [columns][column_groups + 1] Factors, the last of them 0
    int planes;                 // [4][3][loaded][line]: row number 4 g + i of channel c at [i][c][g]
    int ring;                   // [kept][3][stride]
    int table;                  // [3][256] elements
    int row_places;             // [rows][2]: the group of the first tap, from the tile's first on; the last one's end
    int column_places;          // [columns]: the word of the first tap, from the strip's first on

    __device__ Tile(const Sample& sample, const Resample<Src>& resample, const Window& all, int width, int height,
                    unsigned* shared)
        : sample(sample), out(sample.out), src(resample.src), p(resample.p), width(width), height(height),
          across(sample.pixels.columns()), down(sample.pixels.rows()),
          window{larger(all.left, across.begin), larger(all.top, down.begin), smaller(all.right, across.end),
                 smaller(all.bottom, down.end)},
          rows(p, false, down, window.top, window.bottom), shared(shared) {}

    __device__ Element* elements() const { return (Element*)(shared + table); }
    __device__ Factors* factors_at(int place) const { return (Factors*)(shared + place); }
    __device__ int row_group(int row) const { return (int)shared[row_places + 2 * row]; }
    __device__ int row_end(int row) const { return (int)shared[row_places + 2 * row + 1]; }
    __device__ int column_word(int column) const { return (int)shared[column_places + column]; }

    __device__ bool is_empty() const { return window.left >= window.right || window.top >= window.bottom; }

    __device__ TileAxis strip(int left) const {
        return TileAxis(p, true, across, left, smaller(left + columns, window.right));
    }
    // The first pixel that is loaded for a strip.
    __device__ int start(const TileAxis& strip) const {
        return strip.first - ((strip.first - Pieces<Src>::start(src)) & 15);
    }

    // Shares out shared memory: as few strips as possible, of 32 rows at once; where there is not enough for that, strips
    // of 16 columns, with fewer and fewer rows. Whether that can be.
    __device__ bool fits(int shared_bytes) {
        if (is_empty() || (p.h_taps == 1 && p.v_taps == 1)) return false;
        const TileAxis all(p, true, across, window.left, window.right);
        row_groups = (p.v_taps + 6) / 4;
        column_groups = (p.h_taps + 6) / 4;
        const int words = shared_bytes / 4;
        const int fixed = 4 * rows.len * (row_groups + 1) + (int)(192 * sizeof(Element)) + 2 * rows.len;
        NOT_UNROLLED for (block_rows = 16; block_rows > 0; block_rows /= 2) {
            const int groups = larger(4, (rows.span(block_rows) + 6) / 4);
            NOT_UNROLLED for (int strips = 1;; strips++) {
                columns = ((all.len + strips - 1) / strips + 15) & ~15;
                stride = columns + 8;
                line = 4 * ((all.span(columns) + 30) / 16 | 1);
                const int left = words - fixed - columns * (5 + 4 * column_groups) - 3 * stride * (groups - 1);
                loaded = left < 0 ? 0 : smaller(left / (12 * line + 3 * stride), MOST_LOADED);
                kept = groups - 1 + loaded;
                if (loaded == MOST_LOADED || columns == 16) break;
            }
            if (2 * loaded >= block_rows) break;
        }
        if (block_rows == 0) return false;
        column_factors = 4 * rows.len * (row_groups + 1);
        planes = column_factors + 4 * columns * (column_groups + 1);
        ring = planes + 12 * loaded * line;
        table = ring + 3 * stride * kept;
        row_places = table + (int)(192 * sizeof(Element));
        column_places = row_places + 2 * rows.len;
        return true;
    }

    // What becomes of each byte, and the rows' coefficients.
    __device__ void fill_tables(int thread) const {
        NOT_UNROLLED for (int i = thread; i < 256; i += blockDim.x) {
            const Bytes byte = {(unsigned char)i, (unsigned char)i, (unsigned char)i};
            const Pixels::Pixel pixel = sample.pixels.of(byte);
            elements()[i] = Out::of(pixel.r);
            elements()[256 + i] = Out::of(pixel.g);
            elements()[512 + i] = Out::of(pixel.b);
        }
        NOT_UNROLLED for (int row = thread; row < rows.len; row += blockDim.x) {
            const int first = rows.bounds[2 * row] - rows.first;
            shared[row_places + 2 * row] = first / 4;
            shared[row_places + 2 * row + 1] = first + rows.bounds[2 * row + 1];
        }
        const Divisor by(row_groups + 1);
        NOT_UNROLLED for (int i = thread; i < rows.len * (row_groups + 1); i += blockDim.x) {
            const int row = by.of(i), group = i - row * (row_groups + 1);
            factors_at(0)[i] = factors_of(rows, row, rows.first, group, row_groups);
        }
    }

    // The columns' coefficients, in the order of the tensor.
    __device__ void fill_strip(int thread, const TileAxis& strip) const {
        const Divisor by(column_groups + 1);
        const int from = start(strip);
        NOT_UNROLLED for (int i = thread; i < strip.len * (column_groups + 1); i += blockDim.x) {
            const int column = by.of(i), group = i - column * (column_groups + 1);
            const int at = across.step > 0 ? column : strip.len - 1 - column;
            factors_at(column_factors)[i] = factors_of(strip, at, from, group, column_groups);
            if (group == 0) shared[column_places + column] = (strip.bounds[2 * at] - from) / 4;
        }
    }

    // The group with number `group` of an output's coefficients, where the source is in groups of four from `from` on.
    __device__ static Factors factors_of(const TileAxis& axis, int output, int from, int group, int groups) {
        const int count = group < groups ? axis.bounds[2 * output + 1] : 0;
        return factors(axis.coefs + (long long)axis.taps * output, count,
                       4 * group - ((axis.bounds[2 * output] - from) & 3));
    }

    // `groups` groups of four source rows, from group `first` on, without what is past the last row.
    __device__ void load(int thread, const TileAxis& strip, int first, int groups) const {
        const int from = start(strip), len = (strip.end - from + 15) / 16, y = rows.first + 4 * first;
        const int count = smaller(4 * groups, rows.end - y), plane = loaded * line;
        const Pieces<Src> pieces(src, from, y, count, len, strip.first, strip.end);
        const Divisor by(len);
        NOT_UNROLLED for (int i = thread; i < count * len; i += blockDim.x) {
            const int row = by.of(i), place = i - row * len;
            const Sixteen piece = pieces.at(place, row);
            unsigned* to = shared + planes + 3 * plane * (row & 3) + line * (row >> 2) + 4 * place;
            *(Words*)to = piece.r;
            *(Words*)(to + plane) = piece.g;
            *(Words*)(to + 2 * plane) = piece.b;
        }
    }

    // Sums along the loaded rows: the left matrices are rows of pixels, 4 r and 4 r + 1, and then 4 r + 2 and 4 r + 3, so
    // that a lane gets four rows of a column. The right ones are coefficients.
    __device__ void sum(int warp, const TileAxis& strip, int first, int groups) const {
        const Divisor around(kept);
        NOT_UNROLLED for (int column = 8 * warp; column < strip.len; column += blockDim.x / 4) {
            const int last = smaller(column + 7, strip.len - 1);
            const int from = smaller(column_word(column), column_word(last));
            const int end = larger(column_word(column), column_word(last)) + column_groups;
            Lanes<int> source, factor, word, to;
            EACH_LANE {
                const int row = lane / 4, quarter = lane % 4, it = smaller(column + row, last);
                source[lane] = planes + line * smaller(row, groups - 1) + from + quarter;
                factor[lane] = column_factors / 4 + it * (column_groups + 1);
                word[lane] = from + quarter - column_word(it);
                const int group = first + row;
                to[lane] = ring + 3 * stride * (group - around.of(group) * kept) + column + 2 * quarter;
            }
            if (end - from <= 8)
                sum_columns<true>(groups, 1, source, factor, word, to);
            else
                sum_columns<false>(groups, (end - from + 7) / 8, source, factor, word, to);
        }
    }

    template <bool ONCE>
    __device__ void sum_columns(int groups, int steps, const Lanes<int>& source, const Lanes<int>& factor,
                                const Lanes<int>& word, const Lanes<int>& to) const {
        Lanes<Right> low, middle, high;
        if (ONCE) right_factors(factor, word, 0, low, middle, high);
        const int plane = loaded * line;
        for (int channel = 0; channel < 3; channel++) {
            Weighted sums[2];
            NOT_UNROLLED for (int step = 0; step < (ONCE ? 1 : steps); step++) {
                if (!ONCE) right_factors(factor, word, step, low, middle, high);
                for (int half = 0; half < 2; half++) {
                    Lanes<Left> pixels;
                    EACH_LANE {
                        const unsigned* from = shared + source[lane] + plane * (6 * half + channel) + 8 * step;
                        pixels[lane] = {{from[0], from[3 * plane], from[4], from[3 * plane + 4]}};
                    }
                    multiply<NEITHER>(sums[half].low, pixels, low);
                    multiply<NEITHER>(sums[half].middle, pixels, middle);
                    multiply<RIGHT>(sums[half].high, pixels, high);
                }
            }
            EACH_LANE {
                const Weighted &a = sums[0], &b = sums[1];
                const Pair pair = {bytes_of(a.value(lane, 0), a.value(lane, 2), b.value(lane, 0), b.value(lane, 2)),
                                   bytes_of(a.value(lane, 1), a.value(lane, 3), b.value(lane, 1), b.value(lane, 3))};
                if (lane / 4 < groups) *(Pair*)(shared + to[lane] + channel * stride) = pair;
            }
        }
    }

    // A lane's part of the coefficients, `step` times eight words after the first: those of its column, or zeros.
    __device__ void right_factors(const Lanes<int>& factor, const Lanes<int>& word, int step, Lanes<Right>& low,
                                  Lanes<Right>& middle, Lanes<Right>& high) const {
        EACH_LANE {
            const Factors a = factor_of(factor[lane], word[lane] + 8 * step, column_groups);
            const Factors b = factor_of(factor[lane], word[lane] + 8 * step + 4, column_groups);
            low[lane] = {{a.low, b.low}};
            middle[lane] = {{a.middle, b.middle}};
            high[lane] = {{a.high, b.high}};
        }
    }

    // Where there is no such group, that after the last one.
    __device__ Factors factor_of(int first, int group, int groups) const {
        const unsigned within = (unsigned)group < (unsigned)groups ? group : groups;
        return factors_at(0)[first + within];
    }

    // Two words side by side.
    struct alignas(8) Pair {
        unsigned first, second;
    };
    // Four bytes of each of two rows.
    struct Quads {
        unsigned of[2];
    };

    // The blocks of output rows from number `begin` to before `end`, of the columns from `left` on.
    __device__ void store(int warp, const TileAxis& strip, int left, int begin, int end) const {
        const bool aligned = (width | left) % 4 == 0 && (unsigned long long)out % sizeof(Four<Element>) == 0;
        const int across = (strip.len + 15) / 16, count = across * (end - begin);
        const Divisor by(across), around(kept);
        NOT_UNROLLED for (int i = warp; i < count; i += blockDim.x / 32) {
            const int block = by.of(i), first = block_rows * (begin + block), column = 16 * (i - block * across);
            const int last = smaller(first + block_rows, rows.len) - 1, group = row_group(first);
            const int groups = (row_end(last) + 3) / 4 - group;
            Lanes<int> source, place, factor, below, word, word_below;
            EACH_LANE {
                const int row = lane / 4, quarter = lane % 4, at = group + quarter;
                const int a = smaller(first + row, last), b = smaller(first + row + 8, last);
                source[lane] = ring + column + 2 * row;
                place[lane] = at - around.of(at) * kept;
                factor[lane] = a * (row_groups + 1);
                below[lane] = b * (row_groups + 1);
                word[lane] = at - row_group(a);
                word_below[lane] = at - row_group(b);
            }
            Lanes<Quads> quads[3];
            if (groups <= 8)
                sum_rows<true>(1, source, place, factor, below, word, word_below, quads);
            else
                sum_rows<false>((groups + 7) / 8, source, place, factor, below, word, word_below, quads);
            EACH_LANE {
                const int row = first + lane / 4, x = left + column + lane % 4 * 4;
                const int inside = smaller(4, left + strip.len - x);
                if (row <= last) store_quad(quads, lane, 0, x, row, inside, aligned);
                if (row + 8 <= last) store_quad(quads, lane, 1, x, row + 8, inside, aligned);
            }
        }
    }

    // Sums along the columns of 16 rows by 16 columns. The left matrices are coefficients; the right ones are the even and
    // the odd columns, so that a lane gets four columns side by side.
    template <bool ONCE>
    __device__ void sum_rows(int steps, const Lanes<int>& source, const Lanes<int>& place, const Lanes<int>& factor,
                             const Lanes<int>& below, const Lanes<int>& word, const Lanes<int>& word_below,
                             Lanes<Quads> quads[3]) const {
        Lanes<Left> low, middle, high;
        if (ONCE) left_factors(factor, below, word, word_below, 0, low, middle, high);
        for (int channel = 0; channel < 3; channel++) {
            Weighted even, odd;
            Lanes<int> group = place;
            NOT_UNROLLED for (int step = 0; step < (ONCE ? 1 : steps); step++) {
                if (!ONCE) left_factors(factor, below, word, word_below, step, low, middle, high);
                Lanes<Right> evens, odds;
                EACH_LANE for (int half = 0; half < 2; half++) {
                    const unsigned* from = shared + source[lane] + (3 * group[lane] + channel) * stride;
                    const Pair pair = *(const Pair*)from;
                    evens[lane].of[half] = pair.first;
                    odds[lane].of[half] = pair.second;
                    group[lane] += 4;
                    if (group[lane] >= kept) group[lane] -= kept;
                }
                multiply<NEITHER>(even.low, low, evens);
                multiply<NEITHER>(even.middle, middle, evens);
                multiply<LEFT>(even.high, high, evens);
                multiply<NEITHER>(odd.low, low, odds);
                multiply<NEITHER>(odd.middle, middle, odds);
                multiply<LEFT>(odd.high, high, odds);
            }
            EACH_LANE for (int row = 0; row < 2; row++) {
                const int i = 2 * row;
                quads[channel][lane].of[row] = bytes_of(even.value(lane, i), odd.value(lane, i), even.value(lane, i + 1),
                                                        odd.value(lane, i + 1));
            }
        }
    }

    // A lane's part of the coefficients, `step` times eight groups after the first: those of its two rows, or zeros.
    __device__ void left_factors(const Lanes<int>& factor, const Lanes<int>& below, const Lanes<int>& word,
                                 const Lanes<int>& word_below, int step, Lanes<Left>& low, Lanes<Left>& middle,
                                 Lanes<Left>& high) const {
        EACH_LANE {
            const Factors a = factor_of(factor[lane], word[lane] + 8 * step, row_groups);
            const Factors b = factor_of(below[lane], word_below[lane] + 8 * step, row_groups);
            const Factors c = factor_of(factor[lane], word[lane] + 8 * step + 4, row_groups);
            const Factors d = factor_of(below[lane], word_below[lane] + 8 * step + 4, row_groups);
            low[lane] = {{a.low, b.low, c.low, d.low}};
            middle[lane] = {{a.middle, b.middle, c.middle, d.middle}};
            high[lane] = {{a.high, b.high, c.high, d.high}};
        }
    }

    // Four pixels, whose bytes are the words with number `which` of `quads`.
    __device__ void store_quad(const Lanes<Quads> quads[3], int lane, int which, int x, int row, int inside,
                               bool aligned) const {
        Element pixels[3][4];
        for (int channel = 0; channel < 3; channel++)
            for (int i = 0; i < 4; i++)
                pixels[channel][i] = elements()[256 * channel + byte_at(quads[channel][lane].of[which], i)];
        const int y = down.step > 0 ? window.top + row : window.bottom - 1 - row;
        if (aligned && inside == 4) {
            Order::store_four<Out>(out, x, y, width, height, pixels);
            return;
        }
        for (int i = 0; i < 4; i++) {
            const Element pixel[3] = {pixels[0][i], pixels[1][i], pixels[2][i]};
            if (i < inside) Order::store_elements<Out>(out, x + i, y, width, height, pixel);
        }
    }

    // All of it, once it fits.
    __device__ void make() const {
        EACH_THREAD fill_tables(thread);
        const int groups = (rows.end - rows.first + 3) / 4, blocks = (rows.len + block_rows - 1) / block_rows;
        for (int left = window.left; left < window.right; left += columns) {
            const TileAxis strip = this->strip(left);
            EACH_THREAD fill_strip(thread, strip);
            for (int first = 0, done = 0; done < blocks; first += loaded) {
                const int now = smaller(loaded, groups - first);
                EACH_THREAD load(thread, strip, first, now);
                BARRIER;
                EACH_WARP sum(warp, strip, first, now);
                BARRIER;
                // Rows end in the order in which they begin.
                int complete = done;
                while (complete < blocks &&
                       row_end(smaller(block_rows * (complete + 1), rows.len) - 1) <= 4 * (first + now))
                    complete++;
                EACH_WARP store(warp, strip, left, done, complete);
                done = complete;
            }
        }
    }
};

// A pixel by itself: apart, since the threads that make tiles need registers.
NOT_INLINE __device__ void store_pixel(const Sample& sample, int x, int y, int width, int height) {
    Order::store<Out>(sample.out, x, y, width, height, sample.pixels.at(x, y));
}

// One tile: what comes from the resampled image all at once, what does not (or does not fit) pixel by pixel.
template <class Src>
__device__ void make_tile(const Sample& sample, const Resample<Src>& resample, const Window& all, int width, int height,
                          unsigned* shared, int shared_bytes) {
    Tile<Src> tile(sample, resample, all, width, height, shared);
    const bool fits = tile.fits(shared_bytes);
    if (fits) tile.make();
    const Window done = fits ? tile.window : Window{0, 0, 0, 0};
    if (done.left == all.left && done.top == all.top && done.right == all.right && done.bottom == all.bottom) return;
    EACH_THREAD {
        const int columns = all.right - all.left;
        NOT_UNROLLED for (int i = thread; i < columns * (all.bottom - all.top); i += blockDim.x) {
            const int x = all.left + i % columns, y = all.top + i / columns;
            if (!done.has(x, y)) store_pixel(sample, x, y, width, height);
        }
    }
}

// The grid is the tiling: its blocks share out the columns (multiples of four) and the rows; a layer is a sample.
__device__ inline void tile_of_block(const Sample* samples, int count, int width, int height, unsigned* shared,
                                     int shared_bytes) {
    if ((int)blockIdx.z >= count) return;
    const int columns = ((width + gridDim.x - 1) / gridDim.x + 3) & ~3, rows = (height + gridDim.y - 1) / gridDim.y;
    const int left = columns * blockIdx.x, top = rows * blockIdx.y;
    if (left >= width || top >= height) return;
    const Window all = {left, top, smaller(left + columns, width), smaller(top + rows, height)};
    const Sample& sample = samples[blockIdx.z];
    make_tile(sample, sample.pixels.resampled(), all, width, height, shared, shared_bytes);
}

#ifdef __CUDACC__
extern "C" __global__ void __launch_bounds__(256, 4) tiled(const Sample* samples, int count, int width, int height,
                                                        int shared_bytes) {
    extern __shared__ __align__(16) unsigned shared[];
    tile_of_block(samples, count, width, height, shared, shared_bytes);
}
#else
// The launch, on the host: every block, and within it every phase, one after another. Shared memory is filled before each
// block, so what was not written shows, and watched behind its end.
extern "C" void tiled__host(void** params, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                            unsigned bz) {
    static thread_local struct alignas(16) {
        unsigned char bytes[(64 << 10) + 256];
    } shared;
    const int shared_bytes = *(int*)params[4];
    gridDim = {gx, gy, gz};
    blockDim = {bx * by * bz, 1, 1};
    for (unsigned block = 0; block < gx * gy * gz; block++) {
        for (unsigned i = 0; i < sizeof shared.bytes; i++) shared.bytes[i] = 0xcb;
        blockIdx = {block % gx, block / gx % gy, block / gx / gy};
        tile_of_block(*(const Sample**)params[0], *(int*)params[1], *(int*)params[2], *(int*)params[3],
                      (unsigned*)shared.bytes, shared_bytes);
        for (unsigned i = shared_bytes; i < sizeof shared.bytes; i++)
            if (shared.bytes[i] != 0xcb) __builtin_trap();
    }
}
#endif
