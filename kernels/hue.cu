// Rotates the hue of each pixel. Same results as src/op/colour/hue.rs, which explains the integer
// arithmetic.
struct HueParams {
    unsigned shift;
    unsigned padding;
};

struct Hue {
    // Returns the quotient of a number below 2^18 and a number below 2^9, rounded down. For such
    // small numbers, the float quotient never rounds up to the next integer.
    static __device__ int divide(int numerator, int denominator) { return (int)((float)numerator / (float)denominator); }
    // Returns 1 if Pillow rounds this hue down although it is an integer, otherwise 0.
    static __device__ int rounded_down(int hue) {
        const int word = hue >> 5;
        const unsigned low = word == 0 ? 0xfffffffeu : word == 2 ? 0x11000000u : word == 3 ? 0x00000111u : 0;
        const unsigned high = word == 4 ? 0x222aaaaau : word == 5 ? 0x23232222u : word == 6 ? 0x00022222u : 0;
        return (int)((low | high) >> (hue & 31) & 1);
    }
    // Returns the value of one channel. `at` is the hue plus the offset of the channel, in 510ths
    // of the color circle. Values from 510 on wrap around.
    static __device__ unsigned char channel(int max, int saturation, int at) {
        at = at < 510 ? at : at - 510;
        const int weight = lesser(greater(lesser(at, 340 - at), 0), 85);
        const float level = (float)(max * (21675 - saturation * weight)) * (1.0f / 21675.0f);
        // 12582912 is 1.5 * 2^23. Floats of this size have no fraction bits, so the addition rounds
        // to an integer.
        const float rounds = 12582912.0f;
        return (unsigned char)((level + rounds) - rounds);
    }
    static __device__ Bytes of(const HueParams& p, Bytes pixel) {
        const int r = pixel.r, g = pixel.g, b = pixel.b;
        const int max = greater(greater(r, g), b), range = max - lesser(lesser(r, g), b);
        const int turned = r == max ? g - b : g == max ? 2 * range + b - r : 4 * range + r - g;
        const int numerator = 85 * (turned < 0 ? turned + 6 * range : turned), denominator = 2 * greater(range, 1);
        const int floor = divide(numerator, denominator);
        const int less = floor * denominator == numerator ? rounded_down(floor) : 0;
        const int saturation = divide(255 * range, greater(max, 1));
        const int hue = 2 * ((floor - less + (int)p.shift) & 255);
        const Bytes out = {channel(max, saturation, hue + 425), channel(max, saturation, hue + 255), channel(max, saturation, hue + 85)};
        return out;
    }
};
