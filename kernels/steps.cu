// Data of the program kernel (program.cu), and the readers that every chain may need. Same layout
// as the structs in src/op/program/data.rs. The host prepends MAX_PARAMS_BYTES, LEAF_BYTES and
// STATISTICS_BYTES, and appends the functions that call the chain's formulas by their codes.
enum StepCode { STEP_TABLE, STEP_FLOAT_TABLE, STEP_MADE, STEP_FLOATS_MADE, STEP_FILL, STEP_FILL_FLOATS };
enum ReadCode { READ_BYTES, READ_FLOATS, READ_ACROSS, READ_DOWN, READ_WARP };

// A pixel: bytes, or floats after a step that converts to floats.
struct Value {
    Bytes bytes;
    Floats3 floats;
    __device__ void set(Bytes pixel) { bytes = pixel; }
    __device__ void set(Floats3 pixel) { floats = pixel; }
};

// One operation on a pixel.
struct Step {
    int code;               // a StepCode, or the code of a formula
    int x, dx, y, dy;       // the pass's pixel (i, j) is at (x + dx * i, y + dy * j) in the step's image
    int unused;
    unsigned long long params[MAX_PARAMS_BYTES / 8];
    template <class P> __device__ const P& as() const { return *(const P*)params; }
};

// Fills pixels outside a rectangle.
struct FillParams {
    int left, top, right, bottom;
    float fill[3];
    int unused;
    __device__ bool has(int x, int y) const { return x >= left && y >= top && x < right && y < bottom; }
};

// Computes an image: reads an input image, applies steps, and stores the result.
struct Pass {
    void* out;
    int reader;                         // a ReadCode, or the code of a formula
    int statistics;                     // code of the formula for the first step's look-up table, or -1
    int begin, end;                     // the pass applies the steps from `begin` to before `end`
    int floats;                         // whether the pass stores an image of floats
    int stores_tensor;
    int x, dx, y, dy;                   // the pass's pixel (i, j) is read at (x + dx * i, y + dy * j)
    int width, height;
    int left, top, right, bottom;       // part of the input image that can be read; a step fills the rest
    int whole_width, whole_height;      // size of the input image
    int planes, unused;                 // whether the input image is planes of samples
    // Parameters of the reader: those of the input image come first, then those of the reader
    // itself.
    unsigned long long source[(LEAF_BYTES + MAX_PARAMS_BYTES) / 8];
    template <class Src> __device__ const Src& as() const { return *(const Src*)source; }
};

// Memory for look-up tables. The passes of a sample use it one after another.
struct Statistics {
    Histograms histograms;      // all counts are 0 before the pixels of a pass are counted
    float made[768];            // look-up table of the pass's first step
};

// All work for one sample.
struct Program {
    const Pass* passes;
    const Step* steps;
    Statistics* statistics;     // not read if no operator of the chain computes a table
    int count, unused;
};

static_assert(sizeof(Step) == 24 + MAX_PARAMS_BYTES, "steps are laid out differently on the host");
static_assert(sizeof(Statistics) == STATISTICS_BYTES, "histograms and tables are laid out differently on the host");
static_assert(sizeof(Pass) == 88 + LEAF_BYTES + MAX_PARAMS_BYTES, "passes are laid out differently on the host");

// In the following functions, `Leaf` is InterleavedRoi or PlanesRoi.

// Both passes of a resampling. `sum_across` computes the horizontal weighted sum for output column
// `x` of source row `y`. `sum_down` computes the vertical weighted sum of such results. Together
// they equal `Resample::at`.
template <class Leaf> __device__ Bytes sum_across(const Resample<Leaf>& resample, int x, int y) {
    const ResampleParams& p = resample.p;
    const int *bounds = p.table + p.h_bounds + 2 * (x - p.x), *taps = p.table + p.h_coefs + p.h_taps * (x - p.x);
    typename Resample<Leaf>::Sums sums = {1 << 21, 1 << 21, 1 << 21};
    for (int i = 0; i < bounds[1]; i++) sums.add(taps[i], resample.src.at(bounds[0] + i, y));
    return sums.rounded();
}
template <class Leaf> __device__ Bytes sum_down(const Resample<Leaf>& resample, int x, int y) {
    const ResampleParams& p = resample.p;
    const int *bounds = p.table + p.v_bounds + 2 * (y - p.y), *taps = p.table + p.v_coefs + p.v_taps * (y - p.y);
    typename Resample<Leaf>::Sums sums = {1 << 21, 1 << 21, 1 << 21};
    for (int i = 0; i < bounds[1]; i++) sums.add(taps[i], resample.src.at(x, bounds[0] + i));
    return sums.rounded();
}

// Returns a pixel of a stencil's result. The parameters in `pass` are those of the input image,
// followed by those of the stencil. Pixels at the border are not changed.
template <class Leaf, class Formula, class Params> __device__ Bytes stencil_at(const Pass& pass, int x, int y) {
    struct Image {
        Leaf src;
        Params p;
    };
    const Image& image = pass.as<Image>();
    if (x == 0 || y == 0 || x + 1 >= pass.whole_width || y + 1 >= pass.whole_height) return image.src.at(x, y);
    Bytes around[9];
    for (int i = 0; i < 9; i++) around[i] = image.src.at(x + i % 3 - 1, y + i / 3 - 1);
    return Formula::of(image.p, around);
}
