// Makes the row index of an image that was decoded without one: for each row of MCUs but the first, the bit of the data
// at which it begins, and the DC coefficients before it (docs/row-index.md). One block per image.

// Returns the position in the data of a byte of the clean data.
__device__ inline unsigned data_byte(const Jpeg& jpeg, unsigned byte) {
    unsigned low = 0, high = jpeg.pieces();
    while (low + 1 < high) {
        const unsigned middle = (low + high) / 2;
        if (jpeg.offsets[middle] <= byte) low = middle;
        else high = middle;
    }
    unsigned kept = Piece(jpeg, low).kept;
    for (unsigned before = jpeg.offsets[low]; before < byte; before++) kept &= kept - 1;
    return PIECE * low + bits_of((kept & -kept) - 1);
}

// Returns the position in the data of a bit of the clean data. A position at the end of a byte is directly after that
// byte and its stuffing, also if a restart marker follows.
__device__ inline unsigned data_bit(const Jpeg& jpeg, unsigned bit) {
    if (bit % 8) return 8 * data_byte(jpeg, bit / 8) + bit % 8;
    const unsigned last = data_byte(jpeg, bit / 8 - 1);
    return 8 * (last + 1 + (jpeg.data[last] == 0xff));
}

extern "C" __global__ void jpeg_index(const Jpeg* images, int count, int, int) {
    if ((int)blockIdx.z >= count) return;
    const Jpeg& jpeg = images[blockIdx.z];
    if (!jpeg.row_bits || *jpeg.problem) return;
    EACH_THREAD for (int row = 1 + thread; row < jpeg.down; row += THREADS) {
        unsigned* made = jpeg.made + 4 * (row - 1);
        made[0] = data_bit(jpeg, jpeg.row_bits[row]);
        // The coefficients are those before a restart marker between the rows.
        const int unit = row * jpeg.across, interval = jpeg.interval ? jpeg.interval : unit;
        for (int component = 0; component < 3; component++) {
            const int first = (unit - 1) / interval * interval;
            made[1 + component] =
                component < jpeg.components ? dc_sum(jpeg, component, unit) - dc_sum(jpeg, component, first) : 0;
        }
    }
}

JPEG_LAUNCH(jpeg_index)
