// Program kernel: executes the part of a chain after the fused part. Each pass computes an image in
// scratch memory, which is small enough to stay in the L2 cache. The last pass computes the tensor.
// All work of a sample is described by data, so samples of one launch may differ in every step.
// Same results as src/transform/. src/op/program/ writes the data.
//
// One launch executes the passes that have the same number in all samples, with several blocks for
// each sample. The next pass needs another launch, because it reads what other blocks have stored.
// Blocks beyond a sample's image or after its last pass do nothing. A pass with a table from
// histograms needs two more launches, before its own.
//
// The host prepends `Out`, `Order`, FLOATS (1 if the elements of the tensor are floats, else 0),
// TILE_PIXELS, COUNTED_PIXELS, steps.cu, and three functions: `read_formula`, `change` and `entry`.
// Each of them calls the formula that has a given code (steps.cu). `entry` computes an entry of a
// table from histograms.
#ifdef __CUDACC__
#define EACH_THREAD if (const int thread = threadIdx.x; true)
#define BARRIER __syncthreads()
#define SHARED __shared__
#define COUNT(bin, pixels) atomicAdd(&(bin), pixels)
#else
// On the host, a phase is a loop over the threads. All threads end a phase before the next begins,
// so a barrier does nothing.
#define EACH_THREAD for (int thread = 0; thread < (int)blockDim.x; thread++)
#define BARRIER (void)0
#define SHARED static thread_local
#define COUNT(bin, pixels) (bin) += (pixels)
#endif

// What a launch does for a pass: it counts pixels, computes a table, or computes the image. Same
// values as `Stage` in src/op/program/launches.rs.
enum Stage { STAGE_COUNT, STAGE_TABLE, STAGE_MAKE };

// Reads a pixel of bytes, or with a formula.
template <class Leaf> static __device__ inline void read_bytes(const Pass& pass, int x, int y, Value& value) {
    if (pass.reader == READ_BYTES) value.bytes = pass.as<Leaf>().at(x, y);
    else read_formula<Leaf>(pass, x, y, value);
}
// Not inlined, so that reading of interleaved pixels needs no more registers.
static NOT_INLINE __device__ Value read_planes(const Pass& pass, int x, int y, Value value) {
    read_bytes<PlanesRoi>(pass, x, y, value);
    return value;
}

// Reads the pixel at (x, y) of the image that the pass reads. `planes` is `pass.planes`. If the
// position is outside the part that can be read, `value` stays unchanged, because a step of the pass
// fills it later.
static __device__ inline void read(const Pass& pass, bool planes, int x, int y, Value& value) {
    if (x < pass.left || y < pass.top || x >= pass.right || y >= pass.bottom) return;
    if (pass.reader == READ_FLOATS) value.floats = pass.as<Floats>().at(x, y);
    else if (planes) value = read_planes(pass, x, y, value);
    else read_bytes<InterleavedRoi>(pass, x, y, value);
}

// Applies a step to `value`, which is the pixel at (x, y) of the step's image. `made` is the
// look-up table that was computed from the histograms.
static __device__ inline void take(const Step& step, int x, int y, const float* made, Value& value) {
    const Bytes from = value.bytes;
    switch (step.code) {
    case STEP_TABLE: {
        const unsigned char* table = step.as<const unsigned char*>();
        value.bytes = {table[from.r], table[256 + from.g], table[512 + from.b]};
        break;
    }
    case STEP_FLOAT_TABLE: {
        const float* table = step.as<const float*>();
        value.floats = {table[from.r], table[256 + from.g], table[512 + from.b]};
        break;
    }
    case STEP_MADE: value.bytes = Bytes::of(made[from.r], made[256 + from.g], made[512 + from.b]); break;
    case STEP_FLOATS_MADE: value.floats = {made[from.r], made[256 + from.g], made[512 + from.b]}; break;
    case STEP_FILL:
    case STEP_FILL_FLOATS: {
        const FillParams& p = step.as<FillParams>();
        if (p.has(x, y)) break;
        if (step.code == STEP_FILL) value.bytes = Bytes::of(p.fill[0], p.fill[1], p.fill[2]);
        else value.floats = Floats3::of(p.fill[0], p.fill[1], p.fill[2]);
        break;
    }
    default: change(step, x, y, value);
    }
}

// Stores the pixel (i, j) of a pass.
static __device__ inline void store(const Pass& pass, int i, int j, const Value& value) {
    if (!pass.stores_tensor) {
        const long long at = 3 * ((long long)j * pass.width + i);
        if (pass.floats) {
            float* out = (float*)pass.out + at;
            out[0] = value.floats.r, out[1] = value.floats.g, out[2] = value.floats.b;
        } else {
            unsigned char* out = (unsigned char*)pass.out + at;
            out[0] = value.bytes.r, out[1] = value.bytes.g, out[2] = value.bytes.b;
        }
        return;
    }
#if FLOATS
    Order::store<Out>((Out::type*)pass.out, i, j, pass.width, pass.height, value.floats);
#else
    Order::store<Out>((Out::type*)pass.out, i, j, pass.width, pass.height, value.bytes);
#endif
}

// First pixel of this block's tile, and the end of the tile. Both are 0 if the block lies beyond
// the image.
struct Tile {
    int first, end;
    static __device__ Tile of(int pixels, int each) {
        const long long first = (long long)blockIdx.x * each;
        const Tile none = {0, 0}, tile = {(int)first, (int)(first + each < pixels ? first + each : pixels)};
        return first < pixels ? tile : none;
    }
};

// Counts the levels of the pixels of a tile.
template <class Leaf>
static __device__ inline void count_tile(const Pass& pass, const Tile& tile, int columns, Histograms& part) {
    EACH_THREAD for (int i = tile.first + thread; i < tile.end; i += blockDim.x) {
        const Bytes pixel = pass.as<Leaf>().at(pass.left + i % columns, pass.top + i / columns);
        COUNT(part.channel[0][pixel.r], 1u);
        COUNT(part.channel[1][pixel.g], 1u);
        COUNT(part.channel[2][pixel.b], 1u);
        COUNT(part.gray[luma(pixel)], 1u);
    }
}
static NOT_INLINE __device__ void count_planes(const Pass& pass, Tile tile, int columns, Histograms& part) {
    count_tile<PlanesRoi>(pass, tile, columns, part);
}

// Counts the levels of the pixels that belong to this block, in the image that the pass reads. Then
// adds the counts to the sample's histograms.
static __device__ inline void count_pixels(const Pass& pass, Histograms& part, Histograms& sample) {
    const int columns = pass.right - pass.left;
    const Tile tile = Tile::of(columns * (pass.bottom - pass.top), COUNTED_PIXELS);
    if (tile.first == tile.end) return;
    EACH_THREAD for (int i = thread; i < HISTOGRAM_BINS; i += blockDim.x) part.bin(i) = 0;
    BARRIER;
    if (pass.planes) count_planes(pass, tile, columns, part);
    else count_tile<InterleavedRoi>(pass, tile, columns, part);
    BARRIER;
    EACH_THREAD for (int i = thread; i < HISTOGRAM_BINS; i += blockDim.x)
        if (part.bin(i) > 0) COUNT(sample.bin(i), part.bin(i));
}

// Computes one channel of the look-up table that the pass's first step uses. The number of the
// block is that of the channel.
static __device__ inline void make_table(const Pass& pass, const Step& step, Histograms& copy, Statistics& sample) {
    const int channel = blockIdx.x;
    EACH_THREAD for (int i = thread; i < HISTOGRAM_BINS; i += blockDim.x) copy.bin(i) = sample.histograms.bin(i);
    BARRIER;
    EACH_THREAD for (int i = thread; i < 256; i += blockDim.x)
        sample.made[256 * channel + i] = entry(pass.statistics, step, copy, channel, i);
}

// Computes this block's tile of the pass's image.
static __device__ inline void make_tile(const Program& program, const Pass& pass) {
    const Tile tile = Tile::of(pass.width * pass.height, TILE_PIXELS);
    const bool planes = pass.planes;
    const float* made = pass.statistics >= 0 ? program.statistics->made : (const float*)0;
    EACH_THREAD for (int at = tile.first + thread; at < tile.end; at += blockDim.x) {
        const int i = at % pass.width, j = at / pass.width;
        Value value = {{0, 0, 0}, {0.0f, 0.0f, 0.0f}};
        read(pass, planes, pass.x + pass.dx * i, pass.y + pass.dy * j, value);
        for (int k = pass.begin; k < pass.end; k++) {
            const Step& step = program.steps[k];
            take(step, step.x + step.dx * i, step.y + step.dy * j, made, value);
        }
        store(pass, i, j, value);
    }
    // Clears the histograms. The next pass that needs a table counts into them. This pass no longer
    // needs them, because its table is already computed.
    if (pass.statistics < 0 || blockIdx.x > 0) return;
    EACH_THREAD for (int i = thread; i < HISTOGRAM_BINS; i += blockDim.x) program.statistics->histograms.bin(i) = 0;
}

// Executes pass `number` for this block's sample.
static __device__ inline void program_of_block(const Program* programs, int count, int number, int stage) {
    SHARED Histograms histograms;
    if ((int)blockIdx.z >= count) return;
    const Program& program = programs[blockIdx.z];
    if (number >= program.count) return;
    const Pass& pass = program.passes[number];
    if (stage == STAGE_MAKE) make_tile(program, pass);
    else if (pass.statistics < 0) return;
    else if (stage == STAGE_COUNT) count_pixels(pass, histograms, program.statistics->histograms);
    else make_table(pass, program.steps[pass.begin], histograms, *program.statistics);
}

#ifdef __CUDACC__
extern "C" __global__ void __launch_bounds__(256, 4) program(const Program* programs, int count, int number, int stage) {
    program_of_block(programs, count, number, stage);
}
#else
// Launch on the host: runs all blocks one after another, and in each block all phases.
extern "C" void program__host(void** params, unsigned gx, unsigned, unsigned gz, unsigned bx, unsigned, unsigned) {
    gridDim = {gx, 1, gz};
    blockDim = {bx, 1, 1};
    threadIdx = {0, 0, 0};
    for (unsigned block = 0; block < gx * gz; block++) {
        blockIdx = {block % gx, 0, block / gx};
        program_of_block(*(const Program**)params[0], *(int*)params[1], *(int*)params[2], *(int*)params[3]);
    }
}
#endif
