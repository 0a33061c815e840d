// Building blocks of tiles (tile.cu): phases and barriers, instructions on four bytes with their
// replacements for the host, division, and reading of 16 pixels at a time into three planes.
#ifdef __CUDACC__
#define EACH_THREAD if (const int thread = threadIdx.x; true)
#define BARRIER __syncthreads()
#define NOT_UNROLLED _Pragma("unroll 1")
#define UNROLLED _Pragma("unroll")
#else
// On the host, a phase is a loop over the threads. All threads end a phase before the next begins,
// so a barrier does nothing.
#define EACH_THREAD for (int thread = 0; thread < (int)blockDim.x; thread++)
#define BARRIER (void)0
#define NOT_UNROLLED
#define UNROLLED
#endif

#ifdef __CUDACC__
// Clamps `low` and `high` to 0..255 and packs them as the lowest bytes of a word. The upper half of
// this word is the lower half of `above`.
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
// Returns the upper half of the 64-bit product of `a` and FACTOR, plus `b`.
template <int FACTOR> __device__ inline int high_sum(int a, int b) {
    int sum;
    asm("mad.hi.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "n"(FACTOR), "r"(b));
    return sum;
}
// Returns the signed byte number PLACE of `word` times 2^16, plus LOW, which is below 2^16.
template <int PLACE, int LOW> __device__ inline int signed_byte(unsigned word) {
    int value;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(value) : "r"(word), "n"(LOW), "n"(0x8054 + 0x1100 * PLACE));
    return value;
}
// Returns `c` plus the products of two signed 16-bit factors with the signed bytes 0 and 1 of
// `word`, or with the bytes 2 and 3 if `UPPER`.
template <bool UPPER> __device__ inline int two_products(unsigned factors, unsigned word, int c) {
    return UPPER ? __dp2a_hi((int)factors, (int)word, c) : __dp2a_lo((int)factors, (int)word, c);
}
// Casts a generic address to an address in global memory, because the compiler cannot infer the
// address space.
template <class T> __device__ inline T* global(T* address) {
    __builtin_assume(__isGlobal(address));
    return address;
}
// Casts a generic address to an address in shared memory.
template <class T> __device__ inline T* in_shared(T* address) {
    __builtin_assume(__isShared(address));
    return address;
}
// Adds `offset` bytes to an address in shared memory by a bitwise OR. So the address must have none
// of the offset's bits set.
__device__ inline const void* within(const void* shared, unsigned offset) {
    return __cvta_shared_to_generic(__cvta_generic_to_shared(shared) | offset);
}
#else
static inline unsigned byte_of(unsigned word, int place) { return word >> 8 * place & 255; }
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
template <class T> T* global(T* address) { return address; }
static inline const void* within(const void* shared, unsigned offset) { return (const char*)shared + offset; }
template <class T> T* in_shared(T* address) { return address; }
static inline unsigned high_product(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
template <int FACTOR> int high_sum(int a, int b) { return (int)((long long)a * FACTOR >> 32) + b; }
template <int PLACE, int LOW> int signed_byte(unsigned word) {
    return (signed char)byte_of(word, PLACE) * 65536 + LOW;
}
template <bool UPPER> int two_products(unsigned factors, unsigned word, int c) {
    const int a = (signed char)byte_of(word, UPPER ? 2 : 0), b = (signed char)byte_of(word, UPPER ? 3 : 1);
    return c + (short)factors * a + (short)(factors >> 16) * b;
}
#endif

// Exact division of numbers below 2^16: a multiplication by the inverse, which is rounded up to a
// multiple of 2^-32. The product is too large by less than 2^16 / 2^32, so it does not reach the
// next integer.
struct Divisor {
    int by;
    unsigned inverse;
    explicit __device__ Divisor(int by) : by(by), inverse(by > 1 ? 0xffffffffu / by + 1 : 0) {}
    __device__ int of(int number) const { return by > 1 ? (int)high_product(number, inverse) : number; }
};

struct Quad {
    unsigned r, g, b;
};

// Reads four pixels of a row one by one, as one word per channel. The caller does not use pixels
// outside `first..end`, so the nearest pixel inside is read in their place.
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

// Sixteen pixels of a row, with one plane per channel.
struct alignas(16) Words {
    unsigned of[4];
};
struct Sixteen {
    Words r, g, b;
    __device__ void put(int word, const Quad& quad) {
        r.of[word] = quad.r;
        g.of[word] = quad.g;
        b.of[word] = quad.b;
    }
    // Stores four words of each channel, `plane` words from channel to channel.
    __device__ void store(unsigned* to, int plane) const {
        *(Words*)to = r;
        *(Words*)(to + plane) = g;
        *(Words*)(to + 2 * plane) = b;
    }
};

// Reader of a rectangle: `rows` rows from row `y` on, each with `count` pieces of 16 pixels from
// pixel `x` on. Reading is fastest if the distance from pixel `start()` to `x` is a multiple of 16
// pixels. The caller does not use pixels outside `first..end`.
template <class Src> struct Pieces {
    const Src& src;
    int x, y, first, end;
    static __device__ int start(const Src&) { return 0; }
    __device__ Pieces(const Src& src, int x, int y, int, int, int first, int end)
        : src(src), x(x), y(y), first(first), end(end) {}
    __device__ Sixteen at(int place, int row) const {
        Sixteen it;
        for (int word = 0; word < 4; word++)
            it.put(word, quad_of_pixels(src, x + 16 * place + 4 * word, y + row, first, end));
        return it;
    }
    __device__ bool reads_planes() const { return false; }
};

// Splits the 12 bytes of four pixels into channels.
__device__ inline Quad quad_of_words(unsigned low, unsigned middle, unsigned high) {
    const Quad quad = {picked(picked(low, middle, 0x0630), high, 0x5210),
                       picked(picked(low, middle, 0x0741), high, 0x6210),
                       picked(picked(low, middle, 0x0052), high, 0x7410)};
    return quad;
}

// Reads 48 bytes for 16 upright pixels. If all rows begin at multiples of 16 bytes, as in
// feedwater's buffers, `at` loads 16 bytes at once. Otherwise it loads aligned words, up to four
// bytes more than needed, and shifts them together. If some of these bytes lie outside the memory
// (before the first row or after the last one), it reads the pixels one by one. Pixels of planes are
// also read one by one, unless `reads_planes` returns true: then planes.cu reads them.
template <> struct Pieces<Roi> {
    const Roi& src;
    int x, y, first, end;
    const unsigned char* pixels;
    int pitch, whole;           // bytes per row; number of rows that can be read in words
    bool aligned;
    static __device__ int start(const Roi& src) { return src.orientation ? 0 : src.x; }
    __device__ Pieces(const Roi& src, int x, int y, int rows, int count, int first, int end)
        : src(src), x(x), y(y), first(first), end(end),
          pixels(global(src.pixels) + (long long)(y - src.y) * src.pitch + 3 * (x - src.x)), pitch(src.pitch), whole(0),
          aligned(((unsigned long long)pixels | (unsigned)pitch) % 16 == 0) {
        const unsigned char* after = src.pixels + (long long)src.pitch * src.height;
        if (src.format != INTERLEAVED || src.orientation) return;
        if (pixels - (unsigned long long)pixels % 4 < src.pixels) return;
        for (whole = rows; whole > 0; whole--)
            if (pixels + (long long)pitch * (whole - 1) + 48 * count + (aligned ? 0 : 4) <= after) return;
    }
    __device__ bool reads_planes() const { return src.format != INTERLEAVED && !src.orientation; }
    __device__ Sixteen at(int place, int row) const {
        Sixteen it;
        if (aligned && row < whole) {
            const Words* from = (const Words*)global(pixels + (long long)pitch * row + 48 * place);
            const Words a = from[0], b = from[1], c = from[2];
            it.put(0, quad_of_words(a.of[0], a.of[1], a.of[2]));
            it.put(1, quad_of_words(a.of[3], b.of[0], b.of[1]));
            it.put(2, quad_of_words(b.of[2], b.of[3], c.of[0]));
            it.put(3, quad_of_words(c.of[1], c.of[2], c.of[3]));
            return it;
        }
        for (int word = 0; word < 4; word++) it.put(word, quad(4 * place + word, row));
        return it;
    }
    NOT_INLINE __device__ Quad quad(int word, int row) const {
        if (row >= whole) return quad_of_pixels(src, x + 4 * word, y + row, first, end);
        const unsigned long long from = (unsigned long long)(pixels + (long long)pitch * row + 12 * word);
        const unsigned* aligned = global((const unsigned*)(from & ~3ull));
        const unsigned bits = 8 * ((unsigned)from & 3), b = aligned[1], c = aligned[2];
        return quad_of_words(shifted(aligned[0], b, bits), shifted(b, c, bits), shifted(c, aligned[3], bits));
    }
};
