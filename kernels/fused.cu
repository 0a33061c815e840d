// Fused kernel: one thread per output pixel, blocks of 32 x 8 pixels, one grid layer per sample.
// The arguments `width` and `height` of the kernel are the size of the largest output. The host
// prepends SAMPLE_BYTES and three types: `Pixels` (the image after all operators of the chain),
// `Out` (element type of the tensor) and `Order` (its memory order).
struct Sample {
    Out::type* out;
    int width, height;          // size of the output
    Pixels pixels;
};

static_assert(sizeof(Sample) == SAMPLE_BYTES, "a sample's parameters are laid out differently on the host");

extern "C" __global__ void fused(const Sample* samples, int count, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height || (int)blockIdx.z >= count) return;
    const Sample& sample = samples[blockIdx.z];
    if (x >= sample.width || y >= sample.height) return;
    Order::store<Out>(sample.out, x, y, sample.width, sample.height, sample.pixels.at(x, y));
}

HOST_LAUNCH(fused)
