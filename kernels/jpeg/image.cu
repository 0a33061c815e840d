// Decoder of sequential Huffman-coded JPEGs: what the host describes of an image, problems, and phases. All kernels of
// this folder work on several images of any size in one launch: blockIdx.z is the image, and blocks beyond an image's
// end do nothing. The host prepends JPEG_BYTES, and launches the kernels one after another in one stream:
//   jpeg_begin      counts the bytes to remove from the coded data, and zeroes coefficients (clean.cu);
//   jpeg_clean      removes byte stuffing and restart markers (clean.cu);
//   with a row index:
//   jpeg_rows       decodes rows of MCUs, one or two per thread (rows.cu);
//   without an index:
//   jpeg_sync       finds a state of the decoder for each subsequence of the data (sync.cu);
//   jpeg_join       makes these states consistent, and counts blocks (join.cu);
//   jpeg_write      decodes the subsequences, one thread each (write.cu);
//   in both cases:
//   jpeg_dc         sums the differences of DC coefficients (dc.cu);
//   jpeg_transform  dequantizes and transforms blocks to samples (transform.cu);
//   jpeg_index      makes a row index, if there is none and the host wants one (index.cu).
// The results are planes of samples, which the fused kernel reads. The names and numbers in comments that begin with T.81
// refer to the JPEG standard (ITU T.81).
#ifdef __CUDACC__
#define EACH_THREAD if (const int thread = threadIdx.x; true)
#define BARRIER __syncthreads()
#define SHARED __shared__
#define NOT_UNROLLED _Pragma("unroll 1")
#define UNROLLED _Pragma("unroll")
#define UNROLLED_BY_4 _Pragma("unroll 4")
#define KEEP_LARGEST(place, value) atomicMax(place, value)
#define JPEG_LAUNCH(kernel)
#else
// On the host, a phase is a loop over the threads. All threads end a phase before the next begins,
// so a barrier does nothing.
#define __device__
#define __global__
struct Index3 {
    unsigned x, y, z;
};
static thread_local Index3 blockIdx, blockDim, gridDim;
#define __launch_bounds__(threads)
#define EACH_THREAD for (int thread = 0; thread < (int)blockDim.x; thread++)
#define BARRIER (void)0
#define SHARED static thread_local
#define NOT_UNROLLED
#define UNROLLED
#define UNROLLED_BY_4
#define KEEP_LARGEST(place, value) (*(place) = *(place) < (value) ? (value) : *(place))
// Launch of a kernel on the host: runs all blocks, one after another.
#define JPEG_LAUNCH(kernel)                                                                                         \
    extern "C" void kernel##__host(void** params, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, \
                                   unsigned bz) {                                                                   \
        gridDim = {gx, gy, gz};                                                                                     \
        blockDim = {bx * by * bz, 1, 1};                                                                            \
        for (unsigned block = 0; block < gx * gy * gz; block++) {                                                   \
            blockIdx = {block % gx, block / gx % gy, block / gx / gy};                                              \
            kernel(*(const Jpeg**)params[0], *(int*)params[1], 0, 0);                                               \
        }                                                                                                           \
    }
#endif

// Number of threads per block of all kernels of this folder, unless a kernel says otherwise.
#define THREADS 256

// Why an image must be decoded on the CPU. Of several problems, the one with the largest number is reported, because it
// may have caused the others. Same values as `DeviceProblem` in src/decode/jpeg/device/problem.rs.
enum Problem {
    PROBLEM_NONE,
    PROBLEM_RANGE,          // coefficients that no intact image has
    PROBLEM_COUNT,          // the data has more or fewer blocks than the image
    PROBLEM_CODE,           // bits that are no Huffman code, or a coefficient beyond the 64th
    PROBLEM_END,            // the data ends too early, or goes on after the last block
    PROBLEM_SYNC,           // decoding from a guessed state did not become right within the allowed rounds
    PROBLEM_INDEX,          // a row does not end where the row index says that the next row begins
    PROBLEM_MARKER,         // a marker inside the coded data
};

const int MOST_TABLES = 6;      // one DC and one AC table per component

// An image. A group of blocks that are coded together is an MCU (minimum coded unit, T.81, A.2). The part that is decoded
// covers whole MCUs: `columns` x `rows` from column `first_column` and row `first_row` on.
struct Jpeg {
    const unsigned char* data;      // coded data with byte stuffing and restart markers, aligned to 16 bytes
    unsigned char* clean;           // data without them; byte i is at i ^ 3, so that words have the first byte on top
    unsigned* counts;               // number of removed bytes of each chunk
    unsigned* offsets;              // position in `clean` of each piece of 16 bytes, and the length of `clean`; before jpeg_clean,
                                    // the bytes of each piece that stay
    const unsigned char* codes;     // for each table: 16 numbers of codes by length, then 256 symbols (T.81, B.2.4.2)
    const unsigned short* steps;    // 64 quantization steps of each component, in zigzag order
    const unsigned* starts;         // with an index: bit of `data` at which each row of the part begins, and the end of
                                    // the last row; without one: byte of `data` at which each restart interval begins
    const int* seeds;               // with an index: DC coefficients before each row of the part, 3 each; else null
    unsigned long long* states;     // without an index: state at the start of each subsequence, and at the end
    unsigned* firsts;               // without an index: number of blocks that begin before each subsequence
    unsigned* row_bits;             // bit of the clean data at which each row of the image begins; null if no index is made
    unsigned* made;                 // index that is made: for each row but the first, its bit of `data`, and 3 coefficients
    int* dc;                        // sums of DC differences per component, of the blocks of `dc_rows` rows
    short* coefficients;            // of the blocks of the part, in the order of the data; 64 per block, in zigzag order
    unsigned char* samples;         // planes
    unsigned* problem;              // Problem
    unsigned data_bytes;
    unsigned subsequence_bits;      // a multiple of 32
    int subsequences;
    int interval;                   // MCUs per restart interval, or 0 without restart markers
    int intervals;                  // number of restart intervals; 1 without restart markers
    int across, down;               // size of the image in MCUs
    int first_column, first_row, columns, rows;
    int dc_first, dc_rows;          // rows of MCUs whose DC coefficients are kept
    int across_blocks, down_blocks; // luma blocks per MCU; there is one block of each other component
    int components;                 // 1 or 3
    int tables;                     // number of `codes`
    unsigned dc_tables, ac_tables;  // table of component c in the bits from 4 c on
    int luma_side, chroma_side;     // samples along a side of a transformed block: 8, or 4, 2 or 1 in a reduced image
    int luma_pitch, chroma_pitch;   // bytes per row of a plane
    int blue, red;                  // positions of the chroma planes in `samples`
    int unused;

    __device__ int luma_blocks() const { return across_blocks * down_blocks; }
    // Number of blocks of an MCU.
    __device__ int unit() const { return luma_blocks() + components - 1; }
    // Component of block `block` of an MCU.
    __device__ int component(int block) const { return block < luma_blocks() ? 0 : block - luma_blocks() + 1; }
    // Number of blocks after which the tables of the blocks repeat. If all components have the same tables, the data does
    // not show where an MCU begins, and a decoder that begins anywhere need not know it.
    __device__ int period() const {
        const unsigned all = components == 1 ? 0xf : 0xfff, each = components == 1 ? 1 : 0x111;
        const bool is_same = ((dc_tables ^ (dc_tables & 15) * each) & all) == 0 &&
                             ((ac_tables ^ (ac_tables & 15) * each) & all) == 0;
        return is_same ? 1 : unit();
    }
    __device__ int all_blocks() const { return across * down * unit(); }
    __device__ unsigned pieces() const { return (data_bytes + 15) / 16; }
    __device__ void report(Problem what) const {
        if (what) KEEP_LARGEST(problem, (unsigned)what);
    }
};

static_assert(sizeof(Jpeg) == JPEG_BYTES, "an image is described differently on the host");

__device__ inline int smaller(int a, int b) { return a < b ? a : b; }
__device__ inline int larger(int a, int b) { return a < b ? b : a; }

// Replaces each of the THREADS values by the sum of those before it, and returns the sum of all. All threads of the block
// call it, between two barriers; the caller must have written `values` and needs no barrier afterwards.
__device__ inline unsigned sum_before(unsigned* values) {
#ifdef __CUDACC__
    SHARED unsigned warps[THREADS / 32];
    BARRIER;
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = values[threadIdx.x];
    unsigned sum = own;
    UNROLLED for (int step = 1; step < 32; step *= 2) {
        const unsigned other = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += other;
    }
    if (lane == 31) warps[warp] = sum;
    BARRIER;
    unsigned before = 0, all = 0;
    UNROLLED for (unsigned it = 0; it < THREADS / 32; it++) {
        before += it < warp ? warps[it] : 0;
        all += warps[it];
    }
    values[threadIdx.x] = before + sum - own;
    BARRIER;
    return all;
#else
    unsigned all = 0;
    for (int at = 0; at < THREADS; at++) {
        const unsigned own = values[at];
        values[at] = all;
        all += own;
    }
    return all;
#endif
}
