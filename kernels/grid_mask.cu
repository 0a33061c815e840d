// Overwrites the squares of a rotated grid. Same results as src/op/erase/grid_mask.rs.
struct GridMaskParams {
    unsigned along, across;         // change of the position in the grid from one pixel to the next, in 2^-32 tiles
    unsigned start[2];
    unsigned long long limit;
    unsigned char fill[3], padding[5];
};

struct GridMask {
    static __device__ Bytes of(const GridMaskParams& p, int x, int y, Bytes pixel) {
        const unsigned first = p.start[0] + (unsigned)x * p.along - (unsigned)y * p.across;
        const unsigned second = p.start[1] + (unsigned)x * p.across + (unsigned)y * p.along;
        const Bytes fill = {p.fill[0], p.fill[1], p.fill[2]};
        return first < p.limit && second < p.limit ? fill : pixel;
    }
};
