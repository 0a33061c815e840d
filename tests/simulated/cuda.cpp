// A simulated CUDA driver for tests. It simulates the API and the order of events, but not speed.
//
// Streams are queues whose operations run later: when the host waits for them, or when the
// scheduler selects them. A missing wait therefore causes a wrong result. With the schedule `lazy`,
// operations run as late as possible. With `eager`, they run immediately. With `random`, operations
// of any stream may run after any call, and a seed decides which.
//
// Each stream has its own clock. Events with time stamps record its time (machine.h). Such events
// are only for measuring, so waiting for one counts as misuse.
//
// Each device has a primary context. Each thread has a stack of contexts, whose top is current.
// Objects belong to the context in which they were created. The rules for objects of another
// context are those of the programming guide ("Stream and Event Behavior").
//
// "Device" memory is host memory. It is filled with a pattern when allocated, and has guard bytes
// after its end. Kernels are shared objects from the simulated compiler (nvrtc.cpp), or device code
// that an interpreter executes (executor.h). Every call is counted and can be made to fail.
#include "machine.h"

#define ENTER(name)                                            \
    std::lock_guard<std::recursive_mutex> guard(mutex);        \
    if (int code = enter(name)) return code;
// Like ENTER, for calls that destroy an object. The object is destroyed even if the call is made to
// fail, because the real driver may report an earlier error in such a call.
#define ENTER_DESTROY(name)                                    \
    std::lock_guard<std::recursive_mutex> guard(mutex);        \
    int injected = enter(name);
#define NEED_CONTEXT                                           \
    [[maybe_unused]] Context* here = current();                \
    if (!here) return bindings.empty() ? INVALID_CONTEXT : CONTEXT_IS_DESTROYED;
#define STREAM(handle)                                         \
    Stream* stream = stream_of(handle);                        \
    /* A real driver's behaviour for a destroyed stream is undefined. */ \
    if (!stream) {                                             \
        counts.misused++;                                      \
        return INVALID_HANDLE;                                 \
    }
// The driver permits memory of another device than that of the stream, but then the stream does not
// order the accesses. feedwater never does this, so it counts as misuse.
#define IN_ORDER(allocation)                                   \
    if ((allocation)->context != stream->context) {            \
        fprintf(stderr, "simulated driver: memory of another context than the stream's\n"); \
        counts.misused++;                                      \
    }
#define BESIDE_A_CAPTURE                                       \
    if (capturing && capture_mode != 2) {                      \
        counts.misused++;                                      \
        return CAPTURE_UNSUPPORTED;                            \
    }
#define DEVICE(ordinal)                                        \
    if (ordinal < 0 || ordinal >= devices) return INVALID_DEVICE;
#define API extern "C" __attribute__((visibility("default")))

API int cuInit(unsigned) { ENTER("cuInit") return devices ? SUCCESS : NO_DEVICE; }
API int cuDriverGetVersion(int* version) { ENTER("cuDriverGetVersion") *version = 13000; return SUCCESS; }
API int cuDeviceGetCount(int* count) { ENTER("cuDeviceGetCount") *count = devices; return SUCCESS; }

API int cuDeviceGet(int* device, int ordinal) {
    ENTER("cuDeviceGet")
    DEVICE(ordinal)
    *device = ordinal;
    return SUCCESS;
}

API int cuDeviceGetName(char* name, int bytes, int) {
    ENTER("cuDeviceGetName")
    snprintf(name, bytes, "Simulated device");
    return SUCCESS;
}

API int cuDeviceGetAttribute(int* value, int attribute, int) {
    ENTER("cuDeviceGetAttribute")
    switch (attribute) {                   // the attributes are those of an H200
        case 16: *value = 132; break;      // multiprocessors
        case 33: *value = 0x1b; break;     // PCI bus id, here and in nvml.cpp
        case 34: *value = 3; break;
        case 50: *value = 2; break;
        case 75: *value = capability / 10; break;
        case 76: *value = capability % 10; break;
        case 81: *value = 228 << 10; break;// shared memory per multiprocessor
        default: *value = 0;
    }
    return SUCCESS;
}

API int cuDevicePrimaryCtxRetain(void** out, int device) {
    ENTER("cuDevicePrimaryCtxRetain")
    DEVICE(device)
    Context* context = &contexts[device];
    if (context->retains++ == 0) context->life++;
    counts.contexts++;
    *out = context;
    return SUCCESS;
}

API int cuDevicePrimaryCtxRelease_v2(int device) {
    ENTER_DESTROY("cuDevicePrimaryCtxRelease")
    DEVICE(device)
    Context* context = &contexts[device];
    if (context->retains == 0) return INVALID_CONTEXT;
    counts.contexts--;
    if (--context->retains == 0) end(context);
    return injected;
}

API int cuCtxGetCurrent(void** out) {
    ENTER("cuCtxGetCurrent")
    *out = bindings.empty() ? nullptr : bindings.back().context;
    return SUCCESS;
}

static int bind(Context* context) {
    if (!context) return INVALID_CONTEXT;
    if (context->retains == 0) return CONTEXT_IS_DESTROYED;
    bindings.push_back({context, context->life});
    return SUCCESS;
}

// Replaces the top of the thread's stack of contexts. Null removes the top.
API int cuCtxSetCurrent(void* wanted) {
    ENTER("cuCtxSetCurrent")
    if (wanted && !(context_of(wanted) && context_of(wanted)->retains)) return bind(context_of(wanted));
    if (!bindings.empty()) bindings.pop_back();
    return wanted ? bind(context_of(wanted)) : SUCCESS;
}

API int cuCtxPushCurrent_v2(void* wanted) { ENTER("cuCtxPushCurrent") return bind(context_of(wanted)); }

API int cuCtxPopCurrent_v2(void** out) {
    ENTER("cuCtxPopCurrent")
    if (bindings.empty()) return INVALID_CONTEXT;
    if (out) *out = bindings.back().context;
    bindings.pop_back();
    return SUCCESS;
}

API int cuThreadExchangeStreamCaptureMode(int* mode) {
    ENTER("cuThreadExchangeStreamCaptureMode")
    if (*mode < 0 || *mode > 2) return INVALID_VALUE;
    std::swap(*mode, capture_mode);
    return SUCCESS;
}

// Sets whether a thread captures a graph in CUDA's global mode. Meanwhile, calls from threads whose
// mode is global fail and count as misuse.
API void sim_capture(int wanted) { capturing = wanted; }

API int cuCtxSynchronize() {
    ENTER("cuCtxSynchronize")
    NEED_CONTEXT
    // This call fails whatever the mode of the thread, because the context has a stream that is
    // being captured.
    if (capturing) {
        counts.misused++;
        return CAPTURE_UNSUPPORTED;
    }
    wait(drain(here));
    return sticky;
}

API int cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
    ENTER("cuMemGetInfo")
    NEED_CONTEXT
    *total_bytes = size_t(1) << 34;
    *free_bytes = *total_bytes - here->bytes - code_bytes;
    return SUCCESS;
}

API int cuMemAlloc_v2(unsigned long long* pointer, size_t bytes) {
    ENTER("cuMemAlloc")
    NEED_CONTEXT
    return allocate(device_memory, (void**)pointer, bytes, counts.device, here);
}

API int cuMemFree_v2(unsigned long long pointer) {
    ENTER_DESTROY("cuMemFree")
    NEED_CONTEXT
    int code = release(device_memory, (void*)pointer, counts.device);
    return code ? code : injected;
}

API int cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags) {
    ENTER("cuMemHostAlloc")
    NEED_CONTEXT
    if (flags & 4) counts.write_combined++;
    return allocate(pinned_memory, pointer, bytes, counts.pinned, here);
}

API int cuMemFreeHost(void* pointer) {
    ENTER_DESTROY("cuMemFreeHost")
    NEED_CONTEXT
    int code = release(pinned_memory, pointer, counts.pinned);
    return code ? code : injected;
}

static void copy_in(void* target, const void* source, size_t bytes) {
    memcpy(target, source, bytes);
    wrote(target, bytes);
}

// Like the driver, reads page-locked sources when the copy runs, and other sources during the call.
API int cuMemcpyHtoDAsync_v2(unsigned long long target, const void* source, size_t bytes, void* handle) {
    ENTER("cuMemcpyHtoDAsync")
    NEED_CONTEXT
    STREAM(handle)
    auto* there = find(device_memory, (void*)target, bytes);
    if (!there) return INVALID_VALUE;
    IN_ORDER(there)
    stream->copied_behind |= stream->waited;
    if (within(pinned_memory, source, bytes)) {
        stream->queue.push_back({[=] { copy_in((void*)target, source, bytes); }, {}, {}, 0, nullptr, bytes * COPY_NS});
    } else {
        auto copy = std::make_shared<std::vector<char>>((const char*)source, (const char*)source + bytes);
        stream->queue.push_back({[=] { copy_in((void*)target, copy->data(), bytes); }, {}, {}, 0, nullptr, bytes * COPY_NS});
    }
    schedule();
    return SUCCESS;
}

API int cuMemcpyDtoDAsync_v2(unsigned long long target, unsigned long long source, size_t bytes, void* handle) {
    ENTER("cuMemcpyDtoDAsync")
    NEED_CONTEXT
    STREAM(handle)
    auto* there = find(device_memory, (void*)target, bytes);
    if (!there) return INVALID_VALUE;
    IN_ORDER(there)
    auto* from = find(device_memory, (void*)source, bytes);
    if (!from) return INVALID_VALUE;
    IN_ORDER(from)
    stream->queue.push_back({[=] { copy_in((void*)target, (void*)source, bytes); }, {}, {}, 0, nullptr, bytes * COPY_NS});
    schedule();
    return SUCCESS;
}

API int cuMemcpyDtoHAsync_v2(void* target, unsigned long long source, size_t bytes, void* handle) {
    ENTER("cuMemcpyDtoHAsync")
    NEED_CONTEXT
    STREAM(handle)
    auto* from = find(device_memory, (void*)source, bytes);
    if (!from) return INVALID_VALUE;
    IN_ORDER(from)
    stream->queue.push_back({[=] {
        read_by_host((void*)source, bytes);
        memcpy(target, (void*)source, bytes);
    }, {}, {}, 0, nullptr, bytes * COPY_NS});
    if (!within(pinned_memory, target, bytes)) wait(drain(*stream));
    schedule();
    return SUCCESS;
}

API int cuMemsetD8Async(unsigned long long target, unsigned char value, size_t bytes, void* handle) {
    ENTER("cuMemsetD8Async")
    NEED_CONTEXT
    STREAM(handle)
    auto* there = find(device_memory, (void*)target, bytes);
    if (!there) return INVALID_VALUE;
    IN_ORDER(there)
    stream->queue.push_back({[=] {
        memset((void*)target, value, bytes);
        wrote((void*)target, bytes);
    }, {}, {}, 0, nullptr, bytes * COPY_NS});
    schedule();
    return SUCCESS;
}

API int cuStreamCreateWithPriority(void** out, unsigned, int) {
    ENTER("cuStreamCreate")
    NEED_CONTEXT
    *out = new char;
    streams[*out].context = here;
    counts.streams++;
    return SUCCESS;
}

API int cuStreamCreate(void** out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }

API int cuStreamDestroy_v2(void* handle) {
    ENTER_DESTROY("cuStreamDestroy")
    NEED_CONTEXT
    STREAM(handle)
    drain(*stream);
    streams.erase(handle);
    delete (char*)handle;
    counts.streams--;
    return injected;
}

API int cuStreamSynchronize(void* handle) {
    ENTER("cuStreamSynchronize")
    BESIDE_A_CAPTURE
    NEED_CONTEXT
    STREAM(handle)
    schedule();
    wait_until([&] { return drain(*stream); });
    return sticky;
}

API int cuStreamWaitEvent(void* handle, void* event, unsigned) {
    ENTER("cuStreamWaitEvent")
    NEED_CONTEXT
    STREAM(handle)
    auto found = events.find(event);
    if (found == events.end()) return INVALID_HANDLE;
    if (found->second->timed) counts.timed_waits++;
    // The stream waits for the last record before this call, not for later ones.
    stream->waited = true;
    if (found->second->recorded > 0) stream->queue.push_back({{}, found->second, {}, found->second->recorded});
    schedule();
    return SUCCESS;
}

API int cuLaunchHostFunc(void* handle, void (*function)(void*), void* data) {
    ENTER("cuLaunchHostFunc")
    NEED_CONTEXT
    STREAM(handle)
    stream->queue.push_back({[=] { function(data); }, {}, {}, 0});
    schedule();
    return SUCCESS;
}

API int cuEventCreate(void** out, unsigned flags) {
    ENTER("cuEventCreate")
    NEED_CONTEXT
    *out = new char;
    bool timed = !(flags & 2);
    events[*out] = std::make_shared<Event>();
    events[*out]->timed = timed;
    events[*out]->context = here;
    counts.events++;
    counts.timed_events += timed;
    return SUCCESS;
}

API int cuEventDestroy_v2(void* event) {
    ENTER_DESTROY("cuEventDestroy")
    NEED_CONTEXT
    auto found = events.find(event);
    if (found == events.end()) return INVALID_HANDLE;
    counts.timed_events -= found->second->timed;
    if (auto hidden = streams.find(event); hidden != streams.end()) {
        drain(hidden->second);
        streams.erase(hidden);
    }
    events.erase(found);
    delete (char*)event;
    counts.events--;
    return injected;
}

API int cuEventRecord(void* event, void* handle) {
    ENTER("cuEventRecord")
    NEED_CONTEXT
    STREAM(handle)
    auto found = events.find(event);
    if (found == events.end() || found->second->context != stream->context) return INVALID_HANDLE;
    found->second->stream = stream;
    stream->queue.push_back({{}, {}, found->second, ++found->second->recorded});
    schedule();
    return SUCCESS;
}

// A hidden stream records the event after it has waited for every stream of the context.
API int cuCtxRecordEvent(void* context, void* event) {
    ENTER("cuCtxRecordEvent")
    auto found = events.find(event);
    if (found == events.end() || found->second->context != context) return INVALID_HANDLE;
    if (capturing) {
        counts.misused++;
        return CAPTURE_UNSUPPORTED;
    }
    Stream& hidden = streams[event];
    hidden.context = found->second->context;
    for (auto& [handle, stream] : streams) {
        if (stream.context != context || &stream == &hidden) continue;
        auto end = std::make_shared<Event>();
        end->context = stream.context;
        end->stream = &stream;
        stream.queue.push_back({{}, {}, end, ++end->recorded});
        hidden.queue.push_back({{}, end, {}, end->recorded});
    }
    found->second->stream = &hidden;
    hidden.queue.push_back({{}, {}, found->second, ++found->second->recorded});
    schedule();
    return SUCCESS;
}

// Like the driver's function. In addition, both events must be of one stream and in this order.
// This is a rule of feedwater, not of CUDA.
API int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
    ENTER("cuEventElapsedTime")
    NEED_CONTEXT
    auto from = events.find(begin), to = events.find(end);
    if (from == events.end() || to == events.end()) return INVALID_HANDLE;
    if (from->second->context != to->second->context) return INVALID_HANDLE;
    for (auto& event : {from->second, to->second})
        if (!event->timed || event->recorded == 0) return INVALID_HANDLE;
    for (auto& event : {from->second, to->second})
        if (!event->reached(event->recorded)) return NOT_READY;
    unsigned long long first = from->second->time(from->second->recorded), last = to->second->time(to->second->recorded);
    if (from->second->stream != to->second->stream || last < first) {
        fprintf(stderr, "simulated driver: elapsed time between events of two streams, or in reverse order\n");
        counts.misused++;
    }
    *milliseconds = (double(last) - double(first)) * 1e-6;
    return SUCCESS;
}

// Each query runs one more operation, so that loops that poll an event end.
API int cuEventQuery(void* event) {
    ENTER("cuEventQuery")
    BESIDE_A_CAPTURE
    NEED_CONTEXT
    auto found = events.find(event);
    if (found == events.end()) return INVALID_HANDLE;
    if (found->second->reached(found->second->recorded)) return sticky;
    for (auto& [handle, stream] : streams)
        for (auto& operation : stream.queue)
            if (operation.record == found->second) {
                advance(stream);
                return NOT_READY;
            }
    return NOT_READY;
}

API int cuEventSynchronize(void* event) {
    ENTER("cuEventSynchronize")
    BESIDE_A_CAPTURE
    NEED_CONTEXT
    auto found = events.find(event);
    if (found == events.end()) return INVALID_HANDLE;
    if (found->second->timed) counts.timed_waits++;
    schedule();
    EventRef it = found->second;
    unsigned long long generation = it->recorded;
    wait_until([&] { return reach(it, generation); });
    return sticky;
}

// Writes a shared object, which was compiled for the host, to a temporary file and opens it.
static void* open_object(const char* bytes, size_t count) {
    std::string path = std::filesystem::temp_directory_path() / "feedwater-module-XXXXXX";
    int file = mkstemp(path.data());
    if (file < 0) return nullptr;
    bool written = write(file, bytes, count) == (ssize_t)count;
    close(file);
    void* library = written ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    unlink(path.c_str());
    return library;
}

API int cuModuleLoadData(void** out, const void* image) {
    ENTER("cuModuleLoadData")
    NEED_CONTEXT
    SimImage header;
    memcpy(&header, image, sizeof header);
    bool ptx = !memcmp(header.magic, SIM_PTX_MAGIC, sizeof header.magic);
    if (!ptx && memcmp(header.magic, SIM_CUBIN_MAGIC, sizeof header.magic)) return INVALID_IMAGE;
    // Intermediate code (PTX) runs on its own architecture and on newer ones. Machine code runs
    // only on its own architecture.
    if (ptx && !compiles_ptx) return UNSUPPORTED_PTX_VERSION;
    if (ptx ? header.architecture > capability : header.architecture != capability) return NO_BINARY_FOR_GPU;
    const char* code = (const char*)image + sizeof header;
    void* library = !header.device_code ? open_object(code, header.bytes)
                  : executor()          ? executor()->parse(code, report)
                                        : nullptr;
    if (!library) return INVALID_IMAGE;
    *out = new char;
    modules[*out] = {here, library, header.device_code != 0, {}};
    counts.modules++;
    return SUCCESS;
}

static bool find_kernel(void* module, Function* function) {
    uint64_t params[16][2];
    int count = executor()->parameters(module, function->name.c_str(), params, 16);
    for (int i = 0; i < count; i++) function->params.push_back({params[i][0], params[i][1]});
    function->code = module;
    return count >= 0;
}

// Finds a kernel in a shared object. feedwater's kernels have the arguments const Sample* samples,
// int count, int width, int height, and int shared_bytes if they are tiled. Other kernels declare
// the sizes of their arguments in a list that ends with 0.
static bool find_host_kernel(void* library, Function* function) {
    const std::string& name = function->name;
    std::vector<unsigned> sizes = {8, 4, 4, 4};
    if (name == "tiled") sizes.push_back(4);
    if (auto* declared = (const unsigned*)dlsym(library, (name + "__param_bytes").c_str()))
        for (sizes.clear(); *declared; declared++) sizes.push_back(*declared);
    // Each argument is aligned to 8 bytes, because the entry point for the host takes pointers to
    // them.
    for (size_t i = 0; i < sizes.size(); i++) function->params.push_back({8 * i, sizes[i]});
    function->host = (decltype(Function::host))dlsym(library, (name + "__host").c_str());
    return function->host;
}

API int cuModuleGetFunction(void** out, void* handle, const char* name) {
    ENTER("cuModuleGetFunction")
    NEED_CONTEXT
    auto found = modules.find(handle);
    if (found == modules.end()) return INVALID_HANDLE;
    if (found->second.context != here) return INVALID_CONTEXT;
    Module& module = found->second;
    auto* function = new Function{nullptr, name, {}, nullptr, handle, here};
    bool there = module.device_code ? find_kernel(module.library, function) : find_host_kernel(module.library, function);
    if (!there) {
        delete function;
        return NOT_FOUND;
    }
    module.functions.push_back(function);
    *out = function;
    return SUCCESS;
}

API int cuFuncSetAttribute(void* handle, int attribute, int value) {
    ENTER("cuFuncSetAttribute")
    NEED_CONTEXT
    if (((Function*)handle)->context != here) return INVALID_CONTEXT;
    // Attribute 8 is the maximum dynamic shared memory of a block, here that of Hopper. Attribute 9
    // is the preferred carve-out in percent.
    if (attribute == 8 && value >= 0 && value <= 227 << 10) ((Function*)handle)->most_shared = value;
    else if (attribute == 9 && value >= -1 && value <= 100) ((Function*)handle)->carveout = value;
    else return INVALID_VALUE;
    return SUCCESS;
}

API int cuModuleUnload(void* handle) {
    ENTER_DESTROY("cuModuleUnload")
    NEED_CONTEXT
    auto found = modules.find(handle);
    if (found == modules.end()) return INVALID_HANDLE;
    if (found->second.context != here) return INVALID_CONTEXT;
    for (auto& [name, stream] : streams)
        for (auto& operation : stream.queue)
            if (operation.module == handle) counts.destroyed_in_use++;
    drain(here);
    for (Function* function : found->second.functions) {
        code_bytes -= function->launched ? CODE_BYTES : 0;
        delete function;
    }
    if (found->second.device_code) executor()->forget(found->second.library);
    else dlclose(found->second.library);
    modules.erase(found);
    delete (char*)handle;
    counts.modules--;
    return injected;
}

static void run_kernel(const Function& function, PtxShape shape, std::vector<char>& params) {
    if (function.host) {
        std::vector<void*> pointers;
        for (auto [offset, bytes] : function.params) pointers.push_back(params.data() + offset);
        const uint32_t *grid = shape.grid, *block = shape.block;
        return function.host(pointers.data(), grid[0], grid[1], grid[2], block[0], block[1], block[2]);
    }
    shape.number = launch_number++;
    shape.every_schedule = every_schedule;
    uint64_t faults = executor()->launch(function.code, function.context->memory, function.name.c_str(), &shape, params.data(),
                                         params.size(), &totals, report);
    kernel_faults(faults);
    // This is CUDA_ERROR_LAUNCH_FAILED. With it, tests that do not check the counters fail too.
    if (faults) sticky = 719;
}

API int cuLaunchKernel(void* handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned shared_bytes, void* stream_handle, void** params, void**) {
    ENTER("cuLaunchKernel")
    NEED_CONTEXT
    STREAM(stream_handle)
    if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || bx * by * bz == 0 || bx * by * bz > 1024) return INVALID_VALUE;
    Function* function = (Function*)handle;
    // "A kernel launch will fail if it is issued to a stream that is not associated to the current device" (programming guide).
    if (function->context != here || stream->context != here) return INVALID_HANDLE;
    if ((int)shared_bytes > function->most_shared) return INVALID_VALUE;
    // Arguments are copied now. The memory to which they point is read when the kernel runs.
    auto copies = std::make_shared<std::vector<char>>();
    for (size_t i = 0; i < function->params.size(); i++) {
        auto [offset, bytes] = function->params[i];
        copies->resize(std::max(copies->size(), offset + bytes));
        memcpy(copies->data() + offset, params[i], bytes);
    }
    PtxShape shape = {{gx, gy, gz}, {bx, by, bz}, shared_bytes, 0, 0};
    stream->queue.push_back({[=] {
        run_kernel(*function, shape, *copies);
        samples_run += gz;
    }, {}, {}, 0, function->module, gz * KERNEL_NS});
    last_grid = {gx, gy, gz};
    counts.launches++;
    here->launches++;
    if (!function->launched) code_bytes += CODE_BYTES;
    function->launched = true;
    late_uploads += stream->copied_behind;
    stream->waited = stream->copied_behind = false;
    // A multiprocessor of Hopper has 228 KiB of shared memory, and each block needs 1 KiB more than
    // it requests. Without a preference, the driver may choose a carve-out that holds only one
    // block.
    if (shared_bytes) {
        int blocks = (228 << 10) / ((int)shared_bytes + 1024) * function->carveout / 100;
        most_resident = std::max(1, blocks);
    }
    schedule();
    return SUCCESS;
}

API int cuGetErrorName(int code, const char** text) {
    static const std::map<int, const char*> names = {
        {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {100, "CUDA_ERROR_NO_DEVICE"},
        {101, "CUDA_ERROR_INVALID_DEVICE"}, {200, "CUDA_ERROR_INVALID_IMAGE"}, {201, "CUDA_ERROR_INVALID_CONTEXT"},
        {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"}, {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"}, {400, "CUDA_ERROR_INVALID_HANDLE"}, {500, "CUDA_ERROR_NOT_FOUND"}, {600, "CUDA_ERROR_NOT_READY"},
        {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"}, {719, "CUDA_ERROR_LAUNCH_FAILED"}};
    auto found = names.find(code);
    if (found == names.end()) return INVALID_VALUE;
    *text = found->second;
    return SUCCESS;
}

API int cuGetErrorString(int code, const char** text) { return cuGetErrorName(code, text); }

// ---- functions for tests ----

API void sim_end_work();

API void sim_reset() {
    sim_end_work();
    std::lock_guard<std::recursive_mutex> guard(mutex);
    drain_all();
    failures.clear();
    calls.clear();
    mode = SIM_LAZY;
    devices = 1;
    capability = 90;
    compiles_ptx = true;
    sticky = SUCCESS;
    most_resident = 0;
    late_uploads = 0;
    memory_limit = ~0ull;
    every_schedule = getenv("SIM_EVERY_SCHEDULE");
    totals = {};
    counts.kernel_faults = 0;
    counts.calls = counts.operations = counts.launches = counts.injected = 0;
    counts.overruns = counts.write_combined = counts.timed_waits = counts.destroyed_in_use = counts.misused = 0;
    for (Context& context : contexts) context.launches = 0;
    counts.device.peak_bytes = counts.device.bytes;
    counts.pinned.peak_bytes = counts.pinned.bytes;
}

API void sim_schedule(sim_schedule_mode wanted, unsigned long long seed) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    mode = wanted;
    scheduler.seed(seed);
}

API void sim_fail(const char* name, long nth, int code) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    failures.push_back({name, nth, code});
}

API unsigned long long sim_calls(const char* name) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    return calls[name];
}

API void sim_counts(SimCounts* out) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    *out = told();
}

// Environment variables for child processes. SIM_FAIL has the arguments of a call of sim_fail
// ("cuLaunchKernel 5 719"). SIM_DEVICES is the number of devices. SIM_COUNTS is a file to which the
// counters are written when the process ends.
static struct Environment {
    Environment() {
        char name[64];
        Failure it;
        const char* text = getenv("SIM_FAIL");
        if (text && sscanf(text, "%63s %ld %d", name, &it.countdown, &it.code) == 3) {
            it.name = name;
            failures.push_back(it);
        }
        if (const char* count = getenv("SIM_DEVICES")) devices = atoi(count);
    }
    ~Environment() {
        write_counts();
        // After faults of device code, the process ends with an error, whatever the tests checked.
        if (!all_kernel_faults) return;
        fprintf(stderr, "simulated driver: %llu faults of device code\n", all_kernel_faults);
        _exit(99);
    }
    void write_counts() {
        const char* path = getenv("SIM_COUNTS");
        FILE* file = path ? fopen(path, "w") : nullptr;
        if (!file) return;
        const SimCounts it = told();
        unsigned long live = it.device.allocations + it.pinned.allocations + it.contexts + it.streams + it.events +
                             it.modules + it.nvjpeg_objects;
        unsigned long faults = it.overruns + it.write_combined + it.timed_waits + it.destroyed_in_use + it.misused + it.kernel_faults;
        std::string launches;
        for (int device = 0; device < devices; device++)
            launches += (device ? ", " : "") + std::to_string(contexts[device].launches);
        fprintf(file, "{\"launches_by_device\": [%s], \"launches\": %lu, \"live\": %lu, \"faults\": %lu, \"injected\": %lu}\n",
                launches.c_str(), (unsigned long)it.launches, live, faults, (unsigned long)it.injected);
        fclose(file);
    }
} environment;

// Sets the compute capability of every device, and whether the driver accepts PTX.
API void sim_architecture(unsigned wanted, int with_ptx) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    capability = wanted;
    compiles_ptx = with_ptx;
}

// Returns the device memory in use in bytes, and the number of launches since the last reset.
API void sim_on_device(int device, unsigned long long* bytes, unsigned long long* launches) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    *bytes = contexts[device].bytes;
    *launches = contexts[device].launches;
}

API void sim_devices(int count) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    devices = count;
}

API void sim_memory_limit(unsigned long long bytes) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    memory_limit = bytes;
}

// From now on, every wait returns this error, as after a kernel that caused it.
API void sim_lose_device(int code) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    sticky = code;
}

// Queues an operation that only takes time, as a training step does.
API int sim_work(void* handle, unsigned long long nanoseconds) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    STREAM(handle)
    stream->queue.push_back({[] {}, {}, {}, 0, nullptr, nanoseconds});
    schedule();
    return SUCCESS;
}

// Returns how many blocks a multiprocessor could hold at the last launch with dynamic shared
// memory. Only this memory limits the number.
API int sim_resident_blocks() {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    return most_resident;
}

API void sim_last_grid(unsigned* to) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    memcpy(to, last_grid.data(), sizeof last_grid);
}

// Sets whether every later launch runs under every schedule. All results must be equal.
API void sim_every_schedule(int wanted) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    every_schedule = wanted;
}

API void sim_totals(SimTotals* out) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    *out = totals;
}

// Returns the number of faults of device code, which the test expected. The process may then end
// without an error.
API unsigned long long sim_expect_kernel_faults() {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    unsigned long long expected = counts.kernel_faults;
    all_kernel_faults -= expected;
    counts.kernel_faults = 0;
    sticky = SUCCESS;
    return expected;
}

API unsigned long long sim_late_uploads() {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    return late_uploads;
}

// Queues an operation that does not end, like a training step that waits for other ranks.
API int sim_endless(void* handle) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    STREAM(handle)
    stream->queue.push_back({[] {}, {}, {}, 0, nullptr, 0, true});
    return SUCCESS;
}

// Lets all endless operations end.
API void sim_end_work() {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    for (auto& [handle, stream] : streams)
        for (auto& operation : stream.queue) operation.endless = false;
    holding = false;
    released.notify_all();
}

// From now on, calls of the JPEG engines end only when sim_end_work is called. If the host waits
// for such a call, it waits until then.
API void sim_hold_engines() {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    holding = true;
}

API int sim_engines_are_held() {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    return holding;
}

API unsigned long long sim_samples_run() {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    return samples_run;
}

// ---- functions for the simulated nvJPEG ----

API int sim_enter(const char* name) {
    ENTER(name)
    return SUCCESS;
}

API void sim_objects(long change) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    counts.nvjpeg_objects += change;
}

API void sim_destroyed_in_use() {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    counts.destroyed_in_use++;
}

// nvJPEG contains the CUDA runtime, which fails if the context ends. So the context must be kept,
// and does not count as a leak.
API void sim_context_used() {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    if (Context* here = current()) here->used_by_nvjpeg = true;
}

// Returns the current context, or null if there is none or it has ended.
API void* sim_current() {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    return current();
}

// Counts a call with which the real library would crash or return wrong pixels.
API void sim_misused(const char* what) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    fprintf(stderr, "simulated nvJPEG: %s\n", what);
    counts.misused++;
}

API int sim_pinned(const void* bytes, size_t count) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    return within(pinned_memory, bytes, count);
}

API void sim_wrote(void* bytes, size_t count) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    wrote(bytes, count);
}

// Runs the function before all work that is queued in streams, as engines do that ignore the order
// of streams.
API void sim_run_now(void (*function)(void*), void* data) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    function(data);
}

API int sim_enqueue(void* handle, void (*function)(void*), void* data) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    STREAM(handle)
    if (stream->context != current()) sim_misused("a stream of another context than the current one");
    stream->queue.push_back({[=] { function(data); }, {}, {}, 0, nullptr, DECODE_NS});
    schedule();
    return SUCCESS;
}
