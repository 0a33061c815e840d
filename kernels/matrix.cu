// Matrix products of bytes. On the GPU, each warp computes a product with the tensor cores. On the
// host, loops over the lanes of a warp compute it.
//
// A warp multiplies 16 rows of 32 bytes (left) by 8 columns of 32 bytes (right), and adds the
// products to 16 x 8 sums. Each lane holds a part of left, right and sums, in words of four bytes
// (PTX ISA, "Matrix Fragments for mma.m16n8k32"). Lane 4 r + q holds
//   left     words q and q + 4 of row r (of[0] and of[2]) and of row r + 8 (of[1] and of[3])
//   right    words q and q + 4 of column r
//   sums     columns 2 q and 2 q + 1 of row r (of[0] and of[1]) and of row r + 8 (of[2] and of[3])
#ifdef __CUDACC__
#define EACH_WARP if (const int warp = threadIdx.x / 32; true)
#define EACH_LANE if (const int lane = threadIdx.x % 32; true)
// One value for each lane of a warp.
template <class T> struct Lanes {
    T own;
    __device__ T& operator[](int) { return own; }
    __device__ const T& operator[](int) const { return own; }
};
#else
#define EACH_WARP for (int warp = 0; warp < (int)blockDim.x / 32; warp++)
#define EACH_LANE for (int lane = 0; lane < 32; lane++)
template <class T> struct Lanes {
    T all[32];
    T& operator[](int lane) { return all[lane]; }
    const T& operator[](int lane) const { return all[lane]; }
};
#endif

struct Left {
    unsigned of[4];
};
struct Right {
    unsigned of[2];
};
struct Sums {
    int of[4];
};

// The matrix whose bytes are signed.
enum Signed { NEITHER, LEFT, RIGHT };

#ifdef __CUDACC__
#if __CUDA_ARCH__ >= 800
#define MULTIPLY(LEFT_TYPE, RIGHT_TYPE)                                                                              \
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." LEFT_TYPE "." RIGHT_TYPE                                   \
                 ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"                          \
                 : "=r"(d.of[0]), "=r"(d.of[1]), "=r"(d.of[2]), "=r"(d.of[3])                                        \
                 : "r"(a.of[0]), "r"(a.of[1]), "r"(a.of[2]), "r"(a.of[3]), "r"(b.of[0]), "r"(b.of[1]), "r"(c.of[0]), \
                   "r"(c.of[1]), "r"(c.of[2]), "r"(c.of[3]))
#else
// On Turing GPUs, one instruction multiplies 8 rows of 16 bytes, which is a quarter of the product.
// The parts of each quarter lie in the same lanes as in the whole product.
#define QUARTER(LEFT_TYPE, RIGHT_TYPE, ROWS, HALF)                                                                   \
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32." LEFT_TYPE "." RIGHT_TYPE                                    \
                 ".s32 {%0, %1}, {%2}, {%3}, {%0, %1};"                                                              \
                 : "+r"(d.of[2 * ROWS]), "+r"(d.of[2 * ROWS + 1])                                                    \
                 : "r"(a.of[ROWS + 2 * HALF]), "r"(b.of[HALF]))
#define MULTIPLY(LEFT_TYPE, RIGHT_TYPE)                                                                              \
    d = c;                                                                                                           \
    QUARTER(LEFT_TYPE, RIGHT_TYPE, 0, 0);                                                                            \
    QUARTER(LEFT_TYPE, RIGHT_TYPE, 0, 1);                                                                            \
    QUARTER(LEFT_TYPE, RIGHT_TYPE, 1, 0);                                                                            \
    QUARTER(LEFT_TYPE, RIGHT_TYPE, 1, 1)
#endif
// Adds the products of `left` and `right` to `start`, and writes the result to `sums`.
template <Signed SIGNED>
__device__ inline void multiply(Lanes<Sums>& sums, const Lanes<Sums>& start, const Lanes<Left>& left,
                                const Lanes<Right>& right) {
    const Sums& c = start.own;
    const Left& a = left.own;
    const Right& b = right.own;
    Sums d;
    if (SIGNED == LEFT) {
        MULTIPLY("s8", "u8");
    } else if (SIGNED == RIGHT) {
        MULTIPLY("u8", "s8");
    } else {
        MULTIPLY("u8", "u8");
    }
    sums.own = d;
}
#else
template <Signed SIGNED>
void multiply(Lanes<Sums>& sums, const Lanes<Sums>& start, const Lanes<Left>& left, const Lanes<Right>& right) {
    sums = start;
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 8; column++)
            for (int word = 0; word < 8; word++) {
                const unsigned a = left[4 * (row % 8) + word % 4].of[row / 8 + word / 4 * 2];
                const unsigned b = right[4 * column + word % 4].of[word / 4];
                // Skips words of 0. This saves most of the work, because most coefficients are 0.
                if (!a || !b) continue;
                int& sum = sums[4 * (row % 8) + column / 2].of[row / 8 * 2 + column % 2];
                for (int i = 0; i < 4; i++) {
                    const int x = byte_of(a, i), y = byte_of(b, i);
                    sum += (SIGNED == LEFT ? (signed char)x : x) * (SIGNED == RIGHT ? (signed char)y : y);
                }
            }
}
#endif

// Four coefficients, split into bytes. A coefficient is a signed number of three bytes with 22
// fractional bits. `low` holds the lowest byte of all four coefficients, and `high` holds the
// highest bytes, which are signed. A product loads only the one word that it needs. A `Factors` has
// an odd number of words, so neighbouring ones lie in different banks of shared memory.
struct Factors {
    unsigned low, middle, high;
};

// Returns coefficients `first` to `first` + 3, or 0 beyond `count`.
__device__ inline Factors factors(const int* coefs, int count, int first) {
    unsigned k[4];
    for (int i = 0; i < 4; i++) k[i] = first + i >= 0 && first + i < count ? coefs[first + i] : 0;
    const unsigned a = picked(k[0], k[1], 0x5140), b = picked(k[2], k[3], 0x5140);
    const Factors parts = {picked(a, b, 0x5410), picked(a, b, 0x7632),
                           picked(picked(k[0], k[1], 0x0062), picked(k[2], k[3], 0x0062), 0x5410)};
    return parts;
}

// Matrices of coefficients, one for each of the three bytes of a coefficient.
template <class Side> struct Parts {
    Lanes<Side> low, middle, high;
};

// Sums of products with coefficients, one sum for each of the three bytes of a coefficient.
struct Weighted {
    Lanes<Sums> low, middle, high;
    // Returns the initial sums. The sums contain half a unit of the result (2^21), so that dropping
    // the lowest 22 bits later rounds to the nearest integer.
    static __device__ Weighted none() {
        Weighted none;
        EACH_LANE for (int i = 0; i < 4; i++) {
            none.low[lane].of[i] = 1 << 21;
            none.middle[lane].of[i] = none.high[lane].of[i] = 0;
        }
        return none;
    }
    __device__ Weighted plus(const Lanes<Left>& bytes, const Parts<Right>& k) const {
        Weighted sum;
        multiply<NEITHER>(sum.low, low, bytes, k.low);
        multiply<NEITHER>(sum.middle, middle, bytes, k.middle);
        multiply<RIGHT>(sum.high, high, bytes, k.high);
        return sum;
    }
    __device__ Weighted plus(const Parts<Left>& k, const Lanes<Right>& bytes) const {
        Weighted sum;
        multiply<NEITHER>(sum.low, low, k.low, bytes);
        multiply<NEITHER>(sum.middle, middle, k.middle, bytes);
        multiply<LEFT>(sum.high, high, k.high, bytes);
        return sum;
    }
    // Returns the weighted sum with number `i` in a lane, combined from the sums for the three
    // bytes. The value is rounded, but not clamped to a byte.
    __device__ int value(int lane, int i) const {
        const unsigned upper = (unsigned)middle[lane].of[i] + ((unsigned)high[lane].of[i] << 8);
        return (int)((unsigned)low[lane].of[i] + (upper << 8)) >> 22;
    }
};

// Packs four sums as the bytes of a word.
__device__ inline unsigned bytes_of(int a, int b, int c, int d) { return clamped(a, b, clamped(c, d, 0)); }
