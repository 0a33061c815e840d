// Masks: one thread per pixel of the result, blocks of 32 x 8 pixels, one grid layer per mask. A thread follows its
// pixel back to the stored mask and writes the number there, or the elements of all classes. Same results as
// src/transform/masks.rs. The host prepends MASK_BYTES and STEP_BYTES.

// Step from the pixels of an image to those of an earlier image, `warp` has nearest interpolation. A column or row of -1
// shows no pixel.
struct Step {
    const int *columns, *rows;      // origins of all columns and rows, or null for a warp
    int transposed;                 // whether columns of the result are rows of the earlier image
    int unused;
    WarpParams warp;                // the table of WARP_DISPLACED has pairs of whole pixels as `short`
};

// ELEMENT_U16 stands for all elements of two bytes in one-hot masks.
enum Element { ELEMENT_U8, ELEMENT_U16, ELEMENT_I64, ELEMENT_F32 };

struct Mask {
    const unsigned char* values;    // stored numbers, row by row
    const Step* steps;
    unsigned long long fill;        // for pixels that show no number: bits of an element, or a number that is no class
    int count;                      // number of steps
    int stored, element;            // Element of `values` and of the result
    int columns;                    // width of the stored mask
    int width, height;              // size of the result
    int classes;                    // number of classes of a one-hot mask, or 0 for one number per pixel
    int interleaved;                // whether the classes of a pixel are adjacent; otherwise each class is a plane
    unsigned one;                   // bits of the element 1 of a one-hot mask
    unsigned unused;
};

struct Sample {
    unsigned char* out;
    const Mask* mask;
};

static_assert(sizeof(Step) == STEP_BYTES && sizeof(Mask) == MASK_BYTES, "masks are laid out differently on the host");

struct NoImage {
    typedef Bytes Pixel;
};

// Replaces a pixel by its origin. Returns false if the pixel shows nothing.
__device__ inline bool follow(const Step& step, int& x, int& y) {
    if (step.columns) {
        const int column = step.columns[x], row = step.rows[y];
        x = step.transposed ? row : column;
        y = step.transposed ? column : row;
        return column >= 0 && row >= 0;
    }
    const Warp<NoImage> warp = {NoImage(), step.warp};
    if (warp.p.kind == WARP_DISPLACED) {
        const int* of = warp.p.data.integer;
        const long long pair = 2 * ((long long)(y - of[1]) * of[2] + (x - of[0]));
        const short* by = (const short*)warp.p.data.table[8] + pair;
        x += by[0];
        y += by[1];
        return warp.inside(x, y);
    }
    if (warp.p.kind == WARP_WHOLE || warp.p.kind == WARP_FIXED) {
        const int column = warp.whole(0, x, y), row = warp.whole(3, x, y);
        x = column;
        y = row;
        return warp.inside(x, y);
    }
    double column, row;
    warp.position(x, y, column, row);
    // False for positions that are not numbers.
    if (!(column >= 0.0 && row >= 0.0 && column < warp.p.width && row < warp.p.height)) return false;
    x = (int)column;
    y = (int)row;
    return true;
}

__device__ inline unsigned number_at(const Mask& mask, long long place) {
    return mask.stored == ELEMENT_U8 ? mask.values[place] : ((const unsigned short*)mask.values)[place];
}

// Writes the elements of all classes of a pixel. All are 0 if `number` is no class.
template <class T> __device__ inline void write_classes(const Mask& mask, void* out, long long pixel, unsigned number) {
    const long long pixels = (long long)mask.width * mask.height, step = mask.interleaved ? 1 : pixels;
    T* at = (T*)out + (mask.interleaved ? pixel * mask.classes : pixel);
    for (unsigned of = 0; of < (unsigned)mask.classes; of++, at += step) *at = of == number ? (T)mask.one : (T)0;
}

extern "C" __global__ void mask(const Sample* masks, int count, int, int) {
    if ((int)blockIdx.z >= count) return;
    const Sample& sample = masks[blockIdx.z];
    const Mask& mask = *sample.mask;
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= mask.width || row >= mask.height) return;
    int x = column, y = row;
    bool shown = true;
    for (int at = 0; shown && at < mask.count; at++) shown = follow(mask.steps[at], x, y);
    const long long place = (long long)row * mask.width + column, from = (long long)y * mask.columns + x;
    if (mask.classes) {
        const unsigned number = shown ? number_at(mask, from) : (unsigned)mask.fill;
        if (mask.element == ELEMENT_U8) write_classes<unsigned char>(mask, sample.out, place, number);
        else if (mask.element == ELEMENT_U16) write_classes<unsigned short>(mask, sample.out, place, number);
        else write_classes<unsigned>(mask, sample.out, place, number);
        return;
    }
    // Finished masks, and unfinished ones of u8, are stored with the elements of the result.
    const bool same_type = mask.stored == mask.element;
    const unsigned value = shown && !same_type ? number_at(mask, from) : 0;
    if (mask.element == ELEMENT_U8)
        sample.out[place] = shown ? mask.values[from] : (unsigned char)mask.fill;
    else if (mask.element == ELEMENT_I64) {
        long long number = (long long)mask.fill;
        if (shown) number = same_type ? ((const long long*)mask.values)[from] : (long long)value;
        ((long long*)sample.out)[place] = number;
    } else {
        union {
            unsigned bits;
            float number;
        } both;
        both.bits = (unsigned)mask.fill;
        if (shown) both.number = same_type ? ((const float*)mask.values)[from] : (float)value;
        ((float*)sample.out)[place] = both.number;
    }
}

HOST_LAUNCH(mask)
