// Decoding with a row index: a thread per row of MCUs. Rows outside the part, and the columns to its right, are not read.
// The last row is parsed to its end, because its end shows whether the index belongs to the image.
// Whether a bit of the data is a bit of the clean data, or the end of the data. No row begins within byte stuffing.
__device__ inline bool is_position(const Jpeg& jpeg, unsigned bit) {
    const unsigned byte = bit / 8;
    if (byte >= jpeg.data_bytes) return bit == 8 * jpeg.data_bytes;
    return Piece(jpeg, byte / PIECE).kept >> byte % PIECE & 1;
}

__device__ inline Problem decode_row(const Jpeg& jpeg, const Tables& tables, int at) {
    if (!is_position(jpeg, jpeg.starts[at]) || !is_position(jpeg, jpeg.starts[at + 1])) return PROBLEM_INDEX;
    const int row = jpeg.first_row + at;
    const unsigned from = clean_bit(jpeg, jpeg.starts[at]), next = clean_bit(jpeg, jpeg.starts[at + 1]);
    const bool is_last = at + 1 == jpeg.rows;
    const int columns = is_last ? jpeg.across : jpeg.first_column + jpeg.columns;
    const int first = row * jpeg.across * jpeg.unit();
    Walk walk(jpeg, tables, from, first, first + columns * jpeg.unit());
    if (Problem problem = walk.run(~0u); problem) return problem;
    const unsigned end = walk.bits.position;
    // Less than a byte of padding follows the last row of the image.
    const bool fits = row + 1 == jpeg.down ? next - end < 8 : columns == jpeg.across ? end == next : end <= next;
    return fits ? PROBLEM_NONE : PROBLEM_INDEX;
}

extern "C" __global__ void jpeg_rows(const Jpeg* images, int count, int, int) {
    if ((int)blockIdx.z >= count) return;
    const Jpeg& jpeg = images[blockIdx.z];
    if (!jpeg.seeds || (int)(blockIdx.x * blockDim.x) >= jpeg.rows) return;
    SHARED Tables tables;
    build(jpeg, tables);
    EACH_THREAD {
        const int at = blockIdx.x * blockDim.x + thread;
        if (at < jpeg.rows) jpeg.report(decode_row(jpeg, tables, at));
    }
}

JPEG_LAUNCH(jpeg_rows)
