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
    unsigned kinds;
    int block;                  // number in the image
    int in_unit, next;          // block of the MCU, and next coefficient in zigzag order
    int table, ac_table;
    int column, row;            // the MCU
    bool is_inside;             // whether the MCU belongs to the part
    short* coefficients;        // of this block if it is inside, else of the next block that is inside
    int* dc;

    __device__ Walk(const Jpeg& jpeg, const Tables& tables, State from, int block)
        : jpeg(jpeg), tables(tables), bits(jpeg, (unsigned)from), kinds(dc_kinds(jpeg)), block(block),
          in_unit(block % jpeg.unit()), next(from >> 32 & 255) {
        const int unit = block / jpeg.unit();
        column = unit % jpeg.across;
        row = unit / jpeg.across;
        const int x = column - jpeg.first_column, y = row - jpeg.first_row;
        is_inside = is_in_part();
        const int units = y < 0 ? 0 : y * jpeg.columns + smaller(larger(x, 0), jpeg.columns);
        coefficients = jpeg.coefficients + 64ll * (units * jpeg.unit() + (is_inside ? in_unit : 0));
        dc = jpeg.dc + (block - jpeg.dc_first * jpeg.across * jpeg.unit());
        set_tables();
    }
    __device__ State state() const {
        return bits.position == (unsigned)AFTER_ALL ? AFTER_ALL : state_of(bits.position, in_unit % jpeg.period(), next);
    }
    __device__ bool is_in_part() const {
        return (unsigned)(column - jpeg.first_column) < (unsigned)jpeg.columns &&
               (unsigned)(row - jpeg.first_row) < (unsigned)jpeg.rows;
    }
    __device__ void set_tables() {
        const int at = 4 * jpeg.component(in_unit);
        ac_table = jpeg.ac_tables >> at & 15;
        table = next ? ac_table : jpeg.dc_tables >> at & 15;
    }

    // Decodes from here to the position `until`, or up to block number `end`. Returns the first problem.
    __device__ Problem run(unsigned until, int end) {
        if (Problem problem = pass_interval(); problem) return problem;
        NOT_UNROLLED while (bits.position < until && block < end) {
            const unsigned ahead = bits.next(), entry = tables.find(table, ahead, kinds), distance = entry >> 9;
            if (!entry) return PROBLEM_CODE;
            const int at = next;
            next += distance;
            bits.take(entry & 31);
            if (at == 0) {
                *dc = value_of(entry, ahead);
                table = ac_table;
            } else if (is_inside && (entry & 15 << 5)) {
                // A place beyond the block is a problem, which is found below.
                coefficients[(next - 1) & 63] = (short)value_of(entry, ahead);
            }
            if (next < 64) continue;
            if (next > 64 && distance < END_OF_BLOCK) return PROBLEM_CODE;
            if (Problem problem = end_block(until); problem) return problem;
        }
        return PROBLEM_NONE;
    }

    __device__ Problem end_block(unsigned until) {
        next = 0;
        block++;
        dc++;
        if (is_inside) coefficients += 64;
        if (++in_unit == jpeg.unit()) {
            in_unit = 0;
            if (++column == jpeg.across) {
                column = 0;
                row++;
                if (jpeg.row_bits && row < jpeg.down) jpeg.row_bits[row] = bits.position;
            }
            is_inside = is_in_part();
            // The interval after `until` is left to the walk that begins there.
            if (bits.position < until)
                if (Problem problem = pass_interval(); problem) return problem;
        }
        set_tables();
        return PROBLEM_NONE;
    }

    // Moves from the end of a restart interval to the next one, or to AFTER_ALL. A walk with a row index ends with its
    // row, and has no restart markers.
    __device__ Problem pass_interval() {
        if (jpeg.seeds || in_unit || next || block == 0 || bits.position == (unsigned)AFTER_ALL) return PROBLEM_NONE;
        const int unit = block / jpeg.unit();
        const bool is_last = unit == jpeg.across * jpeg.down;
        if (!is_last && (jpeg.interval == 0 || unit % jpeg.interval)) return PROBLEM_NONE;
        const int interval = is_last ? jpeg.intervals : unit / jpeg.interval;
        const unsigned start = start_of(jpeg, interval);
        if (bits.position == start && !is_last) return PROBLEM_NONE;
        // Less than a byte of padding precedes a marker.
        if (start - bits.position >= 8) return PROBLEM_END;
        if (is_last) bits.position = (unsigned)AFTER_ALL;
        else bits.go_to(start);
        return PROBLEM_NONE;
    }
};
