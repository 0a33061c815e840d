// Decoding without a row index: finds the state of the decoder at the start of each subsequence of the data. A decoder
// that begins anywhere, as if a block began there, soon makes the same steps as a decoder that came from the start
// (Klein and Wiseman, 2003; Weissenberger and Schmidt, arXiv 2111.09219). Each thread decodes a subsequence from such a
// guess. Then it decodes again from the state in which the thread before it has ended, until nothing changes. A wrong
// state can only cost time: jpeg_write checks that each subsequence ends in the state in which the next one begins.

const int SYNC_THREADS = 64;
// Number of places in a subsequence at which a thread remembers its state. It stops at a place whose state is as before.
const int MARKS = 8;

// Parser that stores nothing. Where no symbol fits into the rest of a restart interval, the next interval begins. Bits that
// are no code come from a wrong state; a block is assumed to begin after them.
struct Parser {
    const Jpeg& jpeg;
    const Tables& tables;
    Bits bits;
    int at;                     // block, modulo the period
    int next;
    unsigned table, ac;         // first entry of the next symbol's table, and of the block's table of AC coefficients
    int interval;
    unsigned end;               // of the interval

    __device__ Parser(const Jpeg& jpeg, const Tables& tables, State from)
        : jpeg(jpeg), tables(tables), bits(jpeg, (unsigned)from),
          at(from >> 40 & 255), next(from >> 32 & 255), interval(0) {
        for (int high = jpeg.intervals; interval + 1 < high;) {
            const int middle = (interval + high) / 2;
            if (start_of(jpeg, middle) <= bits.position) interval = middle;
            else high = middle;
        }
        end = start_of(jpeg, interval + 1);
        ac = first_entry(jpeg, jpeg.ac_tables, at);
        table = next ? ac : first_entry(jpeg, jpeg.dc_tables, at);
        if (bits.position >= start_of(jpeg, jpeg.intervals)) finish();
    }
    __device__ State state() const {
        return bits.position == (unsigned)AFTER_ALL ? AFTER_ALL : state_of(bits.position, at, next);
    }
    __device__ void finish() {
        bits.position = (unsigned)AFTER_ALL;
        at = next = 0;
    }
    // Parses a symbol. Returns the number of blocks that end with it.
    __device__ int step() {
        const unsigned entry = tables.find(table, bits.next());
        if (entry == NO_CODE || bits.position + bits_taken(entry) > end) {
            pass(entry);
            return 0;
        }
        bits.take(bits_taken(entry));
        next += distance_of(entry);
        table = ac;
        if (next < 64) return 0;
        next = 0;
        const Following following = tables.following[at];
        at = following.block;
        ac = following.ac;
        table = following.dc;
        return 1;
    }
    // Passes bits that are no symbol of the interval.
    __device__ void pass(unsigned entry) {
        next = 0;
        if (entry == NO_CODE && bits.position + 8 <= end) {
            bits.take(1);
        } else {
            at = 0;
            if (++interval >= jpeg.intervals) return finish();
            bits.go_to(end);
            end = start_of(jpeg, interval + 1);
        }
        ac = first_entry(jpeg, jpeg.ac_tables, at);
        table = first_entry(jpeg, jpeg.dc_tables, at);
    }
};

// Threads of a block, and what they know of their subsequences.
struct Subsequences {
    State begun[SYNC_THREADS], wanted[SYNC_THREADS], ended[SYNC_THREADS];
    State marks[MARKS][SYNC_THREADS];
    unsigned blocks[MARKS][SYNC_THREADS];   // that end between a mark and the one before it
    unsigned changed;

    // Parses a subsequence from the state `wanted`, up to the first mark that is as before, or to the end. In the first
    // round there are no marks.
    __device__ void parse(const Jpeg& jpeg, const Tables& tables, int thread, int number, bool is_first) {
        const unsigned bits = jpeg.subsequence_bits, start = bits * number;
        Parser parser(jpeg, tables, wanted[thread]);
        begun[thread] = wanted[thread];
        unsigned mark = 0, count = 0, until = start + bits / MARKS;
        // The loop has one exit, so that the threads of a warp take each step together.
        NOT_UNROLLED while (mark < MARKS) {
            if (parser.bits.position < until) {
                count += parser.step();
                continue;
            }
            const State state = parser.state();
            const bool is_as_before = !is_first && marks[mark][thread] == state;
            marks[mark][thread] = state;
            blocks[mark][thread] = count;
            count = 0;
            mark = is_as_before ? MARKS + 1 : mark + 1;
            until = mark + 1 == MARKS ? start + bits : until + bits / MARKS;
        }
        if (mark == MARKS) ended[thread] = parser.state();
    }
};

extern "C" __global__ void jpeg_sync(const Jpeg* images, int count, int, int) {
    if ((int)blockIdx.z >= count) return;
    const Jpeg& jpeg = images[blockIdx.z];
    const int first = blockIdx.x * SYNC_THREADS;
    if (jpeg.seeds || first >= jpeg.subsequences) return;
    const int here = smaller(SYNC_THREADS, jpeg.subsequences - first);
    SHARED Tables tables;
    SHARED Subsequences them;
    build(jpeg, tables, jpeg.period());
    EACH_THREAD if (thread < here) {
        them.wanted[thread] = state_of(jpeg.subsequence_bits * (first + thread), 0, 0);
        them.parse(jpeg, tables, thread, first + thread, true);
    }
    // After each round, at least one more subsequence begins in its right state. Photographs need one to three rounds.
    NOT_UNROLLED while (true) {
        BARRIER;
        EACH_THREAD {
            if (thread == 0) them.changed = 0;
            if (thread > 0 && thread < here) them.wanted[thread] = them.ended[thread - 1];
        }
        BARRIER;
        EACH_THREAD if (thread < here && them.wanted[thread] != them.begun[thread]) {
            them.parse(jpeg, tables, thread, first + thread, false);
            KEEP_LARGEST(&them.changed, 1u);
        }
        BARRIER;
                if (!them.changed) break;
    }
    EACH_THREAD if (thread < here) {
        unsigned blocks = 0;
        for (int mark = 0; mark < MARKS; mark++) blocks += them.blocks[mark][thread];
        jpeg.states[first + thread + 1] = them.ended[thread];
        jpeg.firsts[first + thread] = blocks;
    }
}

JPEG_LAUNCH(jpeg_sync)
