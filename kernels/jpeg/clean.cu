// Removes what is not coded data: the zero byte after each byte of ff (T.81, B.1.1.5), and restart markers. A block
// handles a chunk of 4 KiB, and a thread a piece of 16 bytes. The first kernel counts removed bytes, and the second one
// adds up the counts of the chunks before its own. So no block waits for another block.
const unsigned PIECE = 16, CHUNK = THREADS * PIECE;

// Number of zero bytes after the clean data.
const unsigned PADDING = 12;

struct alignas(16) Words {
    unsigned of[4];
};

struct alignas(8) Pair {
    unsigned of[2];
};

// Returns one bit for each byte of a word that is 0.
__device__ inline unsigned zeros(unsigned word) {
    const unsigned low = 0x7f7f7f7f, top = ~(((word & low) + low) | word | low);
    return (top >> 7) * 0x10204080 >> 28;
}

// A piece, with one bit per byte: bytes that belong to the coded data, and first bytes of markers.
struct Piece {
    Words words;
    unsigned kept, markers;

    __device__ Piece(const Jpeg& jpeg, unsigned number) : words{{0, 0, 0, 0}}, kept(0), markers(0) {
        const unsigned first = PIECE * number;
        if (first >= jpeg.data_bytes) return;
        const unsigned len = jpeg.data_bytes - first, all = len < PIECE ? (1u << len) - 1 : 0xffff;
        words = *(const Words*)(jpeg.data + first);
        unsigned ff = 0, zero = 0;
        UNROLLED for (int i = 0; i < 4; i++) {
            ff |= zeros(~words.of[i]) << 4 * i;
            zero |= zeros(words.of[i]) << 4 * i;
        }
        // Nothing follows the last byte, so a last byte of ff counts as a marker.
        const unsigned next = len > PIECE && jpeg.data[first + PIECE] == 0;
        const unsigned stuffed = ff << 1 | (first > 0 && jpeg.data[first - 1] == 0xff);
        const unsigned marker = ff & all & ~((zero & all) >> 1 | next << 15);
        kept = all & ~stuffed & ~marker;
        markers = marker & ~stuffed;
    }
    __device__ unsigned char byte(int i) const { return words.of[i / 4] >> 8 * (i % 4); }
};

__device__ inline unsigned bits_of(unsigned mask) {
#ifdef __CUDACC__
    return __popc(mask);
#else
    return __builtin_popcount(mask);
#endif
}

// Counts the removed bytes of a chunk in the low half, and its markers in the high half. Blocks after the last chunk, and
// all others too, zero the coefficients.
extern "C" __global__ void jpeg_begin(const Jpeg* images, int count, int, int) {
    if ((int)blockIdx.z >= count) return;
    const Jpeg& jpeg = images[blockIdx.z];
    SHARED unsigned counts[THREADS];
    if (blockIdx.x * CHUNK < jpeg.data_bytes) {
        EACH_THREAD {
            const unsigned number = blockIdx.x * THREADS + thread;
            const Piece piece(jpeg, number);
            const unsigned first = PIECE * number, len = first < jpeg.data_bytes ? jpeg.data_bytes - first : 0;
            counts[thread] = (len < PIECE ? len : PIECE) - bits_of(piece.kept) + (bits_of(piece.markers) << 16);
        }
        const unsigned all = sum_before(counts);
        EACH_THREAD if (thread == 0) jpeg.counts[blockIdx.x] = all;
    }
    EACH_THREAD {
        const unsigned from = blockIdx.x * THREADS + thread, step = gridDim.x * THREADS;
        const unsigned words = 8u * jpeg.columns * jpeg.rows * jpeg.unit();
        for (unsigned i = from; i < words; i += step) ((Words*)jpeg.coefficients)[i] = {{0, 0, 0, 0}};
        const unsigned sums = jpeg.dc_rows * jpeg.across * jpeg.unit();
        for (unsigned i = from; i < sums; i += step) jpeg.dc[i] = 0;
    }
}

extern "C" __global__ void jpeg_clean(const Jpeg* images, int count, int, int) {
    if ((int)blockIdx.z >= count) return;
    const Jpeg& jpeg = images[blockIdx.z];
    if (blockIdx.x * CHUNK >= jpeg.data_bytes) return;
    SHARED unsigned sums[THREADS];
    EACH_THREAD {
        unsigned removed = 0;
        for (unsigned chunk = thread; chunk < blockIdx.x; chunk += THREADS) removed += jpeg.counts[chunk] & 0xffff;
        sums[thread] = removed;
    }
    const unsigned start = blockIdx.x * CHUNK - sum_before(sums);
    EACH_THREAD sums[thread] = bits_of(Piece(jpeg, blockIdx.x * THREADS + thread).kept);
    const unsigned end = start + sum_before(sums);
    EACH_THREAD {
        const unsigned number = blockIdx.x * THREADS + thread;
        const Piece piece(jpeg, number);
        unsigned at = start + sums[thread];
        if (number < jpeg.pieces()) jpeg.offsets[number] = at;
        UNROLLED for (int i = 0; i < (int)PIECE; i++)
            if (piece.kept >> i & 1) jpeg.clean[at++ ^ 3] = piece.byte(i);
    }
    if ((blockIdx.x + 1) * CHUNK < jpeg.data_bytes) return;
    EACH_THREAD {
        if (thread < (int)PADDING) jpeg.clean[(end + thread) ^ 3] = 0;
        if (thread == 0) {
            jpeg.offsets[jpeg.pieces()] = end;
            unsigned markers = 0;
            for (unsigned chunk = 0; chunk <= blockIdx.x; chunk++) markers += jpeg.counts[chunk] >> 16;
            if ((int)markers + 1 != jpeg.intervals) jpeg.report(PROBLEM_MARKER);
        }
    }
}

JPEG_LAUNCH(jpeg_begin)
JPEG_LAUNCH(jpeg_clean)
