// What a tile is made with (tile.cu): phases and barriers, the instructions for four bytes at a time and what stands for
// them on the host, how threads share out work, and pixels four at a time, a word for each channel.
#ifdef __CUDACC__
#define EACH_THREAD if (const int thread = threadIdx.x; true)
#define BARRIER __syncthreads()
#define NOT_INLINE __noinline__
#define NOT_UNROLLED _Pragma("unroll 1")
#else
// On the host a phase is a loop over the threads, so a barrier has nothing left to do.
#define EACH_THREAD for (int thread = 0; thread < (int)blockDim.x; thread++)
#define BARRIER (void)0
#define NOT_INLINE
#define NOT_UNROLLED
#endif

__device__ inline int smaller(int a, int b) { return a < b ? a : b; }
__device__ inline int larger(int a, int b) { return a < b ? b : a; }

#ifdef __CUDACC__
__device__ inline unsigned dot_unsigned(unsigned bytes, unsigned factors, unsigned sum) {
    asm("dp4a.u32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(bytes), "r"(factors));
    return sum;
}
__device__ inline int dot_signed(unsigned bytes, unsigned factors, int sum) {
    asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(bytes), "r"(factors));
    return sum;
}
// `low` and `high`, each clamped to 0..255, as the lowest bytes of a word whose upper half was `above`'s lower one.
__device__ inline unsigned clamped(int low, int high, unsigned above) {
    unsigned word;
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(high), "r"(low), "r"(above));
    return word;
}
__device__ inline unsigned shifted(unsigned low, unsigned high, unsigned bits) {
    return __funnelshift_r(low, high, bits);
}
__device__ inline unsigned picked(unsigned low, unsigned high, unsigned places) {
    return __byte_perm(low, high, places);
}
__device__ inline unsigned high_product(unsigned a, unsigned b) { return __umulhi(a, b); }
#else
static inline unsigned byte_of(unsigned word, int place) { return word >> 8 * place & 255; }
static inline unsigned dot_unsigned(unsigned bytes, unsigned factors, unsigned sum) {
    for (int i = 0; i < 4; i++) sum += byte_of(bytes, i) * byte_of(factors, i);
    return sum;
}
static inline int dot_signed(unsigned bytes, unsigned factors, int sum) {
    for (int i = 0; i < 4; i++) sum += (int)byte_of(bytes, i) * (signed char)byte_of(factors, i);
    return sum;
}
static inline unsigned clamped(int low, int high, unsigned above) {
    return above << 16 | (unsigned)larger(0, smaller(255, high)) << 8 | (unsigned)larger(0, smaller(255, low));
}
static inline unsigned shifted(unsigned low, unsigned high, unsigned bits) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> bits);
}
static inline unsigned picked(unsigned low, unsigned high, unsigned places) {
    unsigned word = 0;
    for (int i = 0; i < 4; i++) {
        const int place = places >> 4 * i & 7;
        word |= byte_of(place < 4 ? low : high, place & 3) << 8 * i;
    }
    return word;
}
static inline unsigned high_product(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
#endif

// Division of numbers below 2^16 by one of them; exact, as the inverse is over by less than 2^16 parts in 2^32.
struct Divisor {
    int by;
    unsigned inverse;
    explicit __device__ Divisor(int by) : by(by), inverse(by > 1 ? 0xffffffffu / by + 1 : 0) {}
    __device__ int of(int number) const { return by > 1 ? (int)high_product(number, inverse) : number; }
};

// How the threads share out a rectangle: each keeps to every `count`th column, and to every `slots`th row.
struct Lanes {
    int count, slots, first, slot;
    __device__ Lanes(int thread, int columns) {
        const int threads = blockDim.x;
        count = smaller(columns, threads);
        slots = threads / count;
        slot = thread / count;
        // Threads that are left over have nothing to do.
        first = slot < slots ? thread - slot * count : columns;
    }
};

struct Quad {
    unsigned r, g, b;
};

// Four pixels of a row as a word of each channel, one by one. Those that are not from `first` to before `end` are not
// used, so others are read in their place.
template <class Src> NOT_INLINE __device__ Quad quad_of_pixels(const Src& src, int x, int y, int first, int end) {
    Quad quad = {0, 0, 0};
    for (int i = 0; i < 4; i++) {
        const Bytes pixel = src.at(larger(first, smaller(x + i, end - 1)), y);
        quad.r |= (unsigned)pixel.r << 8 * i;
        quad.g |= (unsigned)pixel.g << 8 * i;
        quad.b |= (unsigned)pixel.b << 8 * i;
    }
    return quad;
}

// The same for a rectangle of `rows` rows, from row `y` on, and of `words` words, from pixel `x` on, as fast as the
// source allows; `start` is a pixel from which on every fourth is the best to begin with.
template <class Src> struct Quads {
    const Src& src;
    int x, y, first, end;
    static __device__ int start(const Src&) { return 0; }
    __device__ Quads(const Src& src, int x, int y, int, int, int first, int end)
        : src(src), x(x), y(y), first(first), end(end) {}
    __device__ Quad at(int word, int row) const { return quad_of_pixels(src, x + 4 * word, y + row, first, end); }
};

// Upright pixels come as the 12 bytes that they are, in words. Rows may begin at any address: words are read where they
// are aligned and shifted together, up to four bytes more than are needed. Only where those are outside of the memory,
// after the last row or before the first, pixels come one by one.
template <> struct Quads<Roi> {
    const Roi& src;
    int x, y, first, end;
    const unsigned char* pixels;
    int pitch, whole;           // bytes from a row to the next; rows that can be read in words
    static __device__ int start(const Roi& src) { return src.orientation ? 0 : src.x; }
    __device__ Quads(const Roi& src, int x, int y, int rows, int words, int first, int end)
        : src(src), x(x), y(y), first(first), end(end),
          pixels(src.pixels + (long long)(y - src.y) * src.pitch + 3 * (x - src.x)), pitch(src.pitch), whole(0) {
        const unsigned char* after = src.pixels + (long long)src.pitch * src.height;
        if (src.orientation || pixels - (unsigned long long)pixels % 4 < src.pixels) return;
        for (whole = rows; whole > 0; whole--)
            if (pixels + (long long)pitch * (whole - 1) + 12 * words + 4 <= after) return;
    }
    __device__ Quad at(int word, int row) const {
        if (row >= whole) return quad_of_pixels(src, x + 4 * word, y + row, first, end);
        const unsigned long long from = (unsigned long long)(pixels + pitch * row + 12 * word);
        const unsigned* aligned = (const unsigned*)(from & ~3ull);
        const unsigned bits = 8 * ((unsigned)from & 3), b = aligned[1], c = aligned[2];
        const unsigned low = shifted(aligned[0], b, bits), middle = shifted(b, c, bits);
        const unsigned high = shifted(c, aligned[3], bits);
        const Quad quad = {picked(picked(low, middle, 0x0630), high, 0x5210),
                           picked(picked(low, middle, 0x0741), high, 0x6210),
                           picked(picked(low, middle, 0x0052), high, 0x7410)};
        return quad;
    }
};
