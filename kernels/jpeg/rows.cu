// Decoding with a row index: a thread per row of MCUs. Rows outside the part, and the columns to its right, are not read.
// The last row is parsed to its end, because its end shows whether the index belongs to the image.
extern "C" __global__ void jpeg_rows(const Jpeg* images, int count, int, int) {
    if ((int)blockIdx.z >= count) return;
    const Jpeg& jpeg = images[blockIdx.z];
    if (!jpeg.seeds || (int)(blockIdx.x * blockDim.x) >= jpeg.rows) return;
    SHARED Tables tables;
    build(jpeg, tables);
    EACH_THREAD {
        const int at = blockIdx.x * blockDim.x + thread, row = jpeg.first_row + at;
        if (at >= jpeg.rows) continue;
        const unsigned from = clean_bit(jpeg, jpeg.starts[at]), next = clean_bit(jpeg, jpeg.starts[at + 1]);
        const bool is_last = at + 1 == jpeg.rows;
        const int first = row * jpeg.across * jpeg.unit();
        const int columns = is_last ? jpeg.across : jpeg.first_column + jpeg.columns;
        Walk walk(jpeg, tables, from, first);
        Problem problem = walk.run(~0u, first + columns * jpeg.unit());
        const unsigned end = walk.bits.position;
        if (!problem && row + 1 == jpeg.down) {
            // Less than a byte of padding follows the last row of the image.
            if (next - end >= 8) problem = PROBLEM_INDEX;
        } else if (!problem && (columns == jpeg.across ? end != next : end > next)) {
            problem = PROBLEM_INDEX;
        }
        if (problem) jpeg.report(problem);
    }
}

JPEG_LAUNCH(jpeg_rows)
