// Functions for color operators. Same results as src/op/shared/blend.rs, histograms.rs and noise.rs.

#ifndef __CUDACC__
#define sqrt __builtin_sqrt
#define sqrtf __builtin_sqrtf
#endif

// Histograms of an image's three channels, and of its gray version.
#define HISTOGRAM_BINS 1024
struct Histograms {
    unsigned channel[3][256], gray[256];
    // Returns the bin with this number. The bins of all histograms are numbered consecutively.
    __device__ unsigned& bin(int number) { return ((unsigned*)this)[number]; }
};

static __device__ inline int lesser(int a, int b) { return a < b ? a : b; }
static __device__ inline int greater(int a, int b) { return a > b ? a : b; }
static __device__ inline unsigned char clamped(int value) { return (unsigned char)lesser(greater(value, 0), 255); }

static __device__ inline unsigned char blend(unsigned char from, unsigned char to, float factor) {
    const float value = (float)from + factor * ((float)to - (float)from);
    return value <= 0.0f ? 0 : value >= 255.0f ? 255 : (unsigned char)value;
}

static __device__ inline Bytes blend(Bytes from, Bytes to, float factor) {
    const Bytes pixel = {blend(from.r, to.r, factor), blend(from.g, to.g, factor), blend(from.b, to.b, factor)};
    return pixel;
}

static __device__ inline unsigned char luma(Bytes pixel) {
    return (unsigned char)((19595u * pixel.r + 38470u * pixel.g + 7471u * pixel.b + 0x8000u) >> 16);
}

// Four random 32-bit words for the pixel at (x, y), from the generator Philox4x32-10. Its key is
// `sample`, two random words of the sample.
struct Words {
    unsigned word[4];
    static __device__ Words of(const unsigned (&sample)[2], int x, int y) {
        unsigned key[2] = {sample[0], sample[1]};
        Words c = {{(unsigned)x, (unsigned)y, 0, 0}};
        for (int round = 0; round < 10; ++round) {
            if (round > 0) key[0] += 0x9e3779b9u, key[1] += 0xbb67ae85u;
            const unsigned long long a = c.word[0] * 0xd2511f53ull, b = c.word[2] * 0xcd9e8d57ull;
            const Words next = {{(unsigned)(b >> 32) ^ c.word[1] ^ key[0], (unsigned)b, (unsigned)(a >> 32) ^ c.word[3] ^ key[1], (unsigned)a}};
            c = next;
        }
        return c;
    }
};

union FloatBits {
    float value;
    int bits;
};

// Natural logarithm of a normal (not subnormal) number.
static __device__ inline float logarithm(float value) {
    const float coefficients[9] = {0.070376836f, -0.1151461f, 0.11676998f, -0.12420141f, 0.14249323f, -0.16668058f, 0.20000715f, -0.24999994f, 0.33333331f};
    FloatBits mantissa;
    mantissa.value = value;
    const int whole = (mantissa.bits - 0x3f3504f3) >> 23;
    mantissa.bits -= (int)((unsigned)whole << 23);
    const float f = mantissa.value - 1.0f, square = f * f, exponent = (float)whole;
    float sum = 0.0f;
    for (int i = 0; i < 9; ++i) sum = sum * f + coefficients[i];
    const float small = sum * f * square - 2.1219444e-4f * exponent - 0.5f * square;
    return f + small + 0.693359375f * exponent;
}

// Two independent standard normal numbers, computed from two random words with the Box-Muller
// transform.
struct Normals {
    float x, y;
    static __device__ Normals of(unsigned distance, unsigned direction) {
        const float uniform = (float)((int)(distance >> 9) * 2 + 1) * (1.0f / (1 << 24));
        const float radius = sqrtf(-2.0f * logarithm(uniform));
        const float angle = (float)(int)(direction << 2) * (0.785398163f / 2147483648.0f), square = angle * angle;
        const float sine = ((-1.9515296e-4f * square + 8.332161e-3f) * square + -0.16666655f) * square * angle + angle;
        const float cosine = ((2.4433157e-5f * square + -1.3887316e-3f) * square + 0.041666646f) * square * square - 0.5f * square + 1.0f;
        const bool mirrored = direction & 1u << 30;
        FloatBits x, y;
        x.value = mirrored ? sine : cosine;
        y.value = mirrored ? cosine : sine;
        x.bits ^= (int)(direction & 1u << 31);
        y.bits ^= (int)(direction & 1u << 31);
        const Normals point = {radius * x.value, radius * y.value};
        return point;
    }
};

// Returns three standard normal numbers from a pixel's random words.
static __device__ inline Floats3 normals(const Words& w) {
    const Normals first = Normals::of(w.word[0], w.word[1]);
    return Floats3::of(first.x, first.y, Normals::of(w.word[2], w.word[3]).x);
}
