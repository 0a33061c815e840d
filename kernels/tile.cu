// Tiled kernel, for chains that only move pixels or map single channels after the last resampling.
// Each block computes a tile of one sample's tensor. src/gpu/shape.rs chooses the tiles.
//
// Both passes of a resampling are matrix products on the tensor cores (matrix.cu). A coefficient is
// a fixed-point number of three bytes with 22 fractional bits. Its highest byte is signed, so its
// value must be in [-2, 2), which holds for all filters. The three bytes are multiplied separately,
// and the three products are combined at the end. The resulting integers equal those of resample.cu
// modulo 2^32. In a matrix of coefficients, only a band around the diagonal is not 0.
//
// The threads of a block work in phases, with barriers between phases that use the same data. The
// first phase is executed once per tile. The others are repeated for all source rows of a strip of
// columns, and then for the next strip. There is only one strip, unless the source is so wide that
// its rows do not fit into shared memory.
//   tables   stores the tensor value of each byte, and the rows' coefficients, in shared memory;
//   load     loads up to 32 source rows of the strip: one plane per channel, 4 pixels per word;
//   sum      computes the horizontal sums of these rows, 32 rows by 8 columns at once. Four rows of
//            a column become the bytes of one word in a ring. The ring has as many words as a block
//            of output rows needs;
//   store    computes the vertical sums of complete blocks of output rows, 16 rows by 16 columns at
//            once, looks up their tensor values, and stores four elements at once.
//
// `Tile::fits` decides for each sample whether it is computed in tiles. If shared memory is too small
// for one row of 16 columns, or if there is one tap per axis (nearest), pixels are computed one by
// one, as in fused.cu. So one launch handles samples of every size.
//
// Cost, counted in the PTX for sm_90 and not measured on a device: a 224x224 sample from an average
// window (318x318) of a 500x375 image takes 54,650 issue cycles of a multiprocessor with high tiles,
// and 95,208 with low tiles. So at 20,000 images/s the kernel takes 0.5 to 0.8 % of an H100's cycles
// (goal: at most 2 %; benches/results/device-code-2026-11-23.md).
// The goal is a maximum share of the device's cycles, because the model that runs on the device
// loses this share. Exactness needs three products instead of one: 5,500 of a sample's 218,600 warp
// instructions. The cycles above leave out two costs: 228 bytes per thread of spilled registers, and
// bank conflicts (39 % more passes over shared memory).

// Plan of a tile, and the layout of its shared memory.
template <class Src> struct Tile {
    typedef Out::type Element;
    static const int MOST_LOADED = 8, ELEMENT_WORDS = 192 * sizeof(Element);
    static const int PAST = 8;  // words after the last plane: a product reads eight words, perhaps beyond the plane

    // Place of a lane's coefficients in the list of all Factors: the first entry of its row or
    // column, and the offset of the lane's own entry from there.
    struct Band {
        int first, word;
        __device__ Factors at(const Tile& tile, int more, int groups) const {
            const int group = word + more;
            return tile.factors_at(0)[(unsigned)group < (unsigned)groups ? first + group : 0];
        }
    };

    // For one channel: four adjacent pixels, as the bytes of a word, in each of two rows.
    struct Quads {
        unsigned of[2];
    };

    const Sample& sample;
    Element* out;
    const Src& src;
    const ResampleParams& p;
    int width, height;          // size of the tensor
    Origin across, down;
    Window window;              // part of the tensor that comes from the resampled image
    TileAxis rows;
    int columns;                // columns per strip, a multiple of 16 except for the last strip
    int block_rows;             // output rows per block: at most 16
    int line;                   // words per source row of a channel: 4 more than a multiple of 8
    int stride;                 // words per ring row of a channel: 8 more than a multiple of 16
    int column_groups;          // Factors per column: one per group of four source pixels that has taps of the column
    int row_groups;             // Factors per row: one per group of four source rows that has taps of the row
    int loaded, kept;           // groups of four source rows: number loaded at once, and number in the ring

    // Shared memory begins with [3][256] elements, one Factors of 0, and [rows][row_groups] Factors.
    // Then come the arrays whose offsets are stored below, counted in words.
    unsigned* shared;
    int column_factors;         // offset of [columns][column_groups] Factors
    int planes;                 // offset of [4][3][loaded][line] words (row 4 g + i of channel c at [i][c][g]), [PAST]
    int ring;                   // offset of [kept][3][stride] words. Of each 16 columns, the even ones come first
    int row_places;             // offset of [rows][2] words: first tap's group; end of the taps in source rows
    int column_places;          // offset of [columns] words: the first tap's word, counted from the strip's first word

    __device__ Tile(const Sample& sample, const Resample<Src>& resample, const Window& all, int width, int height,
                    unsigned* shared)
        : sample(sample), out(global(sample.out)), src(resample.src), p(resample.p), width(width), height(height),
          across(sample.pixels.columns()), down(sample.pixels.rows()),
          window{larger(all.left, across.begin), larger(all.top, down.begin), smaller(all.right, across.end),
                 smaller(all.bottom, down.end)},
          rows(p, false, down, window.top, window.bottom), shared(shared) {}

    __device__ Element* elements() const { return (Element*)shared; }
    __device__ Factors* factors_at(int number) const { return (Factors*)(shared + ELEMENT_WORDS) + number; }
    __device__ int column_number() const { return 1 + rows.len * row_groups; }
    __device__ int row_group(int row) const { return (int)shared[row_places + 2 * row]; }
    __device__ int row_end(int row) const { return (int)shared[row_places + 2 * row + 1]; }
    __device__ int column_word(int column) const { return (int)shared[column_places + column]; }

    __device__ bool is_empty() const { return window.left >= window.right || window.top >= window.bottom; }

    __device__ TileAxis strip(int left) const {
        return TileAxis(p, true, across, left, smaller(left + columns, window.right));
    }
    // First pixel to load for a strip, up to 15 pixels before its first input, so that reading is
    // aligned.
    __device__ int start(const TileAxis& strip) const {
        return strip.first - ((strip.first - Pieces<Src>::start(src)) & 15);
    }

    // Lays out shared memory with as few strips as possible and 32 source rows at once. If shared
    // memory is too small for that, uses strips of 16 columns and fewer rows. Returns whether a
    // layout fits.
    __device__ bool fits(int shared_bytes) {
        if (is_empty() || (p.h_taps == 1 && p.v_taps == 1)) return false;
        const TileAxis all(p, true, across, window.left, window.right);
        row_groups = (p.v_taps + 6) / 4;
        column_groups = (p.h_taps + 6) / 4;
        const int words = shared_bytes / 4;
        column_factors = ELEMENT_WORDS + 3 + 3 * rows.len * row_groups;
        const int fixed = column_factors + 2 * rows.len;
        NOT_UNROLLED for (block_rows = 16; block_rows > 0; block_rows /= 2) {
            const int groups = larger(4, (rows.span(block_rows) + 6) / 4);
            NOT_UNROLLED for (int strips = 1;; strips++) {
                columns = ((all.len + strips - 1) / strips + 15) & ~15;
                stride = columns + 8;
                line = 4 * ((all.span(columns) + 30) / 16 | 1);
                const int left = words - fixed - 3 - PAST - columns * (1 + 3 * column_groups) - 3 * stride * (groups - 1);
                loaded = left < 0 ? 0 : smaller(left / (12 * line + 3 * stride), MOST_LOADED);
                kept = groups - 1 + loaded;
                if (loaded == MOST_LOADED || columns == 16) break;
            }
            if (2 * loaded >= block_rows) break;
        }
        if (block_rows == 0) return false;
        // A tile with few source rows needs less memory. The ring still holds at least four groups,
        // because products advance by four groups.
        const int most = (rows.end - rows.first + 3) / 4;
        loaded = smaller(loaded, most);
        kept = smaller(kept, larger(4, most));
        planes = (column_factors + 3 * columns * column_groups + 3) & ~3;
        ring = planes + 12 * loaded * line + PAST;
        row_places = ring + 3 * stride * kept;
        column_places = row_places + 2 * rows.len;
        return true;
    }

    // Stores the tensor value of each byte, and the rows' coefficients. Zeroes planes and ring,
    // because products with coefficients of 0 also read words that nothing else has written yet.
    __device__ void fill_tables(int thread) const {
        NOT_UNROLLED for (int i = planes + 4 * thread; i < row_places; i += 4 * blockDim.x)
            *(Words*)(shared + i) = {{0, 0, 0, 0}};
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
        if (thread == 0) *factors_at(0) = {0, 0, 0};
        const Divisor by(row_groups);
        NOT_UNROLLED for (int i = thread; i < rows.len * row_groups; i += blockDim.x) {
            const int row = by.of(i);
            factors_at(1)[i] = factors_of(rows, row, rows.first, i - row * row_groups);
        }
    }

    // Stores the coefficients of the strip's columns, in the order of the tensor's columns.
    __device__ void fill_strip(int thread, const TileAxis& strip) const {
        const Divisor by(column_groups);
        const int from = start(strip);
        NOT_UNROLLED for (int i = thread; i < strip.len * column_groups; i += blockDim.x) {
            const int column = by.of(i), group = i - column * column_groups;
            const int at = across.step > 0 ? column : strip.len - 1 - column;
            factors_at(column_number())[i] = factors_of(strip, at, from, group);
            if (group == 0) shared[column_places + column] = (strip.bounds[2 * at] - from) / 4;
        }
    }

    // Returns group number `group` of an output's coefficients. A group belongs to four source
    // pixels, counted from pixel `from`.
    __device__ static Factors factors_of(const TileAxis& axis, int output, int from, int group) {
        return factors(axis.coefs + (long long)axis.taps * output, axis.bounds[2 * output + 1],
                       4 * group - ((axis.bounds[2 * output] - from) & 3));
    }

    // Returns a reader for a strip of the tile. The strip has all source rows of the tile, and
    // `count` pieces of 16 pixels per row.
    __device__ Pieces<Src> pieces(const TileAxis& strip, int count) const {
        return Pieces<Src>(src, start(strip), rows.first, rows.end - rows.first, count, strip.first, strip.end);
    }

    // Loads `groups` groups of four source rows, beginning with group `first`. Omits rows past the last one.
    __device__ void load(int thread, const Pieces<Src>& pieces, const Divisor& by, int first, int groups) const {
        const int count = smaller(4 * groups, rows.end - rows.first - 4 * first), plane = loaded * line;
        if (pieces.reads_planes()) {
            const LoadedRows to = {shared + planes, plane, line, by, count * by.by};
            return load_planes(pieces, 4 * first, thread, to);
        }
        NOT_UNROLLED for (int i = thread; i < count * by.by; i += blockDim.x) {
            const int row = by.of(i), place = i - row * by.by;
            const Sixteen piece = pieces.at(place, 4 * first + row);
            piece.store(shared + planes + 3 * plane * (row & 3) + line * (row >> 2) + 4 * place, plane);
        }
    }

    // Computes the horizontal sums of the loaded rows, and stores them in the ring from group `at`
    // on. Only the first `words` words of a row are read, because the coefficients of later words
    // are 0. The right matrices are coefficients. The left matrices are pixels: rows 4 r and 4 r +
    // 1 in the first product, and rows 4 r + 2 and 4 r + 3 in the second. So each lane gets four
    // rows of a column.
    __device__ void sum(int warp, const TileAxis& strip, int words, int at, int groups) const {
        NOT_UNROLLED for (int column = 8 * warp; column < strip.len; column += blockDim.x / 4) {
            const int last = smaller(column + 7, strip.len - 1);
            const int from = smaller(column_word(column), column_word(last));
            const int end = smaller(larger(column_word(column), column_word(last)) + column_groups, words);
            Lanes<Band> band;
            Lanes<const unsigned*> source;
            Lanes<unsigned*> to;
            EACH_LANE {
                const int row = lane / 4, quarter = lane % 4, it = smaller(column + row, last);
                band[lane] = {column_number() + it * column_groups, from + quarter - column_word(it)};
                source[lane] = shared + planes + line * smaller(row, groups - 1) + from + quarter;
                to[lane] = shared + ring + 3 * stride * around(at + row) + (column & ~15) + (column & 8) / 2 + quarter;
            }
            if (end - from <= 8)
                sum_columns<true>(groups, 1, band, source, to);
            else
                sum_columns<false>(groups, (end - from + 7) / 8, band, source, to);
        }
    }

    template <bool ONCE>
    __device__ void sum_columns(int groups, int steps, const Lanes<Band>& band, const Lanes<const unsigned*>& source,
                                const Lanes<unsigned*>& to) const {
        Parts<Right> k;
        if (ONCE) k = right_factors(band, 0);
        const int plane = loaded * line;
        UNROLLED for (int channel = 0; channel < 3; channel++) {
            Weighted sums[2] = {Weighted::none(), Weighted::none()};
            NOT_UNROLLED for (int step = 0; step < (ONCE ? 1 : steps); step++) {
                if (!ONCE) k = right_factors(band, step);
                UNROLLED for (int half = 0; half < 2; half++) {
                    Lanes<Left> pixels;
                    EACH_LANE {
                        const unsigned* from = source[lane] + plane * (6 * half + channel) + 8 * step;
                        pixels[lane] = {{from[0], from[3 * plane], from[4], from[3 * plane + 4]}};
                    }
                    sums[half] = sums[half].plus(pixels, k);
                }
            }
            EACH_LANE {
                const Weighted &a = sums[0], &b = sums[1];
                const unsigned even = bytes_of(a.value(lane, 0), a.value(lane, 2), b.value(lane, 0), b.value(lane, 2));
                const unsigned odd = bytes_of(a.value(lane, 1), a.value(lane, 3), b.value(lane, 1), b.value(lane, 3));
                if (lane / 4 < groups) {
                    to[lane][channel * stride] = even;
                    to[lane][channel * stride + 8] = odd;
                }
            }
        }
    }

    __device__ Parts<Right> right_factors(const Lanes<Band>& band, int step) const {
        Parts<Right> k;
        EACH_LANE {
            const Factors a = band[lane].at(*this, 8 * step, column_groups);
            const Factors b = band[lane].at(*this, 8 * step + 4, column_groups);
            k.low[lane] = {{a.low, b.low}};
            k.middle[lane] = {{a.middle, b.middle}};
            k.high[lane] = {{a.high, b.high}};
        }
        return k;
    }

    // Wraps a group number around the ring, at most once.
    __device__ int around(int group) const { return group < kept ? group : group - kept; }

    // Computes and stores the blocks `begin..end` of output rows, for the strip that begins at
    // tensor column `left`. Group `first` of the source rows is at `at` in the ring.
    __device__ void store(int warp, const TileAxis& strip, int left, int first, int at, int begin, int end) const {
        const bool aligned = (width | left) % 4 == 0 && (unsigned long long)out % sizeof(Four<Element>) == 0;
        NOT_UNROLLED for (int block = begin, column = 16 * warp; block < end; column += blockDim.x / 2) {
            if (column >= strip.len) {
                column -= blockDim.x / 2 + ((strip.len + 15) & ~15);
                block++;
                continue;
            }
            const int top = block_rows * block, last = smaller(top + block_rows, rows.len) - 1, group = row_group(top);
            const int groups = (row_end(last) + 3) / 4 - group, place = at + group - first;
            Lanes<Band> above, below;
            Lanes<int> source;
            EACH_LANE {
                const int row = lane / 4, quarter = lane % 4, a = smaller(top + row, last);
                const int b = smaller(top + row + 8, last);
                above[lane] = {1 + a * row_groups, group + quarter - row_group(a)};
                below[lane] = {1 + b * row_groups, group + quarter - row_group(b)};
                source[lane] = around(around(place < 0 ? place + kept : place) + quarter);
            }
            Lanes<Quads> quads[3];
            if (groups <= 8)
                sum_rows<true>(1, column, above, below, source, quads);
            else
                sum_rows<false>((groups + 7) / 8, column, above, below, source, quads);
            EACH_LANE {
                const int row = top + lane / 4, x = left + column + lane % 4 * 4, inside = left + strip.len - x;
                if (aligned && inside >= 4 && row + 8 <= last) {
                    store_four(quads, lane, 0, x, row);
                    store_four(quads, lane, 1, x, row + 8);
                } else {
                    if (row <= last) store_some(quads, lane, 0, x, row, smaller(4, inside));
                    if (row + 8 <= last) store_some(quads, lane, 1, x, row + 8, smaller(4, inside));
                }
            }
        }
    }

    // Computes the vertical sums for 16 output rows by 16 columns. The left matrices are
    // coefficients. The right matrices are the even columns and the odd columns. So each lane gets
    // four adjacent columns.
    template <bool ONCE>
    __device__ void sum_rows(int steps, int column, const Lanes<Band>& above, const Lanes<Band>& below,
                             const Lanes<int>& source, Lanes<Quads> quads[3]) const {
        Parts<Left> k;
        if (ONCE) k = left_factors(above, below, 0);
        UNROLLED for (int channel = 0; channel < 3; channel++) {
            Weighted even = Weighted::none(), odd = even;
            Lanes<int> group = source;
            NOT_UNROLLED for (int step = 0; step < (ONCE ? 1 : steps); step++) {
                if (!ONCE) k = left_factors(above, below, step);
                Lanes<Right> evens, odds;
                EACH_LANE for (int half = 0; half < 2; half++) {
                    const unsigned* from = shared + ring + (3 * group[lane] + channel) * stride + column + lane / 4;
                    evens[lane].of[half] = from[0];
                    odds[lane].of[half] = from[8];
                    group[lane] = around(group[lane] + 4);
                }
                even = even.plus(k, evens);
                odd = odd.plus(k, odds);
            }
            EACH_LANE for (int row = 0; row < 2; row++) {
                const int i = 2 * row;
                quads[channel][lane].of[row] = bytes_of(even.value(lane, i), odd.value(lane, i), even.value(lane, i + 1),
                                                        odd.value(lane, i + 1));
            }
        }
    }

    __device__ Parts<Left> left_factors(const Lanes<Band>& above, const Lanes<Band>& below, int step) const {
        Parts<Left> k;
        EACH_LANE {
            const Factors a = above[lane].at(*this, 8 * step, row_groups);
            const Factors b = below[lane].at(*this, 8 * step, row_groups);
            const Factors c = above[lane].at(*this, 8 * step + 4, row_groups);
            const Factors d = below[lane].at(*this, 8 * step + 4, row_groups);
            k.low[lane] = {{a.low, b.low, c.low, d.low}};
            k.middle[lane] = {{a.middle, b.middle, c.middle, d.middle}};
            k.high[lane] = {{a.high, b.high, c.high, d.high}};
        }
        return k;
    }

    // Stores four adjacent pixels. For each channel, the word number `which` of `quads` holds the
    // four bytes.
    __device__ void store_four(const Lanes<Quads> quads[3], int lane, int which, int x, int row) const {
        Element pixels[3][4];
        for (int channel = 0; channel < 3; channel++)
            for (int i = 0; i < 4; i++)
                pixels[channel][i] = element_at(channel, quads[channel][lane].of[which], i);
        Order::store_four<Out>(out, x, tensor_row(row), width, height, pixels);
    }
    // Stores the first `count` of the four adjacent pixels that `store_four` would store.
    __device__ void store_some(const Lanes<Quads> quads[3], int lane, int which, int x, int row, int count) const {
        NOT_UNROLLED for (int i = 0; i < count; i++) {
            Element pixel[3];
            for (int channel = 0; channel < 3; channel++)
                pixel[channel] = element_at(channel, quads[channel][lane].of[which] >> 8 * i, 0);
            Order::store_elements<Out>(out, x + i, tensor_row(row), width, height, pixel);
        }
    }
    __device__ int tensor_row(int row) const { return down.step > 0 ? window.top + row : window.bottom - 1 - row; }

    // Returns the tensor value of byte number `i` of a word. The table begins at a multiple of its
    // size, so the byte offset is put into the address by a bitwise OR instead of an addition.
    __device__ Element element_at(int channel, unsigned word, int i) const {
        const int bits = 8 * i - (sizeof(Element) == 4 ? 2 : sizeof(Element) == 2 ? 1 : 0);
        const unsigned offset = (bits < 0 ? word << -bits : word >> bits) & 255 * (unsigned)sizeof(Element);
        return ((const Element*)within(shared, offset))[256 * channel];
    }

    // Computes the whole tile, for which `fits` must have returned true.
    __device__ void make() const {
        EACH_THREAD fill_tables(thread);
        BARRIER;
        const int groups = (rows.end - rows.first + 3) / 4, blocks = (rows.len + block_rows - 1) / block_rows;
        NOT_UNROLLED for (int left = window.left; left < window.right; left += columns) {
            const TileAxis strip = this->strip(left);
            EACH_THREAD fill_strip(thread, strip);
            const Divisor by((strip.end - start(strip) + 15) / 16);
            const Pieces<Src> pieces = this->pieces(strip, by.by);
            NOT_UNROLLED for (int first = 0, at = 0, done = 0; done < blocks;) {
                const int now = smaller(loaded, groups - first);
                EACH_THREAD load(thread, pieces, by, first, now);
                BARRIER;
                EACH_WARP sum(warp, strip, 4 * by.by, at, now);
                BARRIER;
                // The last source row that an output row needs never comes before that of the
                // previous output row. So the blocks of output rows become complete in order.
                int complete = done;
                while (complete < blocks &&
                       row_end(smaller(block_rows * (complete + 1), rows.len) - 1) <= 4 * (first + now))
                    complete++;
                EACH_WARP store(warp, strip, left, first, at, done, complete);
                done = complete;
                first += now;
                at = around(at + now);
            }
        }
    }
};

// Computes a single pixel. Not inlined, so that threads of tiled samples have enough registers.
NOT_INLINE __device__ void store_pixel(const Sample& sample, int x, int y, int width, int height) {
    Order::store<Out>(sample.out, x, y, width, height, sample.pixels.at(x, y));
}

// Computes one tile. If the tile fits into shared memory (`Tile::fits`), the pixels that come from
// the resampled image are computed together. All other pixels are computed one by one.
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

// The grid divides the largest output into tiles, whose widths and heights are multiples of 16.
// Each grid layer is a sample.
__device__ inline void tile_of_block(const Sample* samples, int count, int width, int height, unsigned* shared,
                                     int shared_bytes) {
    if ((int)blockIdx.z >= count) return;
    const int columns = ((width + gridDim.x - 1) / gridDim.x + 15) & ~15;
    const int rows = ((height + gridDim.y - 1) / gridDim.y + 15) & ~15;
    const int left = columns * blockIdx.x, top = rows * blockIdx.y;
    const Sample& sample = samples[blockIdx.z];
    if (left >= sample.width || top >= sample.height) return;
    const Window all = {left, top, smaller(left + columns, sample.width), smaller(top + rows, sample.height)};
    make_tile(sample, sample.pixels.resampled(), all, sample.width, sample.height, shared, shared_bytes);
}

#ifdef __CUDACC__
extern "C" __global__ void __launch_bounds__(256, 4) tiled(const Sample* samples, int count, int width, int height,
                                                        int shared_bytes) {
    extern __shared__ __align__(1024) unsigned shared[];
    tile_of_block(samples, count, width, height, shared, shared_bytes);
}
#else
// Launch on the host: runs all blocks one after another, and in each block all phases. Before each
// block, all bytes are set to 0xcb, which reveals reads of unwritten values. The bytes after shared
// memory must keep this value.
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
