// Turns the hue of each pixel. Twin of src/op/formula/hue.rs, which derives the integers.
struct HueParams {
    unsigned shift;
    unsigned padding;
};

struct Hue {
    // Numbers below 2^18 and 2^9.
    static __device__ int divide(int numerator, int denominator) { return (int)((float)numerator / (float)denominator); }
    // Bit of `hue`: whether Pillow's hue is rounded down although it is an integer.
    static __device__ int rounded_down(int hue) {
        const int word = hue >> 5;
        const unsigned low = word == 0 ? 0xfffffffeu : word == 2 ? 0x11000000u : word == 3 ? 0x00000111u : 0;
        const unsigned high = word == 4 ? 0x222aaaaau : word == 5 ? 0x23232222u : word == 6 ? 0x00022222u : 0;
        return (int)((low | high) >> (hue & 31) & 1);
    }
    static __device__ Bytes of(const HueParams& p, Bytes pixel) {
        const int r = pixel.r, g = pixel.g, b = pixel.b;
        const int max = greater(greater(r, g), b), range = max - lesser(lesser(r, g), b);
        const int turned = r == max ? g - b : g == max ? 2 * range + b - r : 4 * range + r - g;
        const int numerator = 85 * (turned < 0 ? turned + 6 * range : turned), denominator = 2 * greater(range, 1);
        const int floor = divide(numerator, denominator);
        const int less = floor * denominator == numerator ? rounded_down(floor) : 0;
        const int saturation = divide(255 * range, greater(max, 1));
        const int hue = (floor - less + (int)p.shift) & 255;

        const int sextant = 2 * hue / 85, part = 2 * hue - 85 * sextant;
        const unsigned char value = (unsigned char)max;
        const unsigned char low = (unsigned char)((2 * max * (255 - saturation) + 255) / 510);
        const unsigned char falling = (unsigned char)((2 * max * (21675 - saturation * part) + 21675) / 43350);
        const unsigned char rising = (unsigned char)((2 * max * (21675 - saturation * (85 - part)) + 21675) / 43350);
        const Bytes out = {
            sextant == 1 ? falling : sextant == 2 || sextant == 3 ? low : sextant == 4 ? rising : value,
            sextant == 1 || sextant == 2 ? value : sextant == 3 ? falling : sextant == 4 || sextant == 5 ? low : rising,
            sextant == 2 ? rising : sextant == 3 || sextant == 4 ? value : sextant == 5 ? falling : low,
        };
        return out;
    }
};
