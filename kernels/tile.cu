// The tiled form of the kernel, for chains in which pixels only move, or are mapped each channel by itself, after the
// last resampling: a block makes a tile of one sample's tensor. Twin of `Shape::tiles` in src/gpu/kernel.rs.
//
// The threads of a block work in phases with a barrier between them, and all of them walk the same loops:
//   tables   what becomes of each byte (normalized, converted) and the rows' coefficients go into shared memory;
//   then, for strips of columns (one, unless the source is so wide that a strip's rows do not fit):
//   load     a few source rows of the strip's window, split into a plane for each channel, 4 pixels to a word;
//   sum      along the rows: each source row once per tile. Four rows of a column become the bytes of one word, in a
//            ring of as many words as the longest column sum needs;
//   store    the output rows that are complete: sums along the columns, the table, two elements per store.
// A coefficient is 22 bits and a sign. Its three bytes are multiplied apart, four taps with one instruction (dp4a), and
// put together at the end: the same integers as in resample.cu, modulo 2^32. The highest byte is signed, so a
// coefficient must be in [-2, 2) once it is scaled back, which the filters' are.
//
// How a tile is made is decided by its sample alone (`Tile::fits`). Where not even one column's shares of shared memory
// suffice, and for one tap per axis (nearest), where nothing is gained, its pixels are evaluated one by one as in fused.cu.
// So one launch takes samples of every size, and an odd one costs only itself.
//
// What it should cost; counted in the machine code for sm_90 (NVRTC 13.0, 64 registers), measured on no device yet. A
// multiprocessor begins 128 instructions of threads per cycle. Loading takes 47 for 4 source pixels, the sums along rows
// 37, 52, 67, 93 or 108 for a pixel of 1 to 5 words of taps (of which 9 to 45 are dp4a), the rest 105 for two output
// pixels, and 36 more for each further word of taps. With these, an average window of 500x375 (318x318; 604 kB with its
// f16 output) is 59,000 cycles of one multiprocessor, one of 2048x1536 (1303x1303; 5.4 MB) 380,000. An H200 with 132 of
// them at 1.75 GHz, should it copy at 4.2 TB/s (read and written), copies as many bytes in 33,000 and 300,000. So where
// every cycle begins all it can, 0.56 and 0.79 of the rate of a copy is the most that can come out, and less in practice:
// the instructions are the limit, not the memory.
// Byte number `part` of four coefficients, from number `first` on; 0 for those that there are not.
__device__ inline unsigned factors(const int* coefs, int count, int first, int part) {
    unsigned word = 0;
    for (int i = 0; i < 4; i++) {
        const int tap = first + i;
        if (tap >= 0 && tap < count) word |= ((unsigned)coefs[tap] >> 8 * part & 255) << 8 * i;
    }
    return word;
}

// Four coefficients in parts; 16 bytes, so that they come with one load.
struct alignas(16) Factors {
    unsigned low, middle, high, unused;
};

// Sums of the three parts of products.
struct Parts {
    unsigned low = 1 << 21, middle = 0;
    int high = 0;
    __device__ void add(unsigned bytes, const Factors& k) {
        low = dot_unsigned(bytes, k.low, low);
        middle = dot_unsigned(bytes, k.middle, middle);
        high = dot_signed(bytes, k.high, high);
    }
    // What they are together, rounded, and not yet clamped to a byte.
    __device__ int value() const { return (int)(low + (middle << 8) + ((unsigned)high << 16)) >> 22; }
};

// Where an output row's taps are.
struct alignas(16) Taps {
    int place, groups;          // of the first group, from the ring's beginning on, and how many there are
    int end;                    // the first source row after them, counted from the tile's first
    int unused;
};

__device__ inline int byte_of_sum(int value) { return larger(0, smaller(255, value)); }

// A rectangle of the tensor, half open.
struct Window {
    int left, top, right, bottom;
    __device__ bool has(int x, int y) const { return x >= left && x < right && y >= top && y < bottom; }
};

// The outputs of one axis of a tile, in the order of the source, and what they read.
struct TileAxis {
    const int* bounds;          // (first, count) of each
    const int* coefs;
    int taps;                   // coefficients of each
    int len;
    int first, end;             // what all of them read
    // Of the outputs from `begin` to before `end` of the tensor; the resampled image's first one is `first`.
    __device__ TileAxis(const ResampleParams& p, bool columns, const Origin& origin, int from, int to)
        : taps(columns ? p.h_taps : p.v_taps), len(to - from), first(0), end(0) {
        const int place = origin.at + (origin.step > 0 ? from : 1 - to) - (columns ? p.x : p.y);
        bounds = p.table + (columns ? p.h_bounds : p.v_bounds) + 2 * place;
        coefs = p.table + (columns ? p.h_coefs : p.v_coefs) + (long long)taps * place;
        if (len > 0) {
            first = bounds[0];
            end = bounds[2 * len - 2] + bounds[2 * len - 1];
        }
    }
};

// How a tile is made, and where its parts lie in shared memory.
template <class Src> struct Tile {
    typedef Out::type Element;

    const Sample& sample;
    Element* out;
    const Src& src;
    const ResampleParams& p;
    int width, height;          // of the tensor
    Origin across, down;
    Window window;              // what comes from the resampled image
    TileAxis rows;
    int columns, words;         // most columns of a strip, and most words of one of its source rows
    int column_groups;          // words of a column's taps
    int row_groups;             // words that a row's taps lie in
    int loaded, kept;           // groups of four source rows: loaded at once, and in the ring

    unsigned* shared;           // [rows][row_groups] Factors, and then, by their places:
    int table;                  // [3][256] elements
    int row_taps;               // [rows] Taps
    int column_taps;            // [columns][2]: first source pixel, counted from the strip's first, and words of taps
    int column_factors;         // [column_groups][3][columns]
    int planes;                 // [4 * loaded][3][words + 1]
    int ring;                   // [kept][3][columns]

    __device__ Tile(const Sample& sample, const Resample<Src>& resample, const Window& all, int width, int height,
                    unsigned* shared)
        : sample(sample), out(sample.out), src(resample.src), p(resample.p), width(width), height(height),
          across(sample.pixels.columns()), down(sample.pixels.rows()),
          window{larger(all.left, across.begin), larger(all.top, down.begin), smaller(all.right, across.end),
                 smaller(all.bottom, down.end)},
          rows(p, false, down, window.top, window.bottom), shared(shared) {}

    __device__ const Taps& taps(int row) const { return ((const Taps*)(shared + row_taps))[row]; }
    __device__ Element* elements() const { return (Element*)(shared + table); }
    __device__ const Factors& row_factors(int row, int group) const {
        return ((const Factors*)shared)[row * row_groups + group];
    }

    __device__ bool is_empty() const { return window.left >= window.right || window.top >= window.bottom; }

    __device__ TileAxis strip(int left) const {
        return TileAxis(p, true, across, left, smaller(left + columns, window.right));
    }
    // The first pixel that is loaded for a strip.
    __device__ int start(const TileAxis& strip) const {
        const int best = Quads<Src>::start(src);
        return strip.first - ((strip.first - best) & 3);
    }

    // Shares out shared memory: as few strips as possible, then as many rows at once as possible. Whether that can be.
    __device__ bool fits(int shared_bytes) {
        if (is_empty() || (p.h_taps == 1 && p.v_taps == 1)) return false;
        row_groups = (p.v_taps + 6) / 4;
        column_groups = (p.h_taps + 3) / 4;
        const int fixed = (int)(768 * sizeof(Element)) + 4 + 16 * rows.len * (1 + row_groups);
        NOT_UNROLLED for (columns = window.right - window.left;; columns = (columns + 1) / 2) {
            words = 0;
            NOT_UNROLLED for (int left = window.left; left < window.right; left += columns) {
                const TileAxis it = strip(left);
                words = larger(words, (it.end - start(it) + 3) / 4);
            }
            const int of_strip = columns * (8 + 12 * column_groups) + (row_groups - 1) * 12 * columns;
            const int of_group = 48 * (words + 1) + 12 * columns;
            loaded = (shared_bytes - fixed - of_strip) / of_group;
            if (loaded > 0 && shared_bytes > fixed + of_strip) break;
            if (columns == 1) return false;
        }
        loaded = smaller(loaded, MOST_LOADED);
        kept = row_groups - 1 + loaded;
        row_taps = 4 * rows.len * row_groups;
        table = row_taps + 4 * rows.len;
        column_taps = table + (int)(192 * sizeof(Element));
        column_factors = column_taps + 2 * columns;
        planes = column_factors + 3 * column_groups * columns;
        ring = planes + 12 * loaded * (words + 1);
        return true;
    }
    static const int MOST_LOADED = 8;

    // What becomes of each byte, and the rows' coefficients.
    __device__ void fill_tables(int thread) const {
        NOT_UNROLLED for (int i = thread; i < 256; i += blockDim.x) {
            const Bytes byte = {(unsigned char)i, (unsigned char)i, (unsigned char)i};
            const Pixels::Pixel pixel = sample.pixels.of(byte);
            elements()[i] = Out::of(pixel.r);
            elements()[256 + i] = Out::of(pixel.g);
            elements()[512 + i] = Out::of(pixel.b);
        }
        NOT_UNROLLED for (int i = thread; i < rows.len; i += blockDim.x) {
            const int first = rows.bounds[2 * i] - rows.first, end = first + rows.bounds[2 * i + 1];
            const Taps it = {first / 4 % kept * 3 * columns, (end + 3) / 4 - first / 4, end, 0};
            ((Taps*)(shared + row_taps))[i] = it;
        }
        NOT_UNROLLED for (int i = thread; i < rows.len * row_groups; i += blockDim.x) {
            const int row = i / row_groups, group = i % row_groups;
            const int first = 4 * group - ((rows.bounds[2 * row] - rows.first) & 3), count = rows.bounds[2 * row + 1];
            const int* coefs = rows.coefs + (long long)rows.taps * row;
            NOT_UNROLLED for (int part = 0; part < 3; part++)
                shared[4 * i + part] = factors(coefs, count, first, part);
        }
    }

    __device__ void fill_strip(int thread, const TileAxis& strip) const {
        NOT_UNROLLED for (int i = thread; i < strip.len; i += blockDim.x) {
            const int count = strip.bounds[2 * i + 1];
            shared[column_taps + 2 * i] = strip.bounds[2 * i] - start(strip);
            shared[column_taps + 2 * i + 1] = (count + 3) / 4;
            const int* coefs = strip.coefs + (long long)strip.taps * i;
            NOT_UNROLLED for (int group = 0; group < 3 * column_groups; group++)
                shared[column_factors + group * columns + i] = factors(coefs, count, group / 3 * 4, group % 3);
        }
    }

    // `groups` groups of four source rows, from group `first` on. What is past the last row repeats it.
    __device__ void load(int thread, const TileAxis& strip, int first, int groups) const {
        const int from = start(strip), len = (strip.end - from + 3) / 4, y = rows.first + 4 * first;
        const int last = smaller(4 * groups, rows.end - y) - 1;
        const Quads<Src> quads(src, from, y, last + 1, len, strip.first, strip.end);
        const Divisor by(len);
        NOT_UNROLLED for (int i = thread; i < 4 * groups * len; i += blockDim.x) {
            const int row = by.of(i), word = i - row * len;
            const Quad quad = quads.at(word, smaller(row, last));
            unsigned* to = shared + planes + 3 * row * (words + 1) + word;
            to[0] = quad.r;
            to[words + 1] = quad.g;
            to[2 * (words + 1)] = quad.b;
        }
    }

    // Sums along the loaded rows. A thread keeps its column, and with WORDS (of taps, at most) its coefficients.
    template <int WORDS> __device__ void sum_words(int thread, const TileAxis& strip, int first, int groups) const {
        const Lanes lanes(thread, strip.len);
        const Divisor around(kept);
        const int line = words + 1;
        NOT_UNROLLED for (int column = lanes.first; column < strip.len; column += lanes.count) {
            const unsigned pixel = shared[column_taps + 2 * column];
            const unsigned bits = 8 * (pixel & 3);
            Factors k[WORDS];
            for (int word = 0; word < WORDS; word++) k[word] = factors_of(column, word);
            NOT_UNROLLED for (int group = lanes.slot; group < groups; group += lanes.slots) {
                const int from = planes + 12 * group * line + pixel / 4;
                unsigned bytes[3] = {0, 0, 0};
                for (int half = 1; half >= 0; half--) {
                    int values[6];
                    for (int i = 0; i < 6; i++) {
                        const int at = from + (6 * half + i) * line;
                        unsigned before = shared[at];
                        Parts parts;
                        for (int word = 0; word < WORDS; word++) {
                            const unsigned next = shared[at + word + 1], taps = shifted(before, next, bits);
                            parts.add(taps, k[word]);
                            before = next;
                        }
                        values[i] = parts.value();
                    }
                    for (int i = 0; i < 3; i++) bytes[i] = clamped(values[i], values[3 + i], bytes[i]);
                }
                keep(column, strip, first + group, around, bytes);
            }
        }
    }

    // The same for any number of taps, two rows at a time, as threads have not registers for four.
    __device__ void sum_taps(int thread, const TileAxis& strip, int first, int groups) const {
        const Lanes lanes(thread, strip.len);
        const Divisor around(kept);
        const int line = words + 1;
        NOT_UNROLLED for (int column = lanes.first; column < strip.len; column += lanes.count) {
            const unsigned pixel = shared[column_taps + 2 * column], count = shared[column_taps + 2 * column + 1];
            const unsigned bits = 8 * (pixel & 3);
            NOT_UNROLLED for (int group = lanes.slot; group < groups; group += lanes.slots) {
                unsigned bytes[3] = {0, 0, 0};
                NOT_UNROLLED for (int half = 1; half >= 0; half--) {
                    const int from = planes + (12 * group + 6 * half) * line + pixel / 4;
                    unsigned before[6];
                    Parts parts[6];
                    const Factors k = factors_of(column, 0);
                    for (int i = 0; i < 6; i++) {
                        before[i] = shared[from + i * line + 1];
                        parts[i].add(shifted(shared[from + i * line], before[i], bits), k);
                    }
                    NOT_UNROLLED for (unsigned word = 1; word < count; word++) {
                        const Factors k = factors_of(column, word);
                        for (int i = 0; i < 6; i++) {
                            const unsigned next = shared[from + i * line + word + 1];
                            parts[i].add(shifted(before[i], next, bits), k);
                            before[i] = next;
                        }
                    }
                    for (int i = 0; i < 3; i++)
                        bytes[i] = clamped(parts[i].value(), parts[3 + i].value(), bytes[i]);
                }
                keep(column, strip, first + group, around, bytes);
            }
        }
    }

    __device__ Factors factors_of(int column, int word) const {
        const int at = column_factors + 3 * word * columns + column;
        const Factors k = {shared[at], shared[at + columns], shared[at + 2 * columns], 0};
        return k;
    }

    // The ring's columns are in the order of the tensor.
    __device__ void keep(int column, const TileAxis& strip, int group, const Divisor& around,
                         const unsigned bytes[3]) const {
        const int x = across.step > 0 ? column : strip.len - 1 - column;
        const int to = ring + 3 * (group - around.of(group) * kept) * columns + x;
        for (int channel = 0; channel < 3; channel++) shared[to + channel * columns] = bytes[channel];
    }

    __device__ void sum(int thread, const TileAxis& strip, int first, int groups) const {
        switch (column_groups) {
            case 1: return sum_words<1>(thread, strip, first, groups);
            case 2: return sum_words<2>(thread, strip, first, groups);
            case 3: return sum_words<3>(thread, strip, first, groups);
            case 4: return sum_words<4>(thread, strip, first, groups);
            case 5: return sum_words<5>(thread, strip, first, groups);
            default: return sum_taps(thread, strip, first, groups);
        }
    }

    // The output rows from number `begin` to before `end`, of the columns from `left` on. A thread keeps its two columns;
    // where one of them is not the strip's, what it reads from beside the ring's columns is not used.
    __device__ void store(int thread, const TileAxis& strip, int left, int begin, int end) const {
        const int right = left + strip.len, even = left & ~1, pairs = (right - even + 1) / 2;
        const bool aligned = width % 2 == 0 && (unsigned long long)out % sizeof(Two<Element>) == 0;
        const int around = 3 * kept * columns;
        const Lanes lanes(thread, pairs);
        NOT_UNROLLED for (int pair = lanes.first; pair < pairs; pair += lanes.count) {
            const int x = even + 2 * pair;
            const bool first = x >= left, second = x + 1 < right, both = first && second && aligned;
            const unsigned* column = shared + ring + x - left;
            NOT_UNROLLED for (int row = begin + lanes.slot; row < end; row += lanes.slots) {
                const Taps at = taps(row);
                const unsigned* from = column + at.place;
                Parts parts[6];
                for (int i = 0; i < 3; i++) {
                    parts[i].add(from[i * columns], row_factors(row, 0));
                    parts[3 + i].add(from[i * columns + 1], row_factors(row, 0));
                }
                int place = at.place;
                NOT_UNROLLED for (int it = 1; it < at.groups; it++) {
                    place += 3 * columns;
                    if (place == around) place = 0;
                    from = column + place;
                    const Factors k = row_factors(row, it);
                    for (int i = 0; i < 3; i++) {
                        parts[i].add(from[i * columns], k);
                        parts[3 + i].add(from[i * columns + 1], k);
                    }
                }
                Element pixels[2][3];
                for (int i = 0; i < 6; i++)
                    pixels[i / 3][i % 3] = elements()[256 * (i % 3) + byte_of_sum(parts[i].value())];
                const int y = down.step > 0 ? window.top + row : window.bottom - 1 - row;
                if (both) {
                    Order::store_two<Out>(out, x, y, width, height, pixels[0], pixels[1]);
                } else {
                    if (first) Order::store_elements<Out>(out, x, y, width, height, pixels[0]);
                    if (second) Order::store_elements<Out>(out, x + 1, y, width, height, pixels[1]);
                }
            }
        }
    }

    // All of it, once it fits.
    __device__ void make() const {
        EACH_THREAD fill_tables(thread);
        const int groups = (rows.end - rows.first + 3) / 4;
        for (int left = window.left; left < window.right; left += columns) {
            const TileAxis strip = this->strip(left);
            EACH_THREAD fill_strip(thread, strip);
            for (int first = 0, done = 0; done < rows.len; first += loaded) {
                const int now = smaller(loaded, groups - first);
                EACH_THREAD load(thread, strip, first, now);
                BARRIER;
                EACH_THREAD sum(thread, strip, first, now);
                BARRIER;
                // Rows end in the order in which they begin.
                int complete = done;
                while (complete < rows.len && taps(complete).end <= 4 * (first + now)) complete++;
                EACH_THREAD store(thread, strip, left, done, complete);
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

// The grid is the tiling: its blocks share out the columns (even numbers of them) and the rows; a layer is a sample.
__device__ inline void tile_of_block(const Sample* samples, int count, int width, int height, unsigned* shared,
                                     int shared_bytes) {
    if ((int)blockIdx.z >= count) return;
    const int columns = ((width + gridDim.x - 1) / gridDim.x + 1) & ~1, rows = (height + gridDim.y - 1) / gridDim.y;
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
        unsigned char bytes[(48 << 10) + 256];
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
