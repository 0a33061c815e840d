// Removes what is not coded data: the zero byte after each byte of ff (T.81, B.1.1.5), and restart markers. A block
// handles a chunk of 4 KiB, and a thread a piece of 16 bytes. The first kernel counts removed bytes, and the second one
// adds up the counts of the chunks before its own. So no block waits for another block.
const unsigned PIECE = 16, CHUNK = THREADS * PIECE;

// Words of coefficients that a block of jpeg_begin zeroes. Same value as in src/decode/jpeg/device/text.rs.
const unsigned ZEROED = 4096;

// Number of zero bytes after the clean data.
const unsigned PADDING = 12;

struct alignas(16) Words {
    unsigned of[4];
};

struct alignas(8) Pair {
    unsigned of[2];
};

#ifdef __CUDACC__
#define ADD(place, value) atomicAdd(place, value)
#define SET_BITS(place, value) atomicOr(place, value)
__device__ inline unsigned bits_of(unsigned mask) { return __popc(mask); }
// Adds the products of four bytes.
__device__ inline unsigned four_products(unsigned a, unsigned b, unsigned sum) { return __dp4a(a, b, sum); }
__device__ inline int leading_zeros(unsigned mask) { return __clz(mask); }
// Returns the word whose bytes are in the opposite order.
__device__ inline unsigned reversed(unsigned word) { return __byte_perm(word, 0, 0x0123); }
// Returns the lower word of the pair (high, low), shifted right.
__device__ inline unsigned joined_right(unsigned high, unsigned low, unsigned bits) {
    return __funnelshift_r(low, high, bits);
}
#else
#define ADD(place, value) (*(place) += (value))
#define SET_BITS(place, value) (*(place) |= (value))
static inline unsigned bits_of(unsigned mask) { return __builtin_popcount(mask); }
static inline unsigned four_products(unsigned a, unsigned b, unsigned sum) {
    for (int at = 0; at < 32; at += 8) sum += (a >> at & 255) * (b >> at & 255);
    return sum;
}
static inline int leading_zeros(unsigned mask) { return __builtin_clz(mask); }
static inline unsigned reversed(unsigned word) { return __builtin_bswap32(word); }
static inline unsigned joined_right(unsigned high, unsigned low, unsigned bits) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (bits & 31));
}
#endif

// Returns the top bits of the bytes of four words, as the lower 16 bits of a word.
__device__ inline unsigned top_bits(const unsigned* words) {
    unsigned sums[2];
    UNROLLED for (int i = 0; i < 2; i++) {
        const unsigned first = words[2 * i] & 0x80808080, second = words[2 * i + 1] & 0x80808080;
        sums[i] = four_products(first, 0x08040201, four_products(second, 0x80402010, 0));
    }
    return sums[0] >> 7 | sums[1] << 1;
}

// Loads a piece. No byte after the data is read.
__device__ inline Words load_piece(const Jpeg& jpeg, unsigned number) {
    const unsigned first = PIECE * number;
    if (first + PIECE <= jpeg.data_bytes) return *(const Words*)(jpeg.data + first);
    Words words = {{0, 0, 0, 0}};
    UNROLLED for (unsigned i = 0; i < PIECE; i++)
        if (first + i < jpeg.data_bytes) words.of[i / 4] |= (unsigned)jpeg.data[first + i] << 8 * (i % 4);
    return words;
}

// A piece, with one bit per byte: bytes inside of the data, bytes that stay, and first bytes of markers.
struct Piece {
    unsigned all, kept, markers;

    __device__ Piece(const Jpeg& jpeg, unsigned number) : all(0), kept(0), markers(0) {
        const unsigned first = PIECE * number;
        if (first >= jpeg.data_bytes) return;
        const unsigned len = jpeg.data_bytes - first;
        all = len < PIECE ? (1u << len) - 1 : 0xffff;
        const Words words = load_piece(jpeg, number);
        // No sum carries into the next byte.
        unsigned is_ff[4], is_other[4];
        UNROLLED for (int i = 0; i < 4; i++) {
            const unsigned word = words.of[i], low = word & 0x7f7f7f7f;
            is_ff[i] = (low + 0x01010101) & word;
            is_other[i] = (low + 0x7f7f7f7f) | word;
        }
        const unsigned ff = top_bits(is_ff), zero = ~top_bits(is_other);
        // Nothing follows the last byte, so a last byte of ff counts as a marker.
        const unsigned next = len > PIECE && jpeg.data[first + PIECE] == 0;
        const unsigned stuffed = ff << 1 | (first > 0 && jpeg.data[first - 1] == 0xff);
        const unsigned marker = ff & all & ~((zero & all) >> 1 | next << 15);
        kept = all & ~stuffed & ~marker;
        markers = marker & ~stuffed;
    }
    __device__ unsigned len() const { return bits_of(all); }
};

// Finds the bytes that stay. Counts the removed bytes of a chunk in the low half, and its markers in the high half. All
// blocks zero coefficients.
extern "C" __global__ void jpeg_begin(const Jpeg* images, int count, int, int) {
    if ((int)blockIdx.z >= count) return;
    const Jpeg& jpeg = images[blockIdx.z];
    if (blockIdx.x * CHUNK < jpeg.data_bytes) {
        SHARED unsigned sum;
        EACH_THREAD if (thread == 0) sum = 0;
        BARRIER;
        EACH_THREAD {
            const unsigned number = blockIdx.x * THREADS + thread;
            const Piece piece(jpeg, number);
            const unsigned removed = piece.len() - bits_of(piece.kept);
            if (removed) ADD(&sum, removed + (bits_of(piece.markers) << 16));
            // jpeg_clean replaces them by the piece's place.
            if (number < jpeg.pieces()) jpeg.offsets[number] = piece.kept;
        }
        BARRIER;
        EACH_THREAD if (thread == 0) jpeg.counts[blockIdx.x] = sum;
    }
    const unsigned words = 8u * jpeg.columns * jpeg.rows * jpeg.unit(), first = blockIdx.x * ZEROED;
    const unsigned sums = jpeg.dc_rows * jpeg.across * jpeg.unit();
    EACH_THREAD {
        Words* const coefficients = (Words*)jpeg.coefficients + first + thread;
        int* const dc = jpeg.dc;
        if (first + ZEROED <= words) {
            UNROLLED for (unsigned i = 0; i < ZEROED; i += THREADS) coefficients[i] = {{0, 0, 0, 0}};
        } else {
            for (unsigned i = 0; first + thread + i < words; i += THREADS) coefficients[i] = {{0, 0, 0, 0}};
        }
        for (unsigned i = blockIdx.x * THREADS + thread; i < sums; i += gridDim.x * THREADS) dc[i] = 0;
    }
}

// Returns the number of bytes that are removed before the block's chunk.
__device__ inline unsigned removed_before(const Jpeg& jpeg) {
    SHARED unsigned sum;
    EACH_THREAD if (thread == 0) sum = 0;
    BARRIER;
    EACH_THREAD {
        unsigned removed = 0;
        for (unsigned chunk = thread; chunk < blockIdx.x; chunk += THREADS) removed += jpeg.counts[chunk] & 0xffff;
        if (removed) ADD(&sum, removed);
    }
    BARRIER;
    return sum;
}

// The words of `clean` that a block writes, from the word of its first byte on. Threads add their bytes by OR, because
// two pieces may share a word.
struct alignas(16) Chunk {
    unsigned words[CHUNK / 4 + 4];

    // Adds the kept bytes of a piece, of which the first one is byte `at` of the words.
    __device__ void add(const Words& piece, unsigned mask, unsigned at) {
        // Kept bytes, the first one on top of the first word. Bytes are removed one at a time, because they are few.
        unsigned kept[5] = {0, 0, 0, 0, 0}, removed = ~mask & 0xffff;
        UNROLLED for (int i = 0; i < 4; i++) kept[i] = reversed(piece.of[i]);
        NOT_UNROLLED while (removed) {
            const int last = 31 - leading_zeros(removed);
            removed ^= 1u << last;
            UNROLLED for (int i = 0; i < 4; i++) {
                const unsigned shifted = joined_right(kept[i], kept[i + 1], 24);
                // In the word of the removed byte, the bytes before it stay.
                const unsigned before = i == last / 4 ? ~(~0u >> 8 * (last % 4)) : 0;
                if (i >= last / 4) kept[i] = (kept[i] & before) | (shifted & ~before);
            }
        }
        UNROLLED for (int i = 0; i < 5; i++) {
            const unsigned word = joined_right(i ? kept[i - 1] : 0, kept[i], 8 * (at & 3));
            if (word) SET_BITS(&words[at / 4 + i], word);
        }
    }
};

extern "C" __global__ void jpeg_clean(const Jpeg* images, int count, int, int) {
    if ((int)blockIdx.z >= count) return;
    const Jpeg& jpeg = images[blockIdx.z];
    if (blockIdx.x * CHUNK >= jpeg.data_bytes) return;
    SHARED unsigned places[THREADS], kept[THREADS];
    SHARED Chunk chunk;
    const unsigned start = blockIdx.x * CHUNK - removed_before(jpeg), first = start & ~3u;
    EACH_THREAD {
        const unsigned number = blockIdx.x * THREADS + thread;
        kept[thread] = number < jpeg.pieces() ? jpeg.offsets[number] : 0;
        places[thread] = bits_of(kept[thread]);
        ((Words*)chunk.words)[thread] = {{0, 0, 0, 0}};
        if (thread == 0) chunk.words[CHUNK / 4] = 0;
    }
    const unsigned end = start + sum_before(places);
    EACH_THREAD {
        const unsigned number = blockIdx.x * THREADS + thread, at = start + places[thread];
        if (number < jpeg.pieces()) {
            jpeg.offsets[number] = at;
            chunk.add(load_piece(jpeg, number), kept[thread], at - first);
        }
    }
    BARRIER;
    // Neighbouring blocks write the other bytes of the first and the last word.
    EACH_THREAD {
        const unsigned begin = (start + 3) / 4, after = end / 4;
        unsigned* const clean = (unsigned*)jpeg.clean;
        UNROLLED_BY_4 for (unsigned at = begin + thread; at < after; at += THREADS) clean[at] = chunk.words[at - first / 4];
        const unsigned edge = thread < 4 ? start + thread : 4 * after + thread % 4;
        const bool is_edge = thread < 4 ? edge < 4 * begin && edge < end : thread < 8 && after >= begin && edge < end;
        if (is_edge) jpeg.clean[edge ^ 3] = chunk.words[edge / 4 - first / 4] >> (24 - edge % 4 * 8);
    }
    if ((blockIdx.x + 1) * CHUNK < jpeg.data_bytes) return;
    EACH_THREAD {
        if (thread < (int)PADDING) jpeg.clean[(end + thread) ^ 3] = 0;
        if (thread == 0) {
            jpeg.offsets[jpeg.pieces()] = end;
            unsigned markers = 0;
            for (unsigned before = 0; before <= blockIdx.x; before++) markers += jpeg.counts[before] >> 16;
            if ((int)markers + 1 != jpeg.intervals) jpeg.report(PROBLEM_MARKER);
        }
    }
}

JPEG_LAUNCH(jpeg_begin)
JPEG_LAUNCH(jpeg_clean)
