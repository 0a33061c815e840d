// Sums of the differences of DC coefficients (T.81, F.2.1.3.1), in the order of the data. One block per component. The
// sums go on across restart intervals, and across rows with a row index; jpeg_transform subtracts the sum before.

// Number of MCUs that a thread sums at a time. More would need fewer sums over the threads, but read memory in smaller parts.
const int DC_UNITS = 4;

// Returns the sum before MCU `unit` of the kept rows.
__device__ inline unsigned dc_sum(const Jpeg& jpeg, int component, int unit) {
    const int last = component ? jpeg.luma_blocks() + component - 1 : jpeg.luma_blocks() - 1;
    return unit ? jpeg.dc[(long long)(unit - 1) * jpeg.unit() + last] : 0;
}

extern "C" __global__ void jpeg_dc(const Jpeg* images, int count, int, int) {
    if ((int)blockIdx.z >= count) return;
    const Jpeg& jpeg = images[blockIdx.z];
    const int component = blockIdx.x;
    if (component >= jpeg.components) return;
    const int units = jpeg.dc_rows * jpeg.across, blocks = component ? 1 : jpeg.luma_blocks();
    const int first = component ? jpeg.luma_blocks() + component - 1 : 0;
    const int step = jpeg.unit();
    int* const all_dc = jpeg.dc + first;
    SHARED unsigned sums[THREADS];
    unsigned before = 0;
    NOT_UNROLLED for (int begin = 0; begin < units; begin += DC_UNITS * THREADS) {
        EACH_THREAD {
            const int from = begin + DC_UNITS * thread, after = smaller(from + DC_UNITS, units);
            unsigned sum = 0;
            NOT_UNROLLED for (int unit = from; unit < after; unit++)
                for (int i = 0; i < blocks; i++) sum += all_dc[unit * step + i];
            sums[thread] = sum;
        }
        const unsigned all = sum_before(sums);
        EACH_THREAD {
            const int from = begin + DC_UNITS * thread, after = smaller(from + DC_UNITS, units);
            unsigned sum = before + sums[thread];
            NOT_UNROLLED for (int unit = from; unit < after; unit++)
                for (int i = 0; i < blocks; i++) all_dc[unit * step + i] = (int)(sum += all_dc[unit * step + i]);
        }
        before += all;
    }
    if (!jpeg.seeds) return;
    BARRIER;
    // A row that was parsed to its end must end with the coefficients that the index has for the next row.
    EACH_THREAD for (int row = thread; row < jpeg.rows; row += THREADS) {
        const bool is_whole = row + 1 == jpeg.rows || jpeg.first_column + jpeg.columns == jpeg.across;
        if (!is_whole || jpeg.first_row + row + 1 == jpeg.down) continue;
        const unsigned sum = dc_sum(jpeg, component, (row + 1) * jpeg.across) - dc_sum(jpeg, component, row * jpeg.across);
        const int* seeds = jpeg.seeds + 3 * row + component;
        if ((unsigned)seeds[0] + sum != (unsigned)seeds[3]) jpeg.report(PROBLEM_INDEX);
    }
}

JPEG_LAUNCH(jpeg_dc)
