// Overwrites squares with a color. Same results as src/op/erase/cutout.rs.
struct CutoutParams {
    unsigned short holes[8][4];     // left, top, right, bottom
    unsigned char fill[3], padding[5];
};

struct Cutout {
    static __device__ Bytes of(const CutoutParams& p, int x, int y, Bytes pixel) {
        const Bytes fill = {p.fill[0], p.fill[1], p.fill[2]};
        for (int i = 0; i < 8; ++i) {
            const unsigned short(&hole)[4] = p.holes[i];
            if (x >= hole[0] && y >= hole[1] && x < hole[2] && y < hole[3]) return fill;
        }
        return pixel;
    }
};
