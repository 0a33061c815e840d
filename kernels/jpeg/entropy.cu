// Huffman decoding: tables in shared memory, a bit reader, and positions in the data.

// Number of bits that one look-up decodes. 98 % of the codes of photographs are at most this long.
const int INDEX_BITS = 10;

// Entry of a look-up table: number of bits of a value in bits 0 to 4, number of bits of its code and the value in bits 5 to
// 9, and the distance to the next coefficient in zigzag order from bit 10 on. 0 if no code of at most INDEX_BITS fits.
typedef unsigned short Entry;

__device__ inline unsigned bits_taken(unsigned entry) { return entry >> 5 & 31; }
__device__ inline unsigned distance_of(unsigned entry) { return entry >> 10; }

// Distance after the last coefficient of a block (T.81, F.1.2.2.1: EOB). It leads beyond the 64th coefficient, because the
// DC coefficient precedes it.
const unsigned END_OF_BLOCK = 63;

// Entry if no code begins here. It takes no bits, and its distance leads beyond the block.
const unsigned NO_CODE = 127 << 10;

// Number of blocks of an MCU (T.81, B.2.3).
const int MOST_BLOCKS = 10;

// The block of the MCU that follows a block, and the first entries of its tables, counted from the first table.
struct alignas(16) Following {
    unsigned dc, ac;
    int block, unused;
};

// First entry of a block's table, counted from the first table. `tables` is `Jpeg::dc_tables` or `Jpeg::ac_tables`.
__device__ inline unsigned first_entry(const Jpeg& jpeg, unsigned tables, int block) {
    return (tables >> 4 * jpeg.component(block) & 15) << INDEX_BITS;
}

// Codes of a length: the smallest number of 16 bits that does not begin with a code of at most this length, and the number
// to add to a code to get the place of its symbol among the symbols of all tables (T.81, annex C and figure F.16).
struct alignas(8) Length {
    unsigned limit;
    int place;
};

// Number of elements for the lengths from 0 to 16, and for no length.
const int LENGTHS = 18;

// Tables of an image.
struct Tables {
    Entry entries[MOST_TABLES][1 << INDEX_BITS];
    // For each length, and at the end a limit that no bits reach.
    Length lengths[MOST_TABLES][LENGTHS];
    // Entries of symbols in the order of their codes, without the number of bits of the code.
    Entry symbols[MOST_TABLES][256];
    Following following[MOST_BLOCKS];

    // Finds a code that is longer than INDEX_BITS. Most of these codes are only a bit or two longer.
    __device__ unsigned long_entry(int table, unsigned bits) const {
        const Length* all = lengths[0];
        unsigned at = LENGTHS * table + INDEX_BITS + 1;
        NOT_UNROLLED while (bits >> 16 >= all[at].limit) at++;
        const unsigned len = at - LENGTHS * table;
        return len <= 16 ? symbols[0][(int)(bits >> (32 - len)) + all[at].place] + (len << 5) : NO_CODE;
    }

    // Returns the entry of the code at the top of `bits`. `first` is the first entry of the table, counted from the first
    // table.
    __device__ unsigned find(unsigned first, unsigned bits) const {
        const unsigned found = entries[0][first | bits >> (32 - INDEX_BITS)];
        return found ? found : long_entry(first >> INDEX_BITS, bits);
    }
};

// Returns the entry of a symbol without the number of bits of its code.
__device__ inline Entry entry_of_symbol(unsigned symbol, bool is_dc) {
    const unsigned size = symbol & 15, zeros = symbol >> 4;
    const unsigned distance = is_dc ? 1 : size ? zeros + 1 : zeros == 15 ? 16 : END_OF_BLOCK;
    return (Entry)(size | size << 5 | distance << 10);
}

// Bit i is set if table i has codes of DC coefficients.
__device__ inline unsigned dc_kinds(const Jpeg& jpeg) {
    unsigned kinds = 0;
    for (int it = 0; it < jpeg.components; it++) kinds |= 1u << (jpeg.dc_tables >> 4 * it & 15);
    return kinds;
}

// Builds the tables of an image. The tables of the blocks repeat after `blocks` blocks. All threads of the block call it; a
// barrier follows.
__device__ inline void build(const Jpeg& jpeg, Tables& tables, int blocks) {
    const unsigned kinds = dc_kinds(jpeg);
    EACH_THREAD {
        for (int i = thread; i < jpeg.tables * 256; i += blockDim.x)
            tables.symbols[0][i] = entry_of_symbol(jpeg.codes[272 * (i / 256) + 16 + i % 256], kinds >> i / 256 & 1);
        if (thread < blocks) {
            const int next = thread + 1 == blocks ? 0 : thread + 1;
            const unsigned dc = first_entry(jpeg, jpeg.dc_tables, next), ac = first_entry(jpeg, jpeg.ac_tables, next);
            tables.following[thread] = {dc, ac, next, 0};
        }
        if (thread < jpeg.tables) {
            unsigned next = 0;
            int place = 256 * thread;
            for (int len = 1; len <= 16; len++) {
                const unsigned codes = jpeg.codes[272 * thread + len - 1];
                const int before = place - (int)next;
                next += codes;
                place += codes;
                tables.lengths[thread][len] = {next << (16 - len), before};
                next <<= 1;
            }
            tables.lengths[thread][LENGTHS - 1] = {1 << 16, 0};
        }
    }
    BARRIER;
    EACH_THREAD NOT_UNROLLED for (int table = 0; table < jpeg.tables; table++) {
        // The codes of a thread's indexes become longer and longer.
        int len = 1;
        NOT_UNROLLED for (int index = thread; index < 1 << INDEX_BITS; index += blockDim.x) {
            while (len <= INDEX_BITS && (unsigned)index << (16 - INDEX_BITS) >= tables.lengths[table][len].limit) len++;
            unsigned entry = 0;
            if (len <= INDEX_BITS)
                entry = tables.symbols[0][(index >> (INDEX_BITS - len)) + tables.lengths[table][len].place] + (len << 5);
            tables.entries[table][index] = (Entry)entry;
        }
    }
    BARRIER;
}

#ifdef __CUDACC__
__device__ inline unsigned joined(unsigned high, unsigned low, unsigned bits) { return __funnelshift_l(low, high, bits); }
#else
static inline unsigned joined(unsigned high, unsigned low, unsigned bits) {
    return (unsigned)(((unsigned long long)high << 32 | low) << (bits & 31) >> 32);
}
#endif

// Reader of clean data. Three words ahead are in registers, so that a load has time until its word is needed.
struct Bits {
    const unsigned* words;
    unsigned last;              // index of the last word, which is 0
    unsigned position;          // in bits
    unsigned first, second, third;

    __device__ Bits(const Jpeg& jpeg, unsigned position)
        : words((const unsigned*)jpeg.clean), last(jpeg.offsets[jpeg.pieces()] / 4 + 2) {
        go_to(position);
    }
    __device__ void go_to(unsigned to) {
        position = to;
        first = word(to / 32);
        second = word(to / 32 + 1);
        third = word(to / 32 + 2);
    }
    __device__ unsigned word(unsigned at) const { return words[at < last ? at : last]; }
    // The next 32 bits.
    __device__ unsigned next() const { return joined(first, second, position); }
    // Takes at most 32 bits.
    __device__ void take(unsigned bits) {
        const unsigned after = position + bits;
        const bool moves = (after ^ position) / 32;
        first = moves ? second : first;
        second = moves ? third : second;
        if (moves) third = word(after / 32 + 2);
        position = after;
    }
};

// Value of a coefficient, whose code with `entry` begins at the top of `bits` (T.81, F.2.2.1: EXTEND). A value whose first
// bit is 0 is negative: it is the number with ones above its bits, plus 1.
__device__ inline int value_of(unsigned entry, unsigned bits) {
    // The shifts use the lower five bits of these numbers: the bits of the code, and the bits of the value.
    const unsigned at = joined(bits, 0, (entry >> 5) - entry), above = ~(unsigned)((int)at >> 31);
    return (int)(joined(above, at, entry) - above);
}

// Position in the clean data of a byte of the data.
__device__ inline unsigned clean_byte(const Jpeg& jpeg, unsigned byte) {
    const unsigned most = jpeg.data_bytes, at = byte < most ? byte : most;
    if (at == most) return jpeg.offsets[jpeg.pieces()];
    const Piece piece(jpeg, at / PIECE);
    return jpeg.offsets[at / PIECE] + bits_of(piece.kept & ((1u << at % PIECE) - 1));
}

// Position in the clean data of a bit of the data.
__device__ inline unsigned clean_bit(const Jpeg& jpeg, unsigned bit) { return 8 * clean_byte(jpeg, bit / 8) + bit % 8; }

// Clean bit at which a restart interval begins, or the end of the data.
__device__ inline unsigned start_of(const Jpeg& jpeg, int interval) {
    return 8 * clean_byte(jpeg, interval < jpeg.intervals ? jpeg.starts[interval] : jpeg.data_bytes);
}
