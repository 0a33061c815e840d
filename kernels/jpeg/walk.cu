// Decoding of blocks to coefficients. A walk begins at a known block, and never writes outside of the blocks of its image,
// whatever the data is: each symbol takes at least one bit, each block at most 64 symbols, and reads stay inside the data.

// State of a decoder between two symbols: position in the clean data in bits, block of the MCU (modulo `Jpeg::period`) in
// bits 40 to 47, and next coefficient in zigzag order in bits 32 to 39.
typedef unsigned long long State;

// State after the last block.
const State AFTER_ALL = 0xffffffff;

__device__ inline State state_of(unsigned position, int block, int next) {
    return position | (State)(block << 8 | next) << 32;
}

struct Walk {
    const Jpeg& jpeg;
    const Tables& tables;
    Bits bits;
    int at;                     // block of the MCU
    int next;                   // coefficient in zigzag order
    unsigned table, ac;         // first entry of the next symbol's table, and of the block's table of AC coefficients
    int end;                    // number of the block before which the walk ends
    int stop;                   // number of the block before which something must be done: `arrive`
    int left;                   // blocks until then
    unsigned stored;            // 31 if the block is inside of the part, else 0
    short* coefficients;        // of this block if it is inside, else of the next block that is inside
    int* dc;

    __device__ Walk(const Jpeg& jpeg, const Tables& tables, State from, int block, int end)
        : jpeg(jpeg), tables(tables), bits(jpeg, (unsigned)from) {
        begin(from, block, end);
    }
    // Begins before block number `block` of the image. The position of `bits` is that of the state.
    __device__ void begin(State from, int block, int last) {
        const int unit = block / jpeg.unit(), row = unit / jpeg.across - jpeg.first_row;
        const int column = unit % jpeg.across - jpeg.first_column;
        const int units = row < 0 ? 0 : row * jpeg.columns + smaller(larger(column, 0), jpeg.columns);
        const bool is_inside = row >= 0 && row < jpeg.rows && column >= 0 && column < jpeg.columns;
        at = block % jpeg.unit();
        next = from >> 32 & 255;
        coefficients = jpeg.coefficients + 64ll * (units * jpeg.unit() + (is_inside ? at : 0));
        dc = jpeg.dc + (block - jpeg.dc_first * jpeg.across * jpeg.unit());
        ac = first_entry(jpeg, jpeg.ac_tables, at);
        table = next ? ac : first_entry(jpeg, jpeg.dc_tables, at);
        stop = block;
        end = last;
    }
    __device__ State state() const {
        if (bits.position == (unsigned)AFTER_ALL) return AFTER_ALL;
        return state_of(bits.position, at % jpeg.period(), next);
    }

    // Decodes from here to the position `until`, or to the end of the parts. Returns the first problem. The loop has one
    // exit, so that the threads of a warp take each step together. A step is up to three symbols, because a block ends in some
    // thread of the warp in nearly each step.
    template <class Parts> __device__ Problem run(unsigned until, Parts& parts) {
        Problem problem = arrive(until, false, parts);
        NOT_UNROLLED while (bits.position < until) {
            unsigned distance = decode_symbol<true>();
            UNROLLED for (int i = 0; i < 2; i++)
                if (next < 64 && bits.position < until) distance = decode_symbol<false>();
            if (next >= 64) {
                if (next > 64 && distance != END_OF_BLOCK) {
                    problem = PROBLEM_CODE;
                    until = 0;
                }
                next = 0;
                dc++;
                coefficients += stored ? 64 : 0;
                const Following following = tables.following[at];
                at = following.block;
                ac = following.ac;
                table = following.dc;
                if (--left == 0) problem = (Problem)larger(problem, arrive(until, true, parts));
            }
        }
        return problem;
    }

    // Decodes a symbol, and returns the distance to the next coefficient. Only the first symbol of a step can be a DC
    // coefficient.
    template <bool IS_FIRST> __device__ unsigned decode_symbol() {
        const unsigned ahead = bits.next(), entry = tables.find(table, ahead), distance = distance_of(entry);
        const int value = value_of(entry, ahead);
        const bool is_dc = IS_FIRST && next == 0;
        next += distance;
        if (is_dc) *dc = value;
        // A place beyond the block is a problem, which is found when the block ends.
        else if ((entry & stored) && next <= 64) coefficients[next - 1] = (short)value;
        bits.take(bits_taken(entry));
        if (IS_FIRST) table = ac;
        return distance;
    }

    // Acts before block number `stop`: at the end, at the start of a row or of a restart interval, and where the part
    // begins or ends. `is_moving` is false for the first block of the walk. At the end, `parts.next` begins another part or
    // sets `until` to 0, which a problem does too.
    template <class Parts> __device__ Problem arrive(unsigned& until, bool is_moving, Parts& parts) {
        const int unit = jpeg.unit();
        Problem problem = PROBLEM_NONE;
        if (is_moving && jpeg.row_bits && stop % (jpeg.across * unit) == 0 && stop / unit < jpeg.across * jpeg.down)
            jpeg.row_bits[stop / unit / jpeg.across] = bits.position;
        // The interval after `until` is left to the walk that begins there.
        if (stop % unit == 0 && next == 0 && bits.position < until) problem = pass_interval(stop / unit);
        if (!problem && stop == end) problem = parts.next(*this, until);
        if (problem) until = 0;
        const int number = stop / unit, column = number % jpeg.across, y = number / jpeg.across - jpeg.first_row;
        const int first = jpeg.first_column, after = first + jpeg.columns;
        const bool is_row = y >= 0 && y < jpeg.rows, is_inside = is_row && column >= first && column < after;
        stored = is_inside ? 31 : 0;
        int change = is_row && column < first ? first : is_inside ? after : jpeg.across;
        if (jpeg.interval) change = smaller(change, column + jpeg.interval - number % jpeg.interval);
        const int from = stop;
        stop = smaller(end, (number - column + change) * unit);
        left = stop - from;
        return problem;
    }

    // Moves from the end of a restart interval to the next one, or to AFTER_ALL. A walk with a row index ends with its
    // row, and has no restart markers.
    __device__ Problem pass_interval(int unit) {
        if (jpeg.seeds || unit == 0 || bits.position == (unsigned)AFTER_ALL) return PROBLEM_NONE;
        const bool is_last = unit == jpeg.across * jpeg.down;
        if (!is_last && (jpeg.interval == 0 || unit % jpeg.interval)) return PROBLEM_NONE;
        const unsigned start = start_of(jpeg, is_last ? jpeg.intervals : unit / jpeg.interval);
        if (bits.position == start && !is_last) return PROBLEM_NONE;
        // Less than a byte of padding precedes a marker.
        if (start - bits.position >= 8) return PROBLEM_END;
        if (is_last) bits.position = (unsigned)AFTER_ALL;
        else bits.go_to(start);
        return PROBLEM_NONE;
    }
};
