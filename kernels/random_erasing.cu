// Overwrites a rectangle with a color or with noise. Same results as src/op/erase/random_erasing.rs.
struct RandomErasingParams {
    int x, y, right, bottom;
    float mean[3], std[3];
    unsigned key[2];
    unsigned is_gray, padding;  // is_gray: 1 if all channels have the noise of the first
};

struct RandomErasing {
    static __device__ bool is_inside(const RandomErasingParams& p, int x, int y) {
        return x >= p.x && x < p.right && y >= p.y && y < p.bottom;
    }
    static __device__ Floats3 value(const RandomErasingParams& p, int x, int y) {
        if (p.std[0] == 0.0f && p.std[1] == 0.0f && p.std[2] == 0.0f) return Floats3::of(p.mean[0], p.mean[1], p.mean[2]);
        const Floats3 each = normals(Words::of(p.key, x, y));
        const Floats3 n = p.is_gray ? Floats3::of(each.r, each.r, each.r) : each;
        return Floats3::of(p.mean[0] + p.std[0] * n.r, p.mean[1] + p.std[1] * n.g, p.mean[2] + p.std[2] * n.b);
    }
    static __device__ unsigned char byte(float value) { return value <= 0.0f ? 0 : value >= 255.0f ? 255 : (unsigned char)value; }
    static __device__ Floats3 of(const RandomErasingParams& p, int x, int y, Floats3 pixel) {
        return is_inside(p, x, y) ? value(p, x, y) : pixel;
    }
    static __device__ Bytes of(const RandomErasingParams& p, int x, int y, Bytes pixel) {
        if (!is_inside(p, x, y)) return pixel;
        const Floats3 erased = value(p, x, y);
        const Bytes out = {byte(erased.r), byte(erased.g), byte(erased.b)};
        return out;
    }
};
