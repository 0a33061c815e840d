// Decoding with a row index: each block of threads decodes a group of rows of MCUs, and each thread whole rows. Rows outside
// the part, and the columns to its right, are not read. The last row is parsed to its end, because its end shows whether
// the index belongs to the image.

// Maximum number of rows of a group: two for each thread. Same value as in src/decode/jpeg/device/text.rs.
const int GROUP_ROWS = 64;

// A group of rows, in shared memory.
struct Group {
    // Clean bit at which each row begins, and at which the last one ends. ~0 if the row index is wrong.
    unsigned starts[GROUP_ROWS + 1];
    // Numbers of the rows in the group, from the longest to the shortest one.
    int longest[GROUP_ROWS];
};

// Returns the clean bit for a bit of the data at which a row begins, or ~0 if it is after the data or within byte stuffing,
// where no row begins.
__device__ inline unsigned row_start(const Jpeg& jpeg, unsigned bit) {
    const unsigned byte = bit / 8;
    if (byte >= jpeg.data_bytes) return bit == 8 * jpeg.data_bytes ? 8 * jpeg.offsets[jpeg.pieces()] : ~0u;
    const unsigned kept = Piece(jpeg, byte / PIECE).kept, place = byte % PIECE;
    if (!(kept >> place & 1)) return ~0u;
    return 8 * (jpeg.offsets[byte / PIECE] + bits_of(kept & ((1u << place) - 1))) + bit % 8;
}

// The rows of a thread. The first turn gives the longest rows to the threads, and each turn reverses the order of the
// threads, so that all threads have about the same number of bits.
struct RowsOfThread {
    const Jpeg& jpeg;
    const Group& group;
    const int first, rows;      // of the group
    const int thread;
    int turn, row;              // number of the row in the group
    int columns;                // that are parsed

    __device__ RowsOfThread(const Jpeg& jpeg, const Group& group, int first, int rows, int thread)
        : jpeg(jpeg), group(group), first(first), rows(rows), thread(thread), turn(0) {
        choose(thread);
    }
    __device__ void choose(int rank) {
        row = group.longest[rank];
        columns = first + row + 1 == jpeg.rows ? jpeg.across : jpeg.first_column + jpeg.columns;
    }
    __device__ unsigned start() const { return group.starts[row]; }
    // Numbers of the blocks before which the row begins and ends.
    __device__ int block() const { return (jpeg.first_row + first + row) * jpeg.across * jpeg.unit(); }
    __device__ int end() const { return block() + columns * jpeg.unit(); }

    // Checks where the walk has ended, and begins the next row.
    __device__ Problem next(Walk& walk, unsigned& until) {
        const unsigned next = group.starts[row + 1], end = walk.bits.position;
        // Less than a byte of padding follows the last row of the image.
        const bool is_last = jpeg.first_row + first + row + 1 == jpeg.down;
        const bool fits = is_last ? next - end < 8 : columns == jpeg.across ? end == next : end <= next;
        turn++;
        const int threads = blockDim.x, rank = turn * threads + (turn % 2 ? threads - 1 - thread : thread);
        if (rank < rows) {
            choose(rank);
            walk.bits.go_to(start());
            walk.begin(start(), block(), this->end());
        } else {
            until = 0;
        }
        return fits ? PROBLEM_NONE : PROBLEM_INDEX;
    }
};

extern "C" __global__ void jpeg_rows(const Jpeg* images, int count, int, int) {
    if ((int)blockIdx.z >= count) return;
    const Jpeg& jpeg = images[blockIdx.z];
    const int groups = (jpeg.rows + GROUP_ROWS - 1) / GROUP_ROWS, number = blockIdx.x;
    if (!jpeg.seeds || number >= groups) return;
    // All groups have about the same number of rows.
    const int first = jpeg.rows * number / groups, rows = jpeg.rows * (number + 1) / groups - first;
    SHARED Tables tables;
    SHARED Group group;
    EACH_THREAD for (int row = thread; row <= rows; row += blockDim.x) {
        group.starts[row] = row_start(jpeg, jpeg.starts[first + row]);
        if (group.starts[row] == ~0u) jpeg.report(PROBLEM_INDEX);
    }
    BARRIER;
    EACH_THREAD for (int row = thread; row < rows; row += blockDim.x) {
        const unsigned bits = group.starts[row + 1] - group.starts[row];
        int rank = 0;
        for (int other = 0; other < rows; other++) {
            const unsigned others = group.starts[other + 1] - group.starts[other];
            rank += others > bits || (others == bits && other < row);
        }
        group.longest[rank] = row;
    }
    build(jpeg, tables, jpeg.unit());
    EACH_THREAD if (thread < rows) {
        RowsOfThread them(jpeg, group, first, rows, thread);
        Walk walk(jpeg, tables, them.start(), them.block(), them.end());
        // A row whose start is wrong ends at once.
        jpeg.report(walk.run(~0u, them));
    }
}

JPEG_LAUNCH(jpeg_rows)
