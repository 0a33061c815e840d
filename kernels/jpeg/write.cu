// Decoding without a row index: a thread per subsequence, from the state that jpeg_sync has found.
extern "C" __global__ void jpeg_write(const Jpeg* images, int count, int, int) {
    if ((int)blockIdx.z >= count) return;
    const Jpeg& jpeg = images[blockIdx.z];
    if (jpeg.seeds || (int)(blockIdx.x * blockDim.x) >= jpeg.subsequences) return;
    SHARED Tables tables;
    build(jpeg, tables);
    EACH_THREAD {
        const int at = blockIdx.x * blockDim.x + thread;
        if (at >= jpeg.subsequences) continue;
        const State from = jpeg.states[at];
        const int block = (int)jpeg.firsts[at];
        // After a problem, neither states nor numbers of blocks are right.
        if (block > jpeg.all_blocks() || (from != AFTER_ALL && (int)(from >> 40) != block % jpeg.unit() % jpeg.period())) {
            jpeg.report(PROBLEM_COUNT);
            continue;
        }
        Walk walk(jpeg, tables, from, block);
        Problem problem = walk.run(jpeg.subsequence_bits * (at + 1), jpeg.all_blocks());
        if (!problem && walk.state() != jpeg.states[at + 1]) problem = PROBLEM_COUNT;
        if (problem) jpeg.report(problem);
    }
}

JPEG_LAUNCH(jpeg_write)
