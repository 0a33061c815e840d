// Makes the states of neighbouring blocks of jpeg_sync consistent, and sums their numbers of blocks. One block per image,
// with a thread per block of jpeg_sync.

// Maximum number of repetitions. A repetition is needed if a wrong state lasts for a whole block of jpeg_sync.
const int MOST_JOINS = 8;

extern "C" __global__ void jpeg_join(const Jpeg* images, int count, int, int) {
    if ((int)blockIdx.z >= count) return;
    const Jpeg& jpeg = images[blockIdx.z];
    if (jpeg.seeds) return;
    const int groups = (jpeg.subsequences + SYNC_THREADS - 1) / SYNC_THREADS;
    SHARED Tables tables;
    SHARED State begun[THREADS], wanted[THREADS];
    SHARED unsigned sums[THREADS];
    SHARED unsigned changed;
    if (groups > 1) build(jpeg, tables, jpeg.period());
    EACH_THREAD {
        if (thread < groups) begun[thread] = state_of(jpeg.subsequence_bits * SYNC_THREADS * thread, 0, 0);
        if (thread == 0) jpeg.states[0] = 0;
    }
    NOT_UNROLLED for (int round = 0; groups > 1; round++) {
        BARRIER;
        EACH_THREAD {
            if (thread == 0) changed = 0;
            if (thread < groups) wanted[thread] = thread ? jpeg.states[SYNC_THREADS * thread] : 0;
        }
        BARRIER;
        EACH_THREAD if (thread < groups && wanted[thread] != begun[thread]) {
            KEEP_LARGEST(&changed, 1u);
            begun[thread] = wanted[thread];
            Parser parser(jpeg, tables, wanted[thread]);
            const int end = smaller(SYNC_THREADS * (thread + 1), jpeg.subsequences);
            NOT_UNROLLED for (int at = SYNC_THREADS * thread; at < end; at++) {
                const unsigned until = jpeg.subsequence_bits * (at + 1);
                unsigned blocks = 0;
                NOT_UNROLLED while (parser.bits.position < until) blocks += parser.step();
                jpeg.firsts[at] = blocks;
                if (jpeg.states[at + 1] == parser.state()) break;
                jpeg.states[at + 1] = parser.state();
            }
        }
        BARRIER;
        if (!changed) break;
        if (round == MOST_JOINS) {
            EACH_THREAD if (thread == 0) jpeg.report(PROBLEM_SYNC);
            break;
        }
    }
    const int each = (jpeg.subsequences + THREADS - 1) / THREADS;
    EACH_THREAD {
        unsigned sum = 0;
        const int end = smaller(each * (thread + 1), jpeg.subsequences);
        for (int at = each * thread; at < end; at++) sum += jpeg.firsts[at];
        sums[thread] = sum;
    }
    const unsigned all = sum_before(sums);
    EACH_THREAD {
        unsigned before = sums[thread];
        const int end = smaller(each * (thread + 1), jpeg.subsequences);
        for (int at = each * thread; at < end; at++) {
            const unsigned blocks = jpeg.firsts[at];
            jpeg.firsts[at] = before;
            before += blocks;
        }
        if (thread == 0 && (int)all != jpeg.all_blocks()) jpeg.report(PROBLEM_COUNT);
    }
}

JPEG_LAUNCH(jpeg_join)
