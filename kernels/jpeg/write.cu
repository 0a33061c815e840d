// Decoding without a row index: a thread per subsequence, from the state that jpeg_sync has found.

// The end of the image, after which a thread has no other part to decode.
struct LastPart {
    __device__ Problem next(Walk&, unsigned& until) const {
        until = 0;
        return PROBLEM_NONE;
    }
};

__device__ inline Problem decode_subsequence(const Jpeg& jpeg, const Tables& tables, int at) {
    const State from = jpeg.states[at];
    const int block = (int)jpeg.firsts[at];
    // After a problem, neither states nor numbers of blocks are right.
    if ((unsigned)block > (unsigned)jpeg.all_blocks()) return PROBLEM_COUNT;
    if (from != AFTER_ALL && (int)(from >> 40) != block % jpeg.unit() % jpeg.period()) return PROBLEM_COUNT;
    Walk walk(jpeg, tables, from, block, jpeg.all_blocks());
    const LastPart last;
    if (Problem problem = walk.run(jpeg.subsequence_bits * (at + 1), last); problem) return problem;
    return walk.state() == jpeg.states[at + 1] ? PROBLEM_NONE : PROBLEM_COUNT;
}

extern "C" __global__ void jpeg_write(const Jpeg* images, int count, int, int) {
    if ((int)blockIdx.z >= count) return;
    const Jpeg& jpeg = images[blockIdx.z];
    if (jpeg.seeds || (int)(blockIdx.x * blockDim.x) >= jpeg.subsequences) return;
    SHARED Tables tables;
    build(jpeg, tables, jpeg.unit());
    EACH_THREAD {
        const int at = blockIdx.x * blockDim.x + thread;
        if (at < jpeg.subsequences) jpeg.report(decode_subsequence(jpeg, tables, at));
    }
}

JPEG_LAUNCH(jpeg_write)
