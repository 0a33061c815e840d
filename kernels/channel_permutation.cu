// Exchanges channels. Same results as src/op/colour/channel_permutation.rs.
struct ChannelPermutationParams {
    unsigned order[3];          // input channel of each output channel
    unsigned padding;
};

struct ChannelPermutation {
    static __device__ unsigned char channel(unsigned number, Bytes pixel) {
        return number == 0 ? pixel.r : number == 1 ? pixel.g : pixel.b;
    }
    static __device__ Bytes of(const ChannelPermutationParams& p, Bytes pixel) {
        const Bytes out = {channel(p.order[0], pixel), channel(p.order[1], pixel), channel(p.order[2], pixel)};
        return out;
    }
};
