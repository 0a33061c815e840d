// Parts of the tensor and of the source that a tile of tile.cu covers.

// Rectangle of the tensor. `right` and `bottom` are exclusive.
struct Window {
    int left, top, right, bottom;
    __device__ bool has(int x, int y) const { return x >= left && x < right && y >= top && y < bottom; }
};

// One axis of a tile: its outputs (columns or rows of the tensor), in the order of the source, and
// the inputs (columns or rows of the source) that they need.
struct TileAxis {
    const int* bounds;          // for each output: first input, number of inputs
    const int* coefs;
    int taps;                   // maximum number of coefficients per output
    int len;
    int first, end;             // range of the inputs of all outputs
    int reach;                  // distance between the first inputs of the first and of the last output
    // Creates the axis for the outputs `from..to` of the tensor.
    __device__ TileAxis(const ResampleParams& p, bool columns, const Origin& origin, int from, int to)
        : taps(columns ? p.h_taps : p.v_taps), len(to - from), first(0), end(0), reach(0) {
        const int place = origin.at + (origin.step > 0 ? from : 1 - to) - (columns ? p.x : p.y);
        bounds = p.table + (columns ? p.h_bounds : p.v_bounds) + 2 * place;
        coefs = p.table + (columns ? p.h_coefs : p.v_coefs) + (long long)taps * place;
        if (len > 0) {
            first = bounds[0];
            end = bounds[2 * len - 2] + bounds[2 * len - 1];
            reach = bounds[2 * len - 2] - first;
        }
    }
    // Maximum number of inputs of `outputs` consecutive outputs. The first inputs of consecutive
    // outputs are evenly spaced, with two exceptions: each is rounded to an integer, and at the
    // border of the source it is moved by less than the number of taps.
    __device__ int span(int outputs) const {
        if (outputs >= len) return end - first;
        return (outputs - 1) * (reach + 1 + taps) / (len - 1) + 2 + taps;
    }
};
