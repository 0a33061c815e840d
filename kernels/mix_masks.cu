// Batch operators on masks: blends and exchanges of pairs of masks in place, in the windows of the blends of their
// images. One thread per element of a row of both masks, blocks of 32 x 8 elements, one grid layer per pair. Same results
// as `blend_masks` in src/transform/blend_pair.rs. The host prepends PAIR_BYTES.
enum PairElement { PAIR_U8, PAIR_F16, PAIR_BF16, PAIR_F32, PAIR_I64 };

// A row of interleaved classes has width x classes elements. Otherwise each class is a plane.
struct Sample {
    void* masks[2];
    int element;                    // PairElement
    int width, height, planes;      // size of a plane in elements, and number of planes
    int count, unused;              // number of blends
    Blend blends[4];                // windows in elements
};

static_assert(sizeof(Sample) == PAIR_BYTES, "a pair's parameters are laid out differently on the host");

// Integers of 64 bits, which are only exchanged.
struct I64 {
    typedef unsigned long long type;
};
template <>
__device__ inline void blend_elements<I64>(unsigned long long* first, unsigned long long* second, float) {
    exchange_elements(first, second);
}

// Applies a blend to the elements at `place` in all planes.
template <class Out> __device__ inline void blend_planes(const Sample& pair, long long place, float weight) {
    typedef typename Out::type Type;
    const long long plane = (long long)pair.width * pair.height;
    for (int at = 0; at < pair.planes; at++, place += plane)
        blend_elements<Out>((Type*)pair.masks[0] + place, (Type*)pair.masks[1] + place, weight);
}

extern "C" __global__ void mix_masks(const Sample* pairs, int count, int, int) {
    if ((int)blockIdx.z >= count) return;
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    const Sample& pair = pairs[blockIdx.z];
    const long long place = (long long)y * pair.width + x;
    for (int at = 0; at < pair.count; at++) {
        const Blend& blend = pair.blends[at];
        if (x < blend.x || y < blend.y || x >= blend.right || y >= blend.bottom) continue;
        switch (pair.element) {
        case PAIR_U8: blend_planes<U8>(pair, place, blend.weight); break;
        case PAIR_F16: blend_planes<F16>(pair, place, blend.weight); break;
        case PAIR_BF16: blend_planes<BF16>(pair, place, blend.weight); break;
        case PAIR_F32: blend_planes<F32>(pair, place, blend.weight); break;
        default: blend_planes<I64>(pair, place, blend.weight);
        }
    }
}

HOST_LAUNCH(mix_masks)
