// Program kernel: whatever follows the fused part of a chain, one block per sample. Passes make image after image, in scratch memory
// small enough to stay in the L2 cache, and at last the tensor. All that a sample does is data, so samples of one launch may differ in
// every step. Twin of src/transform/, written by src/op/program/.
//
// The host prepends `Out`, `Order`, FLOATS (whether the tensor is made of floats), steps.cu, and these functions over the chain's
// formulas: `read_formula`, `change`, and `entry`, an entry of a table that is made from histograms.
#ifdef __CUDACC__
#define EACH_THREAD if (const int thread = threadIdx.x; true)
#define BARRIER __syncthreads()
#define SHARED __shared__
#define COUNT(bin) atomicAdd(&(bin), 1u)
#else
// On the host a phase is a loop over the threads, so a barrier does nothing.
#define EACH_THREAD for (int thread = 0; thread < (int)blockDim.x; thread++)
#define BARRIER (void)0
#define SHARED static thread_local
#define COUNT(bin) ++(bin)
#endif

// Value that is read at (x, y).
static __device__ inline void read(const Pass& pass, int x, int y, Value& value) {
    if (x < pass.left || y < pass.top || x >= pass.right || y >= pass.bottom) return;
    if (pass.reader == READ_BYTES) {
        value.bytes = pass.as<Roi>().at(x, y);
    } else if (pass.reader == READ_FLOATS) {
        value.floats = pass.as<Floats>().at(x, y);
    } else {
        read_formula(pass, x, y, value);
    }
}

// Does a step to the pixel at (x, y) of its image. `made` is the table from the histograms.
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

// Makes the table of the first step from the histograms of the source.
static __device__ inline void make_table(const Pass& pass, const Step& step, Histograms& histograms, float* made) {
    EACH_THREAD for (int i = thread; i < 1024; i += blockDim.x) {
        if (i < 768) histograms.channel[i / 256][i % 256] = 0;
        else histograms.gray[i - 768] = 0;
    }
    BARRIER;
    EACH_THREAD {
        const int columns = pass.right - pass.left, pixels = columns * (pass.bottom - pass.top);
        for (int i = thread; i < pixels; i += blockDim.x) {
            const Bytes pixel = pass.as<Roi>().at(pass.left + i % columns, pass.top + i / columns);
            COUNT(histograms.channel[0][pixel.r]);
            COUNT(histograms.channel[1][pixel.g]);
            COUNT(histograms.channel[2][pixel.b]);
            COUNT(histograms.gray[luma(pixel)]);
        }
    }
    BARRIER;
    EACH_THREAD for (int i = thread; i < 768; i += blockDim.x) made[i] = entry(pass.statistics, step, histograms, i / 256, i % 256);
    BARRIER;
}

static __device__ inline void program_of_block(const Program* programs, int count) {
    SHARED Histograms histograms;
    SHARED float made[768];
    if ((int)blockIdx.x >= count) return;
    const Program& program = programs[blockIdx.x];
    for (int number = 0; number < program.count; number++) {
        const Pass& pass = program.passes[number];
        if (pass.statistics >= 0) make_table(pass, program.steps[pass.begin], histograms, made);
        EACH_THREAD for (int at = thread; at < pass.width * pass.height; at += blockDim.x) {
            const int i = at % pass.width, j = at / pass.width;
            Value value = {{0, 0, 0}, {0.0f, 0.0f, 0.0f}};
            read(pass, pass.x + pass.dx * i, pass.y + pass.dy * j, value);
            for (int k = pass.begin; k < pass.end; k++) {
                const Step& step = program.steps[k];
                take(step, step.x + step.dx * i, step.y + step.dy * j, made, value);
            }
            store(pass, i, j, value);
        }
        BARRIER;
    }
}

#ifdef __CUDACC__
// The passes have the sizes of their outputs. The last parameters are those of every kernel.
extern "C" __global__ void __launch_bounds__(512) program(const Program* programs, int count, int, int) {
    program_of_block(programs, count);
}
#else
// Launch on the host: runs every block, and within it every phase, one after another.
extern "C" void program__host(void** params, unsigned gx, unsigned, unsigned, unsigned bx, unsigned, unsigned) {
    gridDim = {gx, 1, 1};
    blockDim = {bx, 1, 1};
    threadIdx = {0, 0, 0};
    for (unsigned block = 0; block < gx; block++) {
        blockIdx = {block, 0, 0};
        program_of_block(*(const Program**)params[0], *(int*)params[1]);
    }
}
#endif
