// A simulated nvJPEG on the streams of the simulated driver. It has the backends HYBRID and
// GPU_HYBRID for single images in decoupled phases, and HARDWARE for batches.
//
// Pixels are computed by the decoder that the test sets, by the function sim_decode of the library
// in the environment variable SIM_NVJPEG_DECODER, or as a pattern. A copy of this library that is
// named libnvjpeg.so.12 is version 12.4.0. Data moves as in nvJPEG, so using a buffer too early
// causes a wrong image:
// * HYBRID: the host phase writes the pixels to the page-locked buffer. The transfer copies them to
//   the device buffer in stream order. The device phase writes the destination.
// * GPU_HYBRID: the transfer copies the file to the device buffer, in stream order if the file is
//   in page-locked memory. The device phase decodes what the device buffer contains when it runs.
// * HARDWARE: decodes and writes the destination during the call, regardless of the stream, as the
//   engines of Hopper GPUs do. With sim_nvjpeg_set_hopper(0), does so in stream order.
//
// Known bugs of the real library are simulated. After an image failed, its state returns the pixels
// of the previous image. After a bitstream failed to parse a file, it accepts no other file.
// Versions before 13.2 decode the outermost pixels of a window wrongly. With
// sim_nvjpeg_set_skipping(3), the engines skip every third image and report success. With
// sim_nvjpeg_set_lenient(1), decoding on the device does not report a broken file, and returns the
// pixels decoded so far. It counts as misuse to destroy objects that the device still uses, and to
// make calls with which the real library would crash.
#define SIM_NVJPEG
#include "simulated.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace {

enum { SUCCESS = 0, INVALID_PARAMETER = 2, BAD_JPEG = 3, NOT_SUPPORTED = 4, ALLOCATOR_FAILURE = 5, EXECUTION_FAILED = 6,
       ARCH_MISMATCH = 7, NOT_IMPLEMENTED = 9, INCOMPLETE = 10 };
enum { DEFAULT = 0, HYBRID = 1, GPU_HYBRID = 2, HARDWARE = 3 };

// Maximum width and height of an image for the JPEG engines, in pixels.
constexpr int ENGINE_SIDE = 16000;

// A window to decode, in pixels of the reduced image. The sides of the file's image are divided by
// `reduction`.
struct Window { int reduction, x, y, width, height; };

// A function that decodes the window of a file into RGB rows without padding, and returns an nvJPEG
// status.
typedef int (*Decode)(const uint8_t* bytes, size_t count, const Window& window, uint8_t* rgb);

struct Allocator {
    int (*allocate)(void*, void**, size_t, void* stream);
    int (*release)(void*, void*, size_t, void* stream);
    void* context;
};

// A library handle. It stores pointers to the caller's allocators, because nvJPEG does not
// guarantee that it copies them.
struct Handle { Allocator *device, *pinned; unsigned flags; int backend; void* context = sim_current(); };
struct Decoder { int backend; };

// Like the CUDA runtime, nvJPEG works in the current context. It must be the context in which
// nvJPEG's objects were created.
void need_context(void* context) {
    if (context != sim_current()) sim_misused("called in another context than that of its handle");
}
struct Params { int format, scale, x, y, width, height; };

// Reference count of an object. Each queued operation that uses the object holds a reference.
typedef std::shared_ptr<int> InUse;

struct Buffer {
    Allocator* allocator;
    InUse in_use = std::make_shared<int>(0);
    void* data = nullptr;
    size_t bytes = 0;
    void* last_stream = nullptr;                   // stream of the last image, passed to `release` even if it no longer exists
    void* context = sim_current();

    int grow(size_t wanted, void* stream) {
        need_context(context);
        last_stream = stream;
        if (wanted <= bytes) return SUCCESS;
        if (data && allocator->release(allocator->context, data, bytes, stream)) return ALLOCATOR_FAILURE;
        data = nullptr;
        bytes = 0;
        if (allocator->allocate(allocator->context, &data, wanted, stream)) return ALLOCATOR_FAILURE;
        bytes = wanted;
        return SUCCESS;
    }

    ~Buffer() {
        need_context(context);
        if (data) allocator->release(allocator->context, data, bytes, last_stream);
    }
};

// A parsed file. The caller owns its bytes.
struct Stream {
    const uint8_t* bytes = nullptr;
    size_t count = 0;
    int width = 0, height = 0, components = 0, frame = 0;
    int sampling[4] = {0, 0, 0, 0};                // per component: horizontal factor * 16 + vertical factor
    bool interleaved = true, broken = false;
};

struct State {
    InUse in_use = std::make_shared<int>(0);
    Buffer *pinned = nullptr, *device = nullptr;
    Window window = {1, 0, 0, 0, 0};               // window that is decoded
    int image_width = 0, image_height = 0;
    const uint8_t* bytes = nullptr;                // the file for GPU_HYBRID
    size_t count = 0;
    bool decoded = false, transferred = false, tainted = false;
    std::unique_ptr<Buffer> own;                   // buffers that the state owns if none are attached
    int batch = 0;
};

int version[3] = {13, 3, 2};
Decode decode = nullptr;
bool scratch = false, hopper = true, lenient = false;
unsigned skip_every = 0;                           // the engines skip every image with a multiple of this number; 0 for none
std::atomic<unsigned> engine_images{0};
int refused_sampling = 0;                          // sampling factors of luma that the engines refuse
bool admits = false;                               // whether a support query reports refused files as supported
int engines = 7;
size_t own_bytes = 0, sample_factor = 1, trial_factor = 1;
int stray_backend = 0, stray_levels = 0;
std::atomic<unsigned long long> decoded_images[4];
std::atomic<unsigned long long> calls_of[65];        // number of calls of the engines by their number of images, up to 64
std::atomic<unsigned long long> windows{0};          // number of windows that the engines decoded
std::atomic<unsigned long long> mixed_calls{0};     // number of calls of the engines with several chroma subsamplings

// Writes a pattern that depends on the file's bytes and the position. A reduced image samples the
// pattern in larger steps.
int pattern(const uint8_t* bytes, size_t count, const Window& w, uint8_t* rgb) {
    unsigned sum = 0;
    for (size_t i = 0; i < count; i++) sum = sum * 31 + bytes[i];
    for (int y = w.y; y < w.y + w.height; y++)
        for (int x = w.x; x < w.x + w.width; x++)
            for (int c = 0; c < 3; c++) *rgb++ = (uint8_t)(sum + w.reduction * (7 * x + 13 * y) + 101 * c);
    return SUCCESS;
}

// Returns the decoder in the library that the environment variable SIM_NVJPEG_DECODER names, or
// null.
Decode named_decoder() {
    const char* path = getenv("SIM_NVJPEG_DECODER");
    if (!path) return nullptr;
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void* found = library ? dlsym(library, "sim_decode") : nullptr;
    if (!found) {
        fprintf(stderr, "simulated nvJPEG: SIM_NVJPEG_DECODER: %s\n", dlerror());
        abort();
    }
    return (Decode)found;
}

// Sets the version that the file name of this library implies.
__attribute__((constructor)) void take_version() {
    Dl_info file;
    const char* end = dladdr((void*)take_version, &file) ? strrchr(file.dli_fname, '.') : nullptr;
    if (end && !strcmp(end, ".12")) version[0] = 12, version[1] = 4, version[2] = 0;
}

// Parses the markers up to the first scan. A file may end before its first scan.
int parse(const uint8_t* bytes, size_t count, Stream* stream) {
    *stream = Stream();
    stream->bytes = bytes;
    stream->count = count;
    if (count < 4 || bytes[0] != 0xFF || bytes[1] != 0xD8) return BAD_JPEG;
    size_t at = 2;
    while (at + 4 <= count) {
        if (bytes[at] != 0xFF) return stream->frame ? SUCCESS : BAD_JPEG;
        int marker = bytes[at + 1];
        size_t length = bytes[at + 2] * 256 + bytes[at + 3];
        bool frame = marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
        if (frame) {
            if (at + 10 > count) return INCOMPLETE;
            if (marker > 0xC2 || bytes[at + 4] != 8) return NOT_SUPPORTED;
            stream->frame = marker;
            stream->height = bytes[at + 5] * 256 + bytes[at + 6];
            stream->width = bytes[at + 7] * 256 + bytes[at + 8];
            stream->components = bytes[at + 9];
            if (stream->components > 4 || at + 10 + 3 * stream->components > count) return BAD_JPEG;
            for (int c = 0; c < stream->components; c++) stream->sampling[c] = bytes[at + 11 + 3 * c];
            if (!stream->width || !stream->height) return BAD_JPEG;
        }
        if (marker == 0xDA) {
            if (!stream->frame || at + 5 > count) return BAD_JPEG;
            stream->interleaved = bytes[at + 4] == stream->components;
            return SUCCESS;
        }
        at += 2 + length;
    }
    return stream->frame ? SUCCESS : INCOMPLETE;
}

// Whether this is a trial file, with which feedwater measures nvJPEG's memory. Such a file has a
// comment at its beginning.
bool is_trial(const uint8_t* bytes, size_t count) { return count > 64 && memmem(bytes, 64, "feedwater trial", 15); }

size_t memory_factor(const uint8_t* bytes, size_t count) { return is_trial(bytes, count) ? trial_factor : sample_factor; }

bool is_refused(const Stream& stream) { return stream.components == 3 && stream.sampling[0] == refused_sampling; }

// Returns success if the backend supports the file, otherwise the status of its error.
int takes(int backend, const Stream& stream) {
    if (backend == HARDWARE && is_refused(stream)) return NOT_SUPPORTED;
    bool sequential = stream.frame != 0xC2;
    if (backend == HYBRID) return SUCCESS;
    if (!sequential || !stream.interleaved) return NOT_SUPPORTED;
    if (backend == GPU_HYBRID) return SUCCESS;
    if (stream.width > ENGINE_SIDE || stream.height > ENGINE_SIDE) return NOT_SUPPORTED;
    if (stream.components == 1) return SUCCESS;
    if (stream.components != 3) return NOT_SUPPORTED;
    int luma = stream.sampling[0];
    bool known = luma == 0x11 || luma == 0x21 || luma == 0x22 || luma == 0x12;
    return known && stream.sampling[1] == 0x11 && stream.sampling[2] == 0x11 ? SUCCESS : NOT_SUPPORTED;
}

// Sets the window to that of the parameters, or to the whole image if the parameters have none.
bool choose(const Params& p, const Stream& stream, Window* window) {
    bool whole = p.x == 0 && p.y == 0 && p.width == -1 && p.height == -1;
    int reduction = 1 << p.scale;
    if (reduction > 1 && !whole) {
        sim_misused("a window together with a scale factor: undocumented");
        return false;
    }
    int width = (stream.width + reduction - 1) / reduction, height = (stream.height + reduction - 1) / reduction;
    *window = whole ? Window{reduction, 0, 0, width, height} : Window{1, p.x, p.y, p.width, p.height};
    const Window& w = *window;
    return w.x >= 0 && w.y >= 0 && w.width >= 1 && w.height >= 1 && w.x + w.width <= width && w.y + w.height <= height;
}

void taint_edges(uint8_t* rgb, const Window& w, int width, int height) {
    for (int y = 0; y < w.height; y++)
        for (int x = 0; x < w.width; x++) {
            bool inner_edge = (x == 0 && w.x > 0) || (y == 0 && w.y > 0) ||
                              (x == w.width - 1 && w.x + w.width < width) ||
                              (y == w.height - 1 && w.y + w.height < height);
            if (inner_edge) rgb[3 * (y * w.width + x)] ^= 0x80;
        }
}

// Decodes the pixels of the window, with the bugs of this version and backend.
int decode_window(int backend, const uint8_t* bytes, size_t count, const Window& w, int width, int height,
                  std::vector<uint8_t>& rgb) {
    rgb.assign(size_t(3) * w.width * w.height, 0xEE);
    static const Decode named = named_decoder();
    Decode decoder = is_trial(bytes, count) ? pattern : decode ? decode : named ? named : pattern;
    int code = decoder(bytes, count, w, rgb.data());
    bool old = version[0] < 13 || (version[0] == 13 && version[1] < 2);
    if (!code && old && w.reduction == 1) taint_edges(rgb.data(), w, width, height);
    if (backend == stray_backend)
        for (uint8_t& byte : rgb) byte += byte < 128 ? stray_levels : -stray_levels;
    return code;
}

template <class T> int create(T** out, T* made) { *out = made; sim_objects(1); return SUCCESS; }
template <class T> int destroy(T* it) { if (!it) return INVALID_PARAMETER; delete it; sim_objects(-1); return SUCCESS; }
template <class T> int destroy_used(T* it) {
    if (it && it->in_use.use_count() > 1) sim_destroyed_in_use();
    return destroy(it);
}

}  // namespace

#define ENTER(name) if (sim_enter(name)) return EXECUTION_FAILED;
// Like ENTER, but calls for trial files are neither counted nor made to fail, because tests count
// calls for samples.
#define ENTER_FOR(bytes, count, name) if (!is_trial(bytes, count)) ENTER(name)

API void sim_nvjpeg_set_version(int major, int minor, int patch) {
    version[0] = major, version[1] = minor, version[2] = patch;
}
API void sim_nvjpeg_set_scratch(int wanted) { scratch = wanted; }
API void sim_nvjpeg_set_decoder(Decode wanted) { decode = wanted; }
API void sim_nvjpeg_set_hopper(int wanted) { hopper = wanted; }
API void sim_nvjpeg_set_skipping(unsigned every) { skip_every = every; }
API void sim_nvjpeg_set_refusing(int sampling, int admitted) { refused_sampling = sampling, admits = admitted; }
API void sim_nvjpeg_set_lenient(int wanted) { lenient = wanted; }
API void sim_nvjpeg_set_stray(int backend, int levels) { stray_backend = backend, stray_levels = levels; }
// Sets by which factors samples and trial files need more buffer memory.
API void sim_nvjpeg_set_memory_factors(size_t samples, size_t trials) { sample_factor = samples, trial_factor = trials; }
// Sets how many bytes of device memory a decode state allocates in addition to the attached
// buffers.
API void sim_nvjpeg_set_own(size_t bytes) { own_bytes = bytes; }
API void sim_nvjpeg_set_engines(int count) { engines = count; }
API unsigned long long sim_nvjpeg_decoded(int backend) { return decoded_images[backend]; }
API unsigned long long sim_nvjpeg_calls_of(unsigned images) { return images < 65 ? calls_of[images].load() : 0; }
API unsigned long long sim_nvjpeg_windows() { return windows; }
API unsigned long long sim_nvjpeg_mixed_calls() { return mixed_calls; }
API void sim_nvjpeg_reset() {
    for (auto& count : decoded_images) count = 0;
    engine_images = 0;
    mixed_calls = 0;
    windows = 0;
    for (auto& count : calls_of) count = 0;
}

API int nvjpegGetProperty(unsigned property, int* value) {
    if (property > 2) return INVALID_PARAMETER;
    *value = version[property];
    return SUCCESS;
}

static int create_handle(int backend, Allocator* device, Allocator* pinned, unsigned flags, Handle** out) {
    sim_context_used();
    // feedwater requests interpolated chroma (32). Other flags are a mistake.
    if ((backend != DEFAULT && backend != HARDWARE) || flags != 32) return INVALID_PARAMETER;
    if (backend == HARDWARE && engines == 0) return ARCH_MISMATCH;
    return create(out, new Handle{device, pinned, flags, backend});
}

API int nvjpegCreateEx(int backend, void* device, void* pinned, unsigned flags, Handle** out) {
    ENTER("nvjpegCreateEx")
    // nvJPEG's default allocators are not simulated. Handles that use them cannot decode.
    if (device || pinned) return INVALID_PARAMETER;
    return create_handle(backend, nullptr, nullptr, flags, out);
}
API int nvjpegCreateExV2(int backend, Allocator* device, Allocator* pinned, unsigned flags, Handle** out) {
    ENTER("nvjpegCreateExV2")
    // The real library rejects null allocators too. The fields have the order of nvjpeg.h: malloc,
    // free, context.
    if (!device || !pinned || !device->allocate || !device->release || !pinned->allocate || !pinned->release)
        return INVALID_PARAMETER;
    return create_handle(backend, device, pinned, flags, out);
}
API int nvjpegGetHardwareDecoderInfo(Handle* handle, unsigned* count, unsigned* cores) {
    ENTER("nvjpegGetHardwareDecoderInfo")
    if (handle) need_context(handle->context);
    *count = handle->backend == HARDWARE ? engines : 0;
    *cores = *count ? 1 : 0;
    return SUCCESS;
}
API int nvjpegDestroy(Handle* it) {
    sim_enter("nvjpegDestroy");
    if (it) need_context(it->context);
    return destroy(it);
}

API int nvjpegDecoderCreate(Handle* handle, int backend, Decoder** out) {
    ENTER("nvjpegDecoderCreate")
    if (handle) need_context(handle->context);
    if (backend == HARDWARE) sim_misused("a decoder of the engines by itself: crashes on Hopper when given a window");
    if (!handle || backend < HYBRID || handle->backend == HARDWARE) return INVALID_PARAMETER;
    return create(out, new Decoder{backend});
}
API int nvjpegDecoderDestroy(Decoder* it) { sim_enter("nvjpegDecoderDestroy"); return destroy(it); }

API int nvjpegDecoderStateCreate(Handle* handle, Decoder* decoder, State** out) {
    ENTER("nvjpegDecoderStateCreate")
    if (handle) need_context(handle->context);
    if (!handle || !decoder) return INVALID_PARAMETER;
    auto state = std::make_unique<State>();
    if (own_bytes) {
        state->own = std::make_unique<Buffer>(Buffer{handle->device});
        if (int code = state->own->grow(own_bytes, nullptr)) return code;
    }
    return create(out, state.release());
}
API int nvjpegJpegStateCreate(Handle* handle, State** out) {
    ENTER("nvjpegJpegStateCreate")
    if (handle) need_context(handle->context);
    if (!handle) return INVALID_PARAMETER;
    State* state = new State();
    state->own = std::make_unique<Buffer>(Buffer{handle->device});
    return create(out, state);
}
API int nvjpegJpegStateDestroy(State* it) { sim_enter("nvjpegJpegStateDestroy"); return destroy_used(it); }

API int nvjpegJpegStreamCreate(Handle* handle, Stream** out) {
    ENTER("nvjpegJpegStreamCreate")
    if (handle) need_context(handle->context);
    return handle ? create(out, new Stream()) : INVALID_PARAMETER;
}
API int nvjpegJpegStreamDestroy(Stream* it) { sim_enter("nvjpegJpegStreamDestroy"); return destroy(it); }

API int nvjpegJpegStreamParse(Handle*, const uint8_t* bytes, size_t count, int, int save_stream, Stream* stream) {
    ENTER_FOR(bytes, count, "nvjpegJpegStreamParse")
    if (save_stream) return INVALID_PARAMETER;       // this makes an additional copy, which feedwater does not use
    if (stream->broken) return BAD_JPEG;
    int code = parse(bytes, count, stream);
    stream->broken = code != SUCCESS;
    return code;
}

API int nvjpegJpegStreamParseHeader(Handle*, const uint8_t* bytes, size_t count, Stream* stream) {
    ENTER("nvjpegJpegStreamParseHeader")
    if (stream->broken) return BAD_JPEG;
    int code = parse(bytes, count, stream);
    stream->broken = code != SUCCESS;
    return code;
}

API int nvjpegDecodeBatchedSupportedEx(Handle* handle, Stream* stream, Params* params, int* refused) {
    ENTER("nvjpegDecodeBatchedSupportedEx")
    need_context(handle->context);
    Window window;
    if (handle->backend != HARDWARE || !stream->frame || !choose(*params, *stream, &window)) return INVALID_PARAMETER;
    *refused = takes(HARDWARE, *stream) != SUCCESS && !(admits && is_refused(*stream));
    return SUCCESS;
}

API int nvjpegJpegStreamGetFrameDimensions(Stream* stream, unsigned* width, unsigned* height) {
    ENTER_FOR(stream->bytes, stream->count, "nvjpegJpegStreamGetFrameDimensions")
    *width = stream->width;
    *height = stream->height;
    return SUCCESS;
}

API int nvjpegBufferPinnedCreateV2(Handle* handle, Allocator* allocator, Buffer** out) {
    ENTER("nvjpegBufferPinnedCreateV2")
    if (handle) need_context(handle->context);
    if (!handle) return INVALID_PARAMETER;
    return create(out, new Buffer{allocator});
}
API int nvjpegBufferPinnedResize(Buffer* buffer, size_t bytes, void* stream) {
    ENTER("nvjpegBufferPinnedResize")
    return buffer->grow(bytes, stream);
}
API int nvjpegBufferPinnedDestroy(Buffer* it) { sim_enter("nvjpegBufferPinnedDestroy"); return destroy_used(it); }

API int nvjpegBufferPinnedRetrieve(Buffer* buffer, size_t* bytes, void** data) {
    ENTER("nvjpegBufferPinnedRetrieve")
    *bytes = buffer->bytes;
    *data = buffer->data;
    return SUCCESS;
}

API int nvjpegBufferDeviceCreateV2(Handle* handle, Allocator* allocator, Buffer** out) {
    ENTER("nvjpegBufferDeviceCreateV2")
    if (handle) need_context(handle->context);
    if (!handle) return INVALID_PARAMETER;
    return create(out, new Buffer{allocator});
}
API int nvjpegBufferDeviceResize(Buffer* buffer, size_t bytes, void* stream) {
    ENTER("nvjpegBufferDeviceResize")
    return buffer->grow(bytes, stream);
}
API int nvjpegBufferDeviceDestroy(Buffer* it) { sim_enter("nvjpegBufferDeviceDestroy"); return destroy_used(it); }

API int nvjpegBufferDeviceRetrieve(Buffer* buffer, size_t* bytes, void** data) {
    ENTER("nvjpegBufferDeviceRetrieve")
    *bytes = buffer->bytes;
    *data = buffer->data;
    return SUCCESS;
}

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
    if (handle) need_context(handle->context);
    return handle ? create(out, new Params{0, 0, 0, 0, -1, -1}) : INVALID_PARAMETER;
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

API int nvjpegDecodeParamsSetScaleFactor(Params* params, unsigned factor) {
    ENTER("nvjpegDecodeParamsSetScaleFactor")
    if (factor > 3) return INVALID_PARAMETER;
    params->scale = (int)factor;
    return SUCCESS;
}

API int nvjpegDecodeJpegHost(Handle* handle, Decoder* decoder, State* state, Params* params, Stream* stream) {
    state->decoded = state->transferred = false;
    bool tainted = state->tainted;
    state->tainted = true;
    ENTER_FOR(stream->bytes, stream->count, "nvjpegDecodeJpegHost")
    need_context(handle->context);
    if (params->format != 5 || params->scale || !state->pinned || !stream->frame) return INVALID_PARAMETER;
    if (int code = takes(decoder->backend, *stream)) return code;
    if (!choose(*params, *stream, &state->window)) return INVALID_PARAMETER;
    std::vector<uint8_t> rgb;
    int code = decode_window(decoder->backend, stream->bytes, stream->count, state->window, stream->width, stream->height, rgb);
    if (code && !(decoder->backend == GPU_HYBRID && lenient)) return code;
    // HYBRID stores the coefficients of the whole image with 16 bits each. GPU_HYBRID stores some
    // tables.
    size_t kept = decoder->backend == HYBRID ? size_t(6) * stream->width * stream->height : 1024;
    kept *= memory_factor(stream->bytes, stream->count);
    if (int code = state->pinned->grow(kept, nullptr)) return code;
    // If the state failed before, the buffer still contains the previous image.
    if (!tainted && decoder->backend == HYBRID) memcpy(state->pinned->data, rgb.data(), rgb.size());
    state->bytes = stream->bytes;
    state->count = stream->count;
    state->image_width = stream->width;
    state->image_height = stream->height;
    state->decoded = true;
    state->tainted = tainted;
    return SUCCESS;
}

static void put(void* target, const void* source, size_t bytes) {
    memcpy(target, source, bytes);
    sim_wrote(target, bytes);
}

struct Copy { void* target; const void* source; size_t row_bytes, rows, pitch; InUse state, buffer, other; };

static int enqueue(void* stream, Copy copy) {
    return sim_enqueue(stream, [](void* data) {
        std::unique_ptr<Copy> it((Copy*)data);
        for (size_t y = 0; y < it->rows; y++)
            put((char*)it->target + y * it->pitch, (const char*)it->source + y * it->row_bytes, it->row_bytes);
    }, new Copy(copy));
}

API int nvjpegDecodeJpegTransferToDevice(Handle* handle, Decoder* decoder, State* state, Stream*, void* stream) {
    bool was_tainted = state->tainted;
    state->tainted = true;
    ENTER_FOR(state->bytes, state->count, "nvjpegDecodeJpegTransferToDevice")
    need_context(handle->context);
    if (!state->decoded || !state->device) return INVALID_PARAMETER;
    bool on_device = decoder->backend == GPU_HYBRID;
    size_t bytes = on_device ? state->count : size_t(3) * state->window.width * state->window.height;
    if (int code = state->device->grow(memory_factor(state->bytes, state->count) * bytes, stream)) return code;
    const void* source = on_device ? state->bytes : state->pinned->data;
    Copy copy = {state->device->data, source, bytes, 1, bytes,
                 state->in_use, state->pinned->in_use, state->device->in_use};
    // If the state failed before, it still has the previous file.
    if (on_device && was_tainted) copy.rows = 0;
    std::vector<uint8_t> staged;
    if (on_device && !sim_pinned(state->bytes, state->count)) {
        // A file in pageable memory is copied before the call returns.
        staged.assign(state->bytes, state->bytes + state->count);
        auto* held = new std::pair<std::vector<uint8_t>, Copy>(std::move(staged), copy);
        held->second.source = held->first.data();
        if (sim_enqueue(stream, [](void* data) {
                std::unique_ptr<std::pair<std::vector<uint8_t>, Copy>> it((std::pair<std::vector<uint8_t>, Copy>*)data);
                if (it->second.rows) put(it->second.target, it->second.source, it->second.row_bytes);
            }, held)) return EXECUTION_FAILED;
    } else if (enqueue(stream, copy)) {
        return EXECUTION_FAILED;
    }
    state->transferred = true;
    state->tainted = was_tainted;
    return SUCCESS;
}

// Job that decodes a file when its operation runs. The file is in the device buffer or in the
// caller's memory.
struct DecodeJob {
    int backend;
    const uint8_t* bytes;
    size_t count;
    Window window;
    int width, height;
    uint8_t* target;
    size_t pitch;
    InUse state, buffer;
};

static void decode_image(const DecodeJob& it) {
    if (!it.window.height) return;
    std::vector<uint8_t> rgb;
    decode_window(it.backend, it.bytes, it.count, it.window, it.width, it.height, rgb);
    size_t row = size_t(3) * it.window.width;
    for (int y = 0; y < it.window.height; y++) put(it.target + y * it.pitch, rgb.data() + y * row, row);
}

API int nvjpegDecodeJpegDevice(Handle* handle, Decoder* decoder, State* state, uint8_t** image, void* stream) {
    bool was_tainted = state->tainted;
    state->tainted = true;
    ENTER_FOR(state->bytes, state->count, "nvjpegDecodeJpegDevice")
    if (handle) need_context(handle->context);
    if (!state->transferred) return INVALID_PARAMETER;
    const Window& window = state->window;
    // An nvjpegImage_t has four pointers, then four pitches.
    size_t pitch = ((size_t*)image)[4], row_bytes = size_t(3) * window.width;
    if (pitch < row_bytes) return INVALID_PARAMETER;
    size_t rows = window.height;
    Copy copy = {image[0], state->device->data, row_bytes, rows, pitch, state->in_use, state->device->in_use, {}};
    if (decoder->backend == GPU_HYBRID) {
        auto* decoded = new DecodeJob{decoder->backend, (const uint8_t*)state->device->data, state->count, window,
                                  state->image_width, state->image_height, image[0], pitch, state->in_use,
                                  state->device->in_use};
        if (sim_enqueue(stream, [](void* data) {
                std::unique_ptr<DecodeJob> it((DecodeJob*)data);
                decode_image(*it);
            }, decoded)) return EXECUTION_FAILED;
    } else if (scratch) {
        Buffer between{handle->device};
        if (int code = between.grow(row_bytes * rows, stream)) return code;
        copy.target = between.data;
        copy.pitch = row_bytes;
        if (enqueue(stream, copy)) return EXECUTION_FAILED;
        copy = {image[0], between.data, row_bytes, rows, pitch, state->in_use, {}, {}};
        if (enqueue(stream, copy)) return EXECUTION_FAILED;
        Allocator& allocator = *between.allocator;
        if (allocator.release(allocator.context, between.data, between.bytes, stream)) return ALLOCATOR_FAILURE;
        between.data = nullptr;
    } else if (enqueue(stream, copy)) {
        return EXECUTION_FAILED;
    }
    state->decoded = state->transferred = false;
    state->tainted = was_tainted;
    if (!is_trial(state->bytes, state->count)) decoded_images[decoder->backend]++;
    return SUCCESS;
}

// ---- batches ----

API int nvjpegDecodeBatchedPreAllocate(Handle* handle, State* state, int batch, int width, int height, int, int format) {
    ENTER("nvjpegDecodeBatchedPreAllocate")
    if (handle) need_context(handle->context);
    if (handle->backend != HARDWARE || batch < 1 || width < 1 || height < 1 || format != 5) return INVALID_PARAMETER;
    return state->own->grow(trial_factor * batch * 3 * width * height, nullptr);
}

API int nvjpegDecodeBatchedInitialize(Handle* handle, State* state, int batch, int, int format) {
    state->batch = 0;
    ENTER("nvjpegDecodeBatchedInitialize")
    if (handle) need_context(handle->context);
    if (handle->backend != HARDWARE || batch < 1 || format != 5) return INVALID_PARAMETER;
    if (state->in_use.use_count() > 1) sim_misused("a batch is initialised while another runs with the same state");
    state->batch = batch;
    return SUCCESS;
}

// The layout is that of nvjpegImage_t.
struct Image { uint8_t* channel[4]; size_t pitch[4]; };

API int nvjpegDecodeBatchedEx(Handle* handle, State* state, const uint8_t* const* files, const size_t* counts,
                              Image* images, Params** params, void* stream) {
    bool was_tainted = state->tainted;
    state->tainted = true;
    ENTER_FOR(files[0], counts[0], "nvjpegDecodeBatchedEx")
    if (handle) need_context(handle->context);
    if (handle->backend != HARDWARE || state->batch < 1) return INVALID_PARAMETER;
    if (state->in_use.use_count() > 1) sim_misused("two batches at a time with the same state");
    if (state->batch < 65 && !is_trial(files[0], counts[0])) calls_of[state->batch]++;
    auto jobs = std::make_unique<std::vector<DecodeJob>>();
    int code = SUCCESS;
    size_t needed = 0;
    std::set<std::vector<int>> samplings;
    for (int i = 0; i < state->batch && !code; i++) {
        if (!sim_pinned(files[i], counts[i])) sim_misused("a file of a batch is not in page-locked memory");
        Stream parsed;
        Window window;
        code = parse(files[i], counts[i], &parsed);
        if (!code) code = takes(HARDWARE, parsed);
        if (!code && (params[i]->format != 5 || !choose(*params[i], parsed, &window))) code = INVALID_PARAMETER;
        if (!code && images[i].pitch[0] < size_t(3) * window.width) code = INVALID_PARAMETER;
        std::vector<uint8_t> rgb;
        if (!code && !lenient)
            code = decode_window(HARDWARE, files[i], counts[i], window, parsed.width, parsed.height, rgb);
        if (code) break;
        windows += params[i]->width >= 0;
        bool gray = parsed.components == 1;
        samplings.insert(gray ? std::vector<int>{} : std::vector<int>(parsed.sampling, parsed.sampling + parsed.components));
        needed += memory_factor(files[i], counts[i]) * 3 * parsed.width * parsed.height;
        jobs->push_back({HARDWARE, files[i], counts[i], window, parsed.width, parsed.height, images[i].channel[0],
                             images[i].pitch[0], state->in_use, state->own->in_use});
    }
    mixed_calls += samplings.size() > 1;
    if (!code) code = state->own->grow(needed, stream);
    // A call that fails has already started to decode. If the state failed before, nothing is
    // written, so the destinations keep the previous images.
    size_t count = 0;
    for (DecodeJob& job : *jobs) {
        if (is_trial(job.bytes, job.count)) continue;
        bool skipped = skip_every && ++engine_images % skip_every == 0;
        if (skipped) job.window.height = 0;
        count += !skipped;
    }
    if (was_tainted) jobs->clear();
    auto run = [](void* data) {
        for (const DecodeJob& job : *(std::vector<DecodeJob>*)data) decode_image(job);
    };
    if (hopper) {
        sim_run_now(run, jobs.get());
        for (DecodeJob& job : *jobs) job.window.height = 0;
    }
    if (sim_engines_are_held() && !is_trial(files[0], counts[0]) && sim_endless(stream)) return EXECUTION_FAILED;
    // At least an empty job is queued, so that the stream ends after the engines' work.
    if (sim_enqueue(stream, [](void* data) {
            std::unique_ptr<std::vector<DecodeJob>> it((std::vector<DecodeJob>*)data);
            for (const DecodeJob& job : *it) decode_image(job);
        }, jobs.release())) return EXECUTION_FAILED;
    if (code) return code;
    state->tainted = was_tainted;
    decoded_images[HARDWARE] += count;
    return SUCCESS;
}
