// The simulated machine: its memory, the queues of its streams, and the scheduler. This file is a
// part of cuda.cpp.
#pragma once
#include "executor.h"
#include "simulated.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace {

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200, NO_BINARY_FOR_GPU = 209,
       UNSUPPORTED_PTX_VERSION = 222,
       INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, CONTEXT_IS_DESTROYED = 709, CAPTURE_UNSUPPORTED = 900 };

constexpr size_t GUARD_BYTES = 64;
constexpr size_t CODE_BYTES = 1 << 20;                 // device memory for code, allocated at a kernel's first launch
constexpr unsigned char POISON = 0xCD, GUARD = 0xA5;

// Durations of operations in their streams, in nanoseconds. The constants are arbitrary, not
// measured.
constexpr unsigned long long COPY_NS = 1;              // per byte copied or set
constexpr unsigned long long KERNEL_NS = 1000;         // per layer of a kernel's grid
constexpr unsigned long long DECODE_NS = 5000;         // per operation of nvJPEG

constexpr int MOST_DEVICES = 8;

// The primary context of a device. Its address is its handle. The context ends when it has been
// released as often as it was retained.
struct Context {
    unsigned long long retains = 0, life = 0;
    bool used_by_nvjpeg = false;
    unsigned long long bytes = 0, launches = 0;        // device memory in use; launches since the last reset
    char legacy_stream;                                // its address is the key of the legacy default stream
    std::set<void*> thread_streams;                    // default streams of threads
    void* memory = nullptr;                            // memory object of the interpreter
};

// Binding of a thread to a context. The binding ends with the context.
struct Binding { Context* context; unsigned long long life; };

struct Event {
    Context* context = nullptr;
    unsigned long long recorded = 0;                   // number of records, which count from 1
    bool timed = false;
    const struct Stream* stream = nullptr;             // stream of the last record
    std::map<unsigned long long, unsigned long long> times;  // the stream's time at each record that was reached

    void reach(unsigned long long generation, unsigned long long time) { times[generation] = time; }
    // Records in different streams may be reached in another order than that of their calls.
    bool reached(unsigned long long generation) const { return generation == 0 || times.count(generation); }
    unsigned long long time(unsigned long long generation) const {
        auto found = times.find(generation);
        return found == times.end() ? 0 : found->second;
    }
};
typedef std::shared_ptr<Event> EventRef;

struct Operation {
    std::function<void()> run;             // empty for a wait
    EventRef wait, record;                 // event that the operation waits for or records
    unsigned long long generation = 0;
    void* module = nullptr;                // module of the kernel that the operation runs
    unsigned long long cost = 0;           // nanoseconds
    bool endless = false;                  // runs until sim_end_work
};

// A stream. Its clock adds up the durations of the stream's operations, and advances to the times
// of events for which the stream waits. The times therefore do not depend on the schedule. The host
// has no simulated time.
struct Stream {
    Context* context = nullptr;
    std::deque<Operation> queue;
    unsigned long long time = 0;
    bool waited = false, copied_behind = false;   // since the last kernel: waited for an event; uploaded after that wait
};

struct Module {
    Context* context;
    void* library;                         // shared object, or module of the interpreter
    bool device_code;
    std::vector<struct Function*> functions;
};

struct Function {
    void (*host)(void**, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned);
    std::string name;
    std::vector<std::pair<size_t, size_t>> params;     // offset and bytes
    void* code;                            // module of the interpreter, or null
    void* module;
    Context* context;
    int most_shared = 48 << 10;           // dynamic shared memory per block, in bytes
    bool launched = false;
    int carveout = -1;                     // percent of a multiprocessor's memory for shared memory; -1: the driver's choice
};

struct Allocation {
    size_t bytes;
    Context* context;
};
typedef std::map<uintptr_t, Allocation> Memory;

struct Failure {
    std::string name;                      // empty: counts all calls
    long countdown;
    int code;
};

std::recursive_mutex mutex;
std::condition_variable_any released;      // sim_end_work was called
bool holding = false;                      // calls of the JPEG engines do not end until sim_end_work
unsigned long long samples_run = 0;        // number of layers of the kernels that ran
std::map<void*, Stream> streams;           // by handle, or by the key of a default stream
std::map<void*, EventRef> events;
std::map<void*, Module> modules;
Memory device_memory, pinned_memory;
std::map<std::string, unsigned long long> calls;
std::vector<Failure> failures;
std::mt19937_64 scheduler;
sim_schedule_mode mode = SIM_LAZY;
SimCounts counts;
int devices = 1, sticky = SUCCESS;
unsigned capability = 90;                  // compute capability of every device: 10 * major + minor
bool compiles_ptx = true;
size_t code_bytes = 0;                     // device memory for the code of launched kernels (lazy loading)
unsigned long long late_uploads = 0;       // number of uploads for a kernel that were enqueued after a wait in its stream
int most_resident = 0;                     // blocks per multiprocessor at the last launch, limited by shared memory
std::array<unsigned, 3> last_grid;         // blocks of the last launch: columns, rows, layers
unsigned long long memory_limit = ~0ull;
unsigned long long all_kernel_faults = 0, launch_number = 0;
bool every_schedule = false;
SimTotals totals;                          // since the last reset
Context contexts[MOST_DEVICES];            // one for each device
thread_local std::vector<Binding> bindings;  // the thread's stack of contexts; the last one is current
thread_local int capture_mode = 0;         // 0: global
std::atomic<bool> capturing{false};
thread_local char thread_stream[MOST_DEVICES];  // their addresses are the keys of the thread's default streams

// Returns the counters for tests. A context that nvJPEG needs does not count as a leak.
SimCounts told() {
    SimCounts it = counts;
    for (Context& context : contexts)
        if (context.used_by_nvjpeg && context.retains > 0) it.contexts--;
    return it;
}

// Returns the current context, or null if there is none or it has ended.
Context* current() {
    if (bindings.empty()) return nullptr;
    auto [context, life] = bindings.back();
    return context->retains > 0 && context->life == life ? context : nullptr;
}

Context* context_of(void* handle) {
    for (Context& context : contexts)
        if (&context == handle) return &context;
    return nullptr;
}

const Allocation* find(const Memory& memory, const void* pointer, size_t bytes) {
    uintptr_t start = (uintptr_t)pointer;
    auto next = memory.upper_bound(start);
    if (next == memory.begin()) return nullptr;
    --next;
    return start + bytes <= next->first + next->second.bytes ? &next->second : nullptr;
}

bool within(const Memory& memory, const void* pointer, size_t bytes) { return find(memory, pointer, bytes); }

// Tells the interpreter that device memory was written, but not by a kernel.
void wrote(const void* pointer, size_t bytes) {
    Executor* executor = ::executor();
    const Allocation* found = executor && bytes ? find(device_memory, pointer, bytes) : nullptr;
    if (found) executor->wrote(found->context->memory, (uintptr_t)pointer, bytes);
}

void kernel_faults(uint64_t count) {
    counts.kernel_faults += count;
    all_kernel_faults += count;
}

// Reports that the host reads memory to which nothing was written. On a real GPU, such memory may
// have bytes of another batch.
void read_by_host(const void* pointer, size_t bytes) {
    Executor* executor = ::executor();
    const Allocation* found = executor && bytes ? find(device_memory, pointer, bytes) : nullptr;
    if (!found || executor->is_written(found->context->memory, (uintptr_t)pointer, bytes)) return;
    report("the host reads device memory that was never written");
    kernel_faults(1);
}

bool runnable(const Stream& stream) {
    const Operation& head = stream.queue.front();
    return !head.endless && (!head.wait || head.wait->reached(head.generation));
}

void run_head(Stream& stream) {
    Operation operation = std::move(stream.queue.front());
    stream.queue.pop_front();
    counts.operations++;
    if (operation.run) operation.run();
    if (operation.wait) stream.time = std::max(stream.time, operation.wait->time(operation.generation));
    stream.time += operation.cost;
    if (operation.record) operation.record->reach(operation.generation, stream.time);
}

bool reach(const EventRef& event, unsigned long long generation);
void schedule();

// Runs the next operation of this stream after the operations for which it waits, and perhaps
// operations of other streams. Returns false if an endless operation is before it.
bool advance(Stream& stream) {
    if (stream.queue.front().endless) return false;
    if (!runnable(stream)) {
        EventRef event = stream.queue.front().wait;
        if (!reach(event, stream.queue.front().generation)) return false;
    }
    if (!stream.queue.empty() && runnable(stream)) run_head(stream);
    if (mode == SIM_RANDOM) schedule();
    return true;
}

bool reach(const EventRef& event, unsigned long long generation) {
    while (!event->reached(generation)) {
        Stream* holder = nullptr;
        for (auto& [handle, stream] : streams)
            for (auto& operation : stream.queue)
                if (operation.record == event && operation.generation == generation) holder = &stream;
        if (!holder) return true;          // the stream was destroyed after its work had ended
        if (!advance(*holder)) return false;
    }
    return true;
}

bool drain(Stream& stream) {
    while (!stream.queue.empty())
        if (!advance(stream)) return false;
    return true;
}

bool drain_all() {
    bool drained = true;
    for (auto& [handle, stream] : streams) drained &= drain(stream);
    return drained;
}

bool drain(Context* context) {
    bool drained = true;
    for (auto& [handle, stream] : streams)
        if (stream.context == context) drained &= drain(stream);
    return drained;
}

// Counts misuse if the host waits for endless work, because it would wait forever.
void wait(bool ended) {
    if (ended) return;
    fprintf(stderr, "simulated driver: the host waits for work that does not end\n");
    counts.misused++;
}

template <class Ended> void wait_until(Ended ended) {
    bool has = ended();
    while (!has && holding) {
        released.wait(mutex);
        has = ended();
    }
    wait(has);
}


// Called after each call that does not wait. Runs the operations that the schedule selects.
void schedule() {
    if (mode == SIM_EAGER) return (void)drain_all();
    if (mode != SIM_RANDOM) return;
    if (scheduler() % 2) return;
    for (unsigned long long steps = scheduler() % 4; steps > 0; steps--) {
        std::vector<Stream*> ready;
        for (auto& [handle, stream] : streams)
            if (!stream.queue.empty() && runnable(stream)) ready.push_back(&stream);
        if (ready.empty()) return;
        run_head(*ready[scheduler() % ready.size()]);
    }
}

int enter(const char* name) {
    calls[name]++;
    counts.calls++;
    for (size_t i = 0; i < failures.size(); i++) {
        if (!failures[i].name.empty() && failures[i].name != name) continue;
        if (--failures[i].countdown == 0) {
            int code = failures[i].code;
            failures.erase(failures.begin() + i);
            counts.injected++;
            return code;
        }
    }
    return SUCCESS;
}

// Returns memory that is filled with POISON, or null. It consists of copies of one file, so pages
// that nobody writes take no memory and no time.
void* poisoned(size_t bytes) {
    constexpr size_t PART = 4 << 20;
    static int file = [] {
        int made = memfd_create("poison", MFD_CLOEXEC);
        std::string part(PART, POISON);
        return made >= 0 && write(made, part.data(), PART) == PART ? made : -1;
    }();
    void* block = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return nullptr;
    for (size_t begin = 0; begin < bytes; begin += PART) {
        size_t part = std::min(PART, bytes - begin);
        void* place = (char*)block + begin;
        if (mmap(place, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED) {
            munmap(block, bytes);
            return nullptr;
        }
    }
    return block;
}

int allocate(Memory& memory, void** pointer, size_t bytes, SimMemory& count, Context* context) {
    if (bytes == 0) return INVALID_VALUE;
    if (count.bytes + bytes > memory_limit) return OUT_OF_MEMORY;
    void* block = poisoned(bytes + GUARD_BYTES);
    if (!block) return OUT_OF_MEMORY;
    memset((char*)block + bytes, GUARD, GUARD_BYTES);
    memory[(uintptr_t)block] = {bytes, context};
    if (&memory == &device_memory) {
        context->bytes += bytes;
        if (Executor* executor = ::executor()) {
            if (!context->memory) context->memory = executor->memory();
            executor->map(context->memory, (uintptr_t)block, bytes);
        }
    }
    count.allocations++;
    count.bytes += bytes;
    if (count.bytes > count.peak_bytes) count.peak_bytes = count.bytes;
    *pointer = block;
    return SUCCESS;
}

// Frees memory after a wait for all streams of its context, like cudaFree.
int release(Memory& memory, void* pointer, SimMemory& count) {
    auto found = memory.find((uintptr_t)pointer);
    if (found == memory.end()) return INVALID_VALUE;
    auto [bytes, context] = found->second;
    wait(drain(context));
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (((unsigned char*)pointer)[bytes + i] != GUARD) {
            counts.overruns++;
            break;
        }
    count.allocations--;
    count.bytes -= bytes;
    if (&memory == &device_memory) {
        context->bytes -= bytes;
        if (Executor* executor = ::executor()) executor->unmap(context->memory, (uintptr_t)pointer);
    }
    memory.erase(found);
    munmap(pointer, bytes + GUARD_BYTES);
    return SUCCESS;
}

Stream* default_stream(Context* context, void* key) {
    Stream& stream = streams[key];
    stream.context = context;
    return &stream;
}

// The next operation of the legacy default stream waits for the default streams of all threads. The
// driver also does the reverse, but this is not simulated, so that no code relies on it.
Stream* legacy_stream(Context* context) {
    Stream& legacy = *default_stream(context, &context->legacy_stream);
    for (void* handle : context->thread_streams) {
        Stream& other = streams[handle];
        if (other.queue.empty()) continue;
        auto event = std::make_shared<Event>();
        event->context = context;
        event->recorded = 1;
        other.queue.push_back({{}, {}, event, 1});
        legacy.queue.push_back({{}, event, {}, 1});
    }
    return &legacy;
}

// Returns a stream by its handle. The handles of default streams mean those of the current context,
// as in the driver.
Stream* stream_of(void* handle) {
    if ((uintptr_t)handle <= 2) {
        Context* context = current();
        if (!context) return nullptr;
        if (handle != (void*)2) return legacy_stream(context);             // CU_STREAM_LEGACY is 1
        void* key = &thread_stream[context - contexts];                    // CU_STREAM_PER_THREAD
        context->thread_streams.insert(key);
        return default_stream(context, key);
    }
    auto found = streams.find(handle);
    return found == streams.end() ? nullptr : &found->second;
}

// Ends a context. The driver then destroys all objects of the context, so none may be left.
void end(Context* context) {
    drain(context);
    size_t left = 0;
    for (auto& [handle, event] : events) left += event->context == context;
    for (auto& [handle, module] : modules) left += module.context == context;
    for (Memory* memory : {&device_memory, &pinned_memory})
        for (auto& [address, allocation] : *memory) left += allocation.context == context;
    for (auto it = streams.begin(); it != streams.end();) {
        bool own = it->second.context == context;
        bool by_default = it->first == &context->legacy_stream || context->thread_streams.count(it->first);
        left += own && !by_default;
        it = own && by_default ? streams.erase(it) : std::next(it);
    }
    context->thread_streams.clear();
    if (context->used_by_nvjpeg) fprintf(stderr, "simulated driver: nvJPEG's context is destroyed while in use\n");
    if (left) fprintf(stderr, "simulated driver: a context is destroyed with %zu of its objects\n", left);
    counts.misused += (left > 0) + context->used_by_nvjpeg;
}

}  // namespace
