// Shared by the operators on colours. Twins of src/op/formula/blend.rs, statistics.rs and noise.rs.

#ifndef __CUDACC__
#define sqrt __builtin_sqrt
#define sqrtf __builtin_sqrtf
#endif

// Histograms of an image: of each channel and of its gray version.
struct Histograms {
    unsigned channel[3][256], gray[256];
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

// Random words of the pixel at (x, y): Philox4x32-10.
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

// Natural logarithm of a normal number.
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

// Standard normal number of the 24 leading bits.
static __device__ inline float normal(unsigned bits) {
    const float centre[9] = {2.8102264e-8f, 3.4327394e-7f, -3.5233877e-6f, -4.3915065e-6f, 0.00021858087f, -0.00125372503f, -0.00417768164f, 0.246640727f, 1.50140941f};
    const float tail[9] = {-0.000200214257f, 0.000100950558f, 0.00134934322f, -0.00367342844f, 0.00573950773f, -0.0076224613f, 0.00943887047f, 1.00167406f, 2.83297682f};
    const float v = (float)((int)(bits >> 8) * 2 + 1 - (1 << 24)) * (1.0f / (1 << 24));
    const float w = -logarithm((1.0f - v) * (1.0f + v));
    const bool far = w >= 5.0f;
    const float at = far ? sqrtf(w) - 3.0f : w - 2.5f;
    float sum = 0.0f;
    for (int i = 0; i < 9; ++i) sum = sum * at + (far ? tail[i] : centre[i]);
    return sum * v * 1.41421356f;
}
