// Dequantization and inverse DCT, one thread per block: a thread has all 64 coefficients in registers, so their order in
// memory costs nothing. Bit for bit as libjpeg-turbo's vector code: sums of inputs wrap at 16 bits, and results saturate
// (the last saturation is a part of the conversion to samples; jidctint.c: Loeffler, Ligtenberg and Moschytz, 1989; jidctred.c for reduced images). The reference on the host is
// src/decode/jpeg/kernels/plain.rs.

// Place of each coefficient in zigzag order (T.81, figure A.6).
#define ZIGZAG                                                                                                        \
    {0,  1,  5,  6,  14, 15, 27, 28, 2,  4,  7,  13, 16, 26, 29, 42, 3,  8,  12, 17, 25, 30,                          \
     41, 43, 9,  11, 18, 24, 31, 40, 44, 53, 10, 19, 23, 32, 39, 45, 52, 54, 20, 22, 33, 38,                          \
     46, 51, 55, 60, 21, 34, 37, 47, 50, 56, 59, 61, 35, 36, 48, 49, 57, 58, 62, 63}

#ifdef __CUDACC__
__device__ inline unsigned magnitude_added(int value, unsigned sum) { return __sad(value, 0, sum); }
// The compiler would form other sums of products, which need more instructions.
template <int FACTOR> __device__ inline unsigned product_added(int value, unsigned sum) {
    unsigned result;
    asm("mad.lo.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(value), "n"(FACTOR), "r"(sum));
    return result;
}
#else
static inline unsigned magnitude_added(int value, unsigned sum) { return sum + (value < 0 ? -value : value); }
template <int FACTOR> static inline unsigned product_added(int value, unsigned sum) {
    return sum + (unsigned)value * FACTOR;
}
#endif

__device__ inline int wrapped(int value) { return (short)value; }
__device__ inline int saturated(int value) { return larger(-32768, smaller(value, 32767)); }

// One dimension of the inverse DCT. The eight values are `step` apart, and `added` is added to the results before they are
// shifted. With IS_SMALL, the caller guarantees that no sum of two values overflows 16 bits, and that no result of the first
// dimension does.
template <int SHIFT, bool IS_SMALL> __device__ inline void pass(int* at, int step, unsigned added) {
    const int zero = at[0], one = at[step], two = at[2 * step], three = at[3 * step], four = at[4 * step],
              five = at[5 * step], six = at[6 * step], seven = at[7 * step];
    // Factors have 13 fractional bits.
    const int total = IS_SMALL ? zero + four : wrapped(zero + four), rest = IS_SMALL ? zero - four : wrapped(zero - four);
    const unsigned high = product_added<(1 << 13)>(total, added), low = product_added<(1 << 13)>(rest, added);
    const unsigned down = two * (4433 + 6270) + six * 4433, up = two * 4433 + six * (4433 - 15137);
    const unsigned even[4] = {high + down, low + up, low - up, high - down};
    const int left = IS_SMALL ? seven + three : wrapped(seven + three);
    const int right = IS_SMALL ? five + one : wrapped(five + one);
    const unsigned left_turned = product_added<9633 - 16069>(left, right * 9633);
    const unsigned right_turned = product_added<9633>(left, right * (9633 - 3196));
    const unsigned odd[4] = {product_added<-7373>(seven, product_added<12299 - 7373>(one, right_turned)),
                             product_added<-20995>(five, product_added<25172 - 20995>(three, left_turned)),
                             product_added<-20995>(three, product_added<16819 - 20995>(five, right_turned)),
                             product_added<-7373>(one, product_added<2446 - 7373>(seven, left_turned))};
    UNROLLED for (int i = 0; i < 4; i++) {
        const int sum = (int)(even[i] + odd[i]) >> SHIFT, difference = (int)(even[i] - odd[i]) >> SHIFT;
        // The conversion to samples saturates the results of the second dimension.
        at[i * step] = IS_SMALL || SHIFT == 18 ? sum : saturated(sum);
        at[(7 - i) * step] = IS_SMALL || SHIFT == 18 ? difference : saturated(difference);
    }
}

// Maximum sum of the magnitudes of a column of coefficients for `pass` with IS_SMALL. A result of the first dimension is
// at most 4 * 1.387 times that sum, and the sum of two of them must fit into 16 bits.
const unsigned SMALL = 2900;

// One dimension of the transform to four values.
template <int SHIFT> __device__ inline void pass_to_four(int* at, int step) {
    const int one = at[step], two = at[2 * step], three = at[3 * step], five = at[5 * step], six = at[6 * step],
              seven = at[7 * step];
    const unsigned middle = (unsigned)at[0] << 14, turned = two * 15137 - six * 6270;
    const unsigned even[2] = {middle + turned, middle - turned};
    const unsigned odd[2] = {(unsigned)(seven * -4176) + five * -4926 + three * 7373 + one * 20995,
                             (unsigned)(seven * -1730) + five * 11893 + three * -17799 + one * 8697};
    const unsigned half = 1u << (SHIFT + 1);
    UNROLLED for (int i = 0; i < 2; i++) {
        at[i * step] = saturated((int)(even[i] + odd[i] + half) >> (SHIFT + 2));
        at[(3 - i) * step] = saturated((int)(even[i] - odd[i] + half) >> (SHIFT + 2));
    }
}

// One dimension of the transform to two values.
template <int SHIFT> __device__ inline void pass_to_two(int* at, int step) {
    const unsigned middle = (unsigned)at[0] << 15, half = 1u << (SHIFT + 2);
    const unsigned odd = (unsigned)(at[7 * step] * -5906) + at[5 * step] * 6967 + at[3 * step] * -10426 + at[step] * 29692;
    at[0] = saturated((int)(middle + odd + half) >> (SHIFT + 3));
    at[step] = saturated((int)(middle - odd + half) >> (SHIFT + 3));
}

// Returns four samples as a word. A sample is a value from 0 to 255, or from -128 to 127 if IS_SIGNED, plus 128.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 720
template <bool IS_SIGNED> __device__ inline unsigned samples_of(int a, int b, int c, int d) {
    unsigned word;
    if (IS_SIGNED) {
        asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, 0;" : "=r"(word) : "r"(d), "r"(c));
        asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(b), "r"(a), "r"(word));
        return word ^ 0x80808080;
    }
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, 0;" : "=r"(word) : "r"(d), "r"(c));
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(b), "r"(a), "r"(word));
    return word;
}
#else
template <bool IS_SIGNED> __device__ inline unsigned sample_of(int value) {
    return IS_SIGNED ? larger(-128, smaller(value, 127)) + 128 : larger(0, smaller(value, 255));
}
template <bool IS_SIGNED> __device__ inline unsigned samples_of(int a, int b, int c, int d) {
    return sample_of<IS_SIGNED>(a) | sample_of<IS_SIGNED>(b) << 8 | sample_of<IS_SIGNED>(c) << 16 |
           sample_of<IS_SIGNED>(d) << 24;
}
#endif

// Stores a transformed block of `SIDE` x `SIDE` samples.
template <int SIDE, bool IS_SIGNED> __device__ inline void store(const int* values, unsigned char* to, int pitch) {
    UNROLLED for (int y = 0; y < SIDE; y++, to += pitch) {
        const int* row = values + 8 * y;
        if (SIDE == 8)
            *(Pair*)to = {{samples_of<IS_SIGNED>(row[0], row[1], row[2], row[3]),
                           samples_of<IS_SIGNED>(row[4], row[5], row[6], row[7])}};
        else
            UNROLLED for (int x = 0; x < SIDE; x++) to[x] = (unsigned char)samples_of<IS_SIGNED>(row[x], 0, 0, 0);
    }
}

// A block of the part.
struct Block {
    int component, x, y;        // place of the block in the component's plane, in blocks
    int unit, in_unit;          // MCU in the part, and block of the MCU
    __device__ Block(const Jpeg& jpeg, int number) {
        const int units = jpeg.columns * jpeg.rows, luma = units * jpeg.luma_blocks();
        const int others = number - luma;
        component = number < luma ? 0 : 1 + others / units;
        const int across = component ? 1 : jpeg.across_blocks, down = component ? 1 : jpeg.down_blocks;
        const int at = number < luma ? number : others % units, wide = jpeg.columns * across;
        x = at % wide;
        y = at / wide;
        unit = y / down * jpeg.columns + x / across;
        in_unit = component ? jpeg.luma_blocks() + component - 1 : y % down * across + x % across;
    }
};

// DC coefficient of a block: the sum of differences, minus the sum before the restart interval or the row.
__device__ inline int dc_of(const Jpeg& jpeg, const Block& block) {
    const int row = jpeg.first_row - jpeg.dc_first + block.unit / jpeg.columns;
    const int unit = row * jpeg.across + jpeg.first_column + block.unit % jpeg.columns;
    const unsigned sum = jpeg.dc[unit * jpeg.unit() + block.in_unit];
    if (jpeg.seeds)
        return (int)(sum - dc_sum(jpeg, block.component, row * jpeg.across) + jpeg.seeds[3 * row + block.component]);
    if (jpeg.interval == 0) return (int)sum;
    return (int)(sum - dc_sum(jpeg, block.component, unit - unit % jpeg.interval));
}

// Transforms a block. Returns whether its coefficients are in range.
__device__ inline bool transform(const Jpeg& jpeg, const Words* steps, int number) {
    const Block block(jpeg, number);
    const Words* from = (const Words*)(jpeg.coefficients + 64 * (block.unit * jpeg.unit() + block.in_unit));
    const Words* step = steps + 16 * block.component;
    const int side = block.component ? jpeg.chroma_side : jpeg.luma_side;
    const int pitch = block.component ? jpeg.chroma_pitch : jpeg.luma_pitch;
    unsigned char* to = jpeg.samples + (block.component == 2 ? jpeg.red : block.component ? jpeg.blue : 0) +
                        block.y * side * pitch + block.x * side;
    const int zigzag[64] = ZIGZAG;
    int in_order[64], values[64];
    UNROLLED for (int i = 0; i < 8; i++) {
        const Words words = from[i];
        UNROLLED for (int j = 0; j < 4; j++) {
            const unsigned* factors = step[2 * i + j / 2].of + j % 2 * 2;
            in_order[8 * i + 2 * j] = (int)(short)words.of[j] * factors[0];
            in_order[8 * i + 2 * j + 1] = ((int)words.of[j] >> 16) * factors[1];
        }
    }
    in_order[0] = (int)(short)dc_of(jpeg, block) * step[0].of[0];
    UNROLLED for (int i = 0; i < 64; i++) values[i] = in_order[zigzag[i]];
    bool is_sane = true;
    if (side == 8) {
        unsigned most = 0;
        UNROLLED for (int x = 0; x < 8; x++) {
            unsigned sum = 0;
            UNROLLED for (int y = 0; y < 8; y++) sum = magnitude_added(values[8 * y + x], sum);
            most = most < sum ? sum : most;
        }
        if (most <= SMALL) {
            UNROLLED for (int x = 0; x < 8; x++) pass<11, true>(values + x, 8, 1u << 10);
            // The results are far from the limits of 32 bits, so 128 can be added to the samples here.
            UNROLLED for (int y = 0; y < 8; y++) pass<18, true>(values + 8 * y, 1, (128u << 18) + (1u << 17));
            store<8, false>(values, to, pitch);
        } else {
            UNROLLED for (int i = 0; i < 64; i++) values[i] = wrapped(values[i]);
            // Outside of this range, libjpeg-turbo's code paths differ.
            UNROLLED for (int x = 0; x < 8; x++) is_sane &= values[x] >= -8192 && values[x] < 8192;
            UNROLLED for (int x = 0; x < 8; x++) pass<11, false>(values + x, 8, 1u << 10);
            UNROLLED for (int y = 0; y < 8; y++) pass<18, false>(values + 8 * y, 1, 1u << 17);
            store<8, true>(values, to, pitch);
        }
    } else if (side == 1) {
        // libjpeg-turbo has no vector code for blocks of one sample. A table limits the range.
        const int dc = (int)(short)dc_of(jpeg, block) * step[0].of[0];
        is_sane = dc >= -4096 && dc < 4092;
        *to = (unsigned char)samples_of<true>((dc + 4) >> 3, 0, 0, 0);
    } else {
        UNROLLED for (int i = 0; i < 64; i++) {
            values[i] = wrapped(values[i]);
            is_sane &= values[i] >= -2048 && values[i] < 2048;
        }
        if (side == 4) {
            UNROLLED for (int x = 0; x < 8; x++) pass_to_four<10>(values + x, 8);
            UNROLLED for (int y = 0; y < 4; y++) pass_to_four<17>(values + 8 * y, 1);
            store<4, true>(values, to, pitch);
        } else {
            UNROLLED for (int x = 0; x < 8; x++) pass_to_two<10>(values + x, 8);
            UNROLLED for (int y = 0; y < 2; y++) pass_to_two<17>(values + 8 * y, 1);
            store<2, true>(values, to, pitch);
        }
    }
    return is_sane;
}

extern "C" __global__ void __launch_bounds__(THREADS) jpeg_transform(const Jpeg* images, int count, int, int) {
    if ((int)blockIdx.z >= count) return;
    const Jpeg& jpeg = images[blockIdx.z];
    const int blocks = jpeg.columns * jpeg.rows * jpeg.unit();
    if ((int)(blockIdx.x * THREADS) >= blocks) return;
    SHARED Words steps[3 * 16];
    EACH_THREAD if (thread < 64 * jpeg.components) steps[thread / 4].of[thread % 4] = jpeg.steps[thread];
    BARRIER;
    EACH_THREAD {
        const int number = blockIdx.x * THREADS + thread;
        if (number < blocks && !transform(jpeg, steps, number)) jpeg.report(PROBLEM_RANGE);
    }
}

JPEG_LAUNCH(jpeg_transform)
