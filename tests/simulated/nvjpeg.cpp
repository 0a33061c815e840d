// A simulated nvJPEG: the decoupled phases of one picture, over the simulated driver's streams.
//
// Pixels come from the decoder that the test sets, or from a pattern. They travel as nvJPEG's data do: the host's
// phase leaves them in the page-locked buffer, the transfer copies that to the device buffer when its stream gets
// there, and the device's phase writes the destination. So touching a buffer too early shows as a wrong picture.
//
// Known faults of the real library that it has too: a state whose picture failed gives the pixels of the picture
// before; versions before 13.2 get the outermost pixels of a window wrong. What is destroyed while the device still
// uses it is counted as a fault.
#define SIM_NVJPEG
#include "simulated.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace {

enum { SUCCESS = 0, INVALID_PARAMETER = 2, BAD_JPEG = 3, NOT_SUPPORTED = 4, ALLOCATOR_FAILURE = 5, EXECUTION_FAILED = 6,
       INCOMPLETE = 10 };

// Decodes the window of a file as RGB rows without padding; gives a status.
typedef int (*Decode)(const uint8_t* bytes, size_t count, int x, int y, int width, int height, uint8_t* rgb);

struct Allocator {
    int (*allocate)(void*, void**, size_t, void* stream);
    int (*release)(void*, void*, size_t, void* stream);
    void* context;
};

struct Handle { Allocator device, pinned; unsigned flags; };
struct Decoder { int backend; };
struct Params { int format, x, y, width, height; };

// What operations in a stream use: the count is above one while they are there.
typedef std::shared_ptr<int> InUse;

struct Buffer {
    Allocator allocator;
    InUse in_use = std::make_shared<int>(0);
    void* data = nullptr;
    size_t bytes = 0;

    int grow(size_t wanted, void* stream) {
        if (wanted <= bytes) return SUCCESS;
        if (data && allocator.release(allocator.context, data, bytes, stream)) return ALLOCATOR_FAILURE;
        data = nullptr;
        bytes = 0;
        if (allocator.allocate(allocator.context, &data, wanted, stream)) return ALLOCATOR_FAILURE;
        bytes = wanted;
        return SUCCESS;
    }

    ~Buffer() {
        if (data) allocator.release(allocator.context, data, bytes, nullptr);
    }
};

struct Stream { std::vector<uint8_t> copy; int width = 0, height = 0; };

struct State {
    InUse in_use = std::make_shared<int>(0);
    Buffer *pinned = nullptr, *device = nullptr;
    int width = 0, height = 0;                     // of the decoded window
    bool decoded = false, transferred = false, tainted = false;
};

int version[3] = {13, 3, 2};
Decode decode = nullptr;
bool scratch = false;

// A picture that depends on the file's bytes and on the position.
int pattern(const uint8_t* bytes, size_t count, int x0, int y0, int width, int height, uint8_t* rgb) {
    unsigned sum = 0;
    for (size_t i = 0; i < count; i++) sum = sum * 31 + bytes[i];
    for (int y = y0; y < y0 + height; y++)
        for (int x = x0; x < x0 + width; x++)
            for (int c = 0; c < 3; c++) *rgb++ = (uint8_t)(sum + 7 * x + 13 * y + 101 * c);
    return SUCCESS;
}

// Markers up to the frame header: width and height.
int parse(const uint8_t* bytes, size_t count, Stream* stream) {
    if (count < 4 || bytes[0] != 0xFF || bytes[1] != 0xD8) return BAD_JPEG;
    size_t at = 2;
    while (at + 4 <= count) {
        if (bytes[at] != 0xFF) return BAD_JPEG;
        int marker = bytes[at + 1];
        size_t length = bytes[at + 2] * 256 + bytes[at + 3];
        bool frame = marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
        if (frame) {
            if (at + 9 > count) return INCOMPLETE;
            if (marker > 0xC2 || bytes[at + 4] != 8) return NOT_SUPPORTED;
            stream->height = bytes[at + 5] * 256 + bytes[at + 6];
            stream->width = bytes[at + 7] * 256 + bytes[at + 8];
            return stream->width && stream->height ? SUCCESS : BAD_JPEG;
        }
        at += 2 + length;
    }
    return INCOMPLETE;
}

void taint_edges(uint8_t* rgb, const Params& p, int width, int height) {
    for (int y = 0; y < p.height; y++)
        for (int x = 0; x < p.width; x++) {
            bool inner_edge = (x == 0 && p.x > 0) || (y == 0 && p.y > 0) ||
                              (x == p.width - 1 && p.x + p.width < width) ||
                              (y == p.height - 1 && p.y + p.height < height);
            if (inner_edge) rgb[3 * (y * p.width + x)] ^= 0x80;
        }
}

template <class T> int create(T** out, T* made) { *out = made; sim_objects(1); return SUCCESS; }
template <class T> int destroy(T* it) { if (!it) return INVALID_PARAMETER; delete it; sim_objects(-1); return SUCCESS; }
template <class T> int destroy_used(T* it) {
    if (it && it->in_use.use_count() > 1) sim_destroyed_in_use();
    return destroy(it);
}

}  // namespace

#define ENTER(name) if (sim_enter(name)) return EXECUTION_FAILED;

API void sim_nvjpeg_set_version(int major, int minor, int patch) {
    version[0] = major, version[1] = minor, version[2] = patch;
}
API void sim_nvjpeg_set_scratch(int wanted) { scratch = wanted; }
API void sim_nvjpeg_set_decoder(Decode wanted) { decode = wanted; }

API int nvjpegGetProperty(unsigned property, int* value) {
    if (property > 2) return INVALID_PARAMETER;
    *value = version[property];
    return SUCCESS;
}

API int nvjpegCreateExV2(int backend, Allocator* device, Allocator* pinned, unsigned flags, Handle** out) {
    ENTER("nvjpegCreateExV2")
    // HYBRID with interpolated chroma is what this crate asks for; anything else is a mistake.
    if (backend != 1 || flags != 32 || !device || !pinned) return INVALID_PARAMETER;
    // The allocators are declared malloc, free, context: as in nvjpeg.h.
    return create(out, new Handle{*device, *pinned, flags});
}
API int nvjpegDestroy(Handle* it) { sim_enter("nvjpegDestroy"); return destroy(it); }

API int nvjpegDecoderCreate(Handle* handle, int backend, Decoder** out) {
    ENTER("nvjpegDecoderCreate")
    if (!handle || backend != 1) return INVALID_PARAMETER;
    return create(out, new Decoder{backend});
}
API int nvjpegDecoderDestroy(Decoder* it) { sim_enter("nvjpegDecoderDestroy"); return destroy(it); }

API int nvjpegDecoderStateCreate(Handle* handle, Decoder* decoder, State** out) {
    ENTER("nvjpegDecoderStateCreate")
    if (!handle || !decoder) return INVALID_PARAMETER;
    return create(out, new State());
}
API int nvjpegJpegStateDestroy(State* it) { sim_enter("nvjpegJpegStateDestroy"); return destroy_used(it); }

API int nvjpegJpegStreamCreate(Handle* handle, Stream** out) {
    ENTER("nvjpegJpegStreamCreate")
    return handle ? create(out, new Stream()) : INVALID_PARAMETER;
}
API int nvjpegJpegStreamDestroy(Stream* it) { sim_enter("nvjpegJpegStreamDestroy"); return destroy(it); }

API int nvjpegJpegStreamParse(Handle*, const uint8_t* bytes, size_t count, int, int save_stream, Stream* stream) {
    ENTER("nvjpegJpegStreamParse")
    if (!save_stream) return INVALID_PARAMETER;      // the caller's bytes would have to stay: this crate copies
    stream->copy.assign(bytes, bytes + count);
    stream->width = stream->height = 0;
    return parse(bytes, count, stream);
}

API int nvjpegJpegStreamGetFrameDimensions(Stream* stream, unsigned* width, unsigned* height) {
    ENTER("nvjpegJpegStreamGetFrameDimensions")
    *width = stream->width;
    *height = stream->height;
    return SUCCESS;
}

API int nvjpegBufferPinnedCreateV2(Handle* handle, Allocator* allocator, Buffer** out) {
    ENTER("nvjpegBufferPinnedCreateV2")
    if (!handle) return INVALID_PARAMETER;
    return create(out, new Buffer{*allocator});
}
API int nvjpegBufferPinnedResize(Buffer* buffer, size_t bytes, void* stream) {
    ENTER("nvjpegBufferPinnedResize")
    return buffer->grow(bytes, stream);
}
API int nvjpegBufferPinnedDestroy(Buffer* it) { sim_enter("nvjpegBufferPinnedDestroy"); return destroy_used(it); }

API int nvjpegBufferDeviceCreateV2(Handle* handle, Allocator* allocator, Buffer** out) {
    ENTER("nvjpegBufferDeviceCreateV2")
    if (!handle) return INVALID_PARAMETER;
    return create(out, new Buffer{*allocator});
}
API int nvjpegBufferDeviceResize(Buffer* buffer, size_t bytes, void* stream) {
    ENTER("nvjpegBufferDeviceResize")
    return buffer->grow(bytes, stream);
}
API int nvjpegBufferDeviceDestroy(Buffer* it) { sim_enter("nvjpegBufferDeviceDestroy"); return destroy_used(it); }

API int nvjpegStateAttachPinnedBuffer(State* state, Buffer* buffer) {
    ENTER("nvjpegStateAttachPinnedBuffer")
    state->pinned = buffer;
    return SUCCESS;
}
API int nvjpegStateAttachDeviceBuffer(State* state, Buffer* buffer) {
    ENTER("nvjpegStateAttachDeviceBuffer")
    state->device = buffer;
    return SUCCESS;
}

API int nvjpegDecodeParamsCreate(Handle* handle, Params** out) {
    ENTER("nvjpegDecodeParamsCreate")
    return handle ? create(out, new Params{0, 0, 0, -1, -1}) : INVALID_PARAMETER;
}
API int nvjpegDecodeParamsDestroy(Params* it) { sim_enter("nvjpegDecodeParamsDestroy"); return destroy(it); }
API int nvjpegDecodeParamsSetOutputFormat(Params* params, int format) {
    ENTER("nvjpegDecodeParamsSetOutputFormat")
    params->format = format;
    return SUCCESS;
}
API int nvjpegDecodeParamsSetROI(Params* params, int x, int y, int width, int height) {
    ENTER("nvjpegDecodeParamsSetROI")
    params->x = x, params->y = y, params->width = width, params->height = height;
    return SUCCESS;
}

API int nvjpegDecodeJpegHost(Handle*, Decoder*, State* state, Params* params, Stream* stream) {
    state->decoded = state->transferred = false;
    bool tainted = state->tainted;
    state->tainted = true;
    ENTER("nvjpegDecodeJpegHost")
    const Params& p = *params;
    if (p.format != 5 || !state->pinned || stream->copy.empty()) return INVALID_PARAMETER;
    if (p.x < 0 || p.y < 0 || p.width < 1 || p.height < 1 || p.x + p.width > stream->width ||
        p.y + p.height > stream->height) return INVALID_PARAMETER;
    // Coefficients of the whole picture, 16 bits each.
    if (int code = state->pinned->grow(size_t(6) * stream->width * stream->height, nullptr)) return code;
    std::vector<uint8_t> rgb(size_t(3) * p.width * p.height);
    Decode decoder = decode ? decode : pattern;
    if (int code = decoder(stream->copy.data(), stream->copy.size(), p.x, p.y, p.width, p.height, rgb.data())) return code;
    if (version[0] < 13 || (version[0] == 13 && version[1] < 2)) taint_edges(rgb.data(), p, stream->width, stream->height);
    // A state that has failed before gives what is in the buffer: the picture before.
    if (!tainted) memcpy(state->pinned->data, rgb.data(), rgb.size());
    state->width = p.width;
    state->height = p.height;
    state->decoded = true;
    state->tainted = tainted;
    return SUCCESS;
}

struct Copy { void* target; const void* source; size_t row_bytes, rows, pitch; InUse state, buffer, other; };

static int enqueue(void* stream, Copy copy) {
    return sim_enqueue(stream, [](void* data) {
        std::unique_ptr<Copy> it((Copy*)data);
        for (size_t y = 0; y < it->rows; y++)
            memcpy((char*)it->target + y * it->pitch, (const char*)it->source + y * it->row_bytes, it->row_bytes);
    }, new Copy(copy));
}

API int nvjpegDecodeJpegTransferToDevice(Handle*, Decoder*, State* state, Stream*, void* stream) {
    bool was_tainted = state->tainted;
    state->tainted = true;
    ENTER("nvjpegDecodeJpegTransferToDevice")
    if (!state->decoded || !state->device) return INVALID_PARAMETER;
    size_t bytes = size_t(3) * state->width * state->height;
    if (int code = state->device->grow(bytes, stream)) return code;
    Copy copy = {state->device->data, state->pinned->data, bytes, 1, bytes,
                 state->in_use, state->pinned->in_use, state->device->in_use};
    if (enqueue(stream, copy)) return EXECUTION_FAILED;
    state->transferred = true;
    state->tainted = was_tainted;
    return SUCCESS;
}

API int nvjpegDecodeJpegDevice(Handle* handle, Decoder*, State* state, uint8_t** image, void* stream) {
    bool was_tainted = state->tainted;
    state->tainted = true;
    ENTER("nvjpegDecodeJpegDevice")
    if (!state->transferred) return INVALID_PARAMETER;
    // nvjpegImage_t: four pointers, then four pitches.
    size_t pitch = ((size_t*)image)[4], row_bytes = size_t(3) * state->width;
    if (pitch < row_bytes) return INVALID_PARAMETER;
    size_t rows = state->height;
    Copy copy = {image[0], state->device->data, row_bytes, rows, pitch, state->in_use, state->device->in_use, {}};
    if (scratch) {
        Buffer between{handle->device};
        if (int code = between.grow(row_bytes * rows, stream)) return code;
        copy.target = between.data;
        copy.pitch = row_bytes;
        if (enqueue(stream, copy)) return EXECUTION_FAILED;
        copy = {image[0], between.data, row_bytes, rows, pitch, state->in_use, {}, {}};
        if (enqueue(stream, copy)) return EXECUTION_FAILED;
        Allocator& allocator = between.allocator;
        if (allocator.release(allocator.context, between.data, between.bytes, stream)) return ALLOCATOR_FAILURE;
        between.data = nullptr;
    } else if (enqueue(stream, copy)) {
        return EXECUTION_FAILED;
    }
    state->decoded = state->transferred = false;
    state->tainted = was_tainted;
    return SUCCESS;
}
