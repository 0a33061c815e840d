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
    const Schedule schedule;
    const unsigned kinds;
    const int end;              // number of the block before which the walk ends
    Bits bits;
    int at;                     // in the schedule
    int next;                   // coefficient in zigzag order
    unsigned table;             // its first entry
    int stop;                   // number of the block before which something must be done: `arrive`
    int left;                   // blocks until then
    int step;                   // 64 if the block is inside of the part, else 0
    short* coefficients;        // of this block if it is inside, else of the next block that is inside
    int* dc;

    __device__ Walk(const Jpeg& jpeg, const Tables& tables, State from, int block, int end)
        : jpeg(jpeg), tables(tables), schedule(jpeg, jpeg.unit()), kinds(dc_kinds(jpeg)), end(end),
          bits(jpeg, (unsigned)from), at(4 * (block % jpeg.unit())), next(from >> 32 & 255), stop(block), left(0) {
        const int unit = block / jpeg.unit(), row = unit / jpeg.across - jpeg.first_row;
        const int column = unit % jpeg.across - jpeg.first_column;
        const int units = row < 0 ? 0 : row * jpeg.columns + smaller(larger(column, 0), jpeg.columns);
        const bool is_inside = row >= 0 && row < jpeg.rows && column >= 0 && column < jpeg.columns;
        coefficients = jpeg.coefficients + 64ll * (units * jpeg.unit() + (is_inside ? at / 4 : 0));
        dc = jpeg.dc + (block - jpeg.dc_first * jpeg.across * jpeg.unit());
        table = next ? schedule.ac_of(at) : schedule.dc_of(at);
    }
    __device__ State state() const {
        if (bits.position == (unsigned)AFTER_ALL) return AFTER_ALL;
        return state_of(bits.position, at / 4 % jpeg.period(), next);
    }

    // Decodes from here to the position `until`, or to the end. Returns the first problem. The loop has one exit, so that
    // the threads of a warp take each step together.
    __device__ Problem run(unsigned until) {
        Problem problem = arrive(until, false);
        NOT_UNROLLED while (bits.position < until) {
            const unsigned ahead = bits.next(), entry = tables.find(table, ahead, kinds);
            const int value = value_of(entry, ahead);
            const bool is_stored = step && (entry & 15 << 5);
            if (next == 0) *dc = value;
            // A place beyond the block is a problem, which is found below.
            else if (is_stored) coefficients[(next + (entry >> 9) - 1) & 63] = (short)value;
            next += entry >> 9;
            bits.take(entry & 31);
            table = schedule.ac_of(at);
            if (next >= 64 || !entry) {
                if (!entry || (next > 64 && entry >> 9 < END_OF_BLOCK)) {
                    problem = PROBLEM_CODE;
                    until = 0;
                }
                next = 0;
                dc++;
                coefficients += step;
                at = schedule.after(at);
                table = schedule.dc_of(at);
                if (--left == 0) problem = (Problem)larger(problem, arrive(until, true));
            }
        }
        return problem;
    }

    // Acts before block number `stop`: at the end, at the start of a row or of a restart interval, and where the part
    // begins or ends. `is_moving` is false for the first block of the walk. Sets `until` to 0 at the end and after a
    // problem.
    __device__ Problem arrive(unsigned& until, bool is_moving) {
        const int unit = jpeg.unit(), number = stop / unit, column = number % jpeg.across, row = number / jpeg.across;
        const bool begins = stop % unit == 0 && next == 0;
        if (is_moving && column == 0 && jpeg.row_bits && row < jpeg.down) jpeg.row_bits[row] = bits.position;
        // The interval after `until` is left to the walk that begins there.
        Problem problem = PROBLEM_NONE;
        if (begins && bits.position < until) problem = pass_interval(number);
        if (problem || stop == end) {
            until = 0;
            return problem;
        }
        const int first = jpeg.first_column, after = first + jpeg.columns, y = row - jpeg.first_row;
        const bool is_row = y >= 0 && y < jpeg.rows, is_inside = is_row && column >= first && column < after;
        step = is_inside ? 64 : 0;
        int change = is_row && column < first ? first : is_inside ? after : jpeg.across;
        if (jpeg.interval) change = smaller(change, column + jpeg.interval - number % jpeg.interval);
        const int from = stop;
        stop = smaller(end, (row * jpeg.across + change) * unit);
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
