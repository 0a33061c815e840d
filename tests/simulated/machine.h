// The simulated machine: memory, the queues of its streams, and their scheduler. Part of cuda.cpp.
#pragma once
#include "simulated.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
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

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
       INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, CAPTURE_UNSUPPORTED = 900 };

constexpr size_t GUARD_BYTES = 64;
constexpr size_t CODE_BYTES = 1 << 20;                 // that the driver allocates at a kernel's first launch
constexpr unsigned char POISON = 0xCD, GUARD = 0xA5;

// Time of an operation in its stream, in nanoseconds: arbitrary constants, not measurements.
constexpr unsigned long long COPY_NS = 1;              // per byte copied or set
constexpr unsigned long long KERNEL_NS = 1000;         // per layer of a kernel's grid
constexpr unsigned long long DECODE_NS = 5000;         // per operation of nvJPEG

struct Event {
    unsigned long long recorded = 0, reached = 0;
    bool timed = false;
    const struct Stream* stream = nullptr;             // of the last record
    std::vector<unsigned long long> times;             // of its stream, at each record

    void reach(unsigned long long generation, unsigned long long time) {
        if (times.size() < generation) times.resize(generation);
        times[generation - 1] = time;
        if (reached < generation) reached = generation;
    }
    unsigned long long time(unsigned long long generation) const {
        return generation > 0 && generation <= times.size() ? times[generation - 1] : 0;
    }
};
typedef std::shared_ptr<Event> EventRef;

struct Operation {
    std::function<void()> run;             // empty for a wait
    EventRef wait, record;                 // event that it waits for or records
    unsigned long long generation = 0;
    void* module = nullptr;                // module of a kernel
    unsigned long long cost = 0;           // nanoseconds
    bool endless = false;                  // until sim_end_work
};

// Each stream has its own clock, which adds up the times of its operations and advances to those of events it waits for. So times
// do not depend on the schedule. The time of the host is not simulated.
struct Stream {
    std::deque<Operation> queue;
    unsigned long long time = 0;
    bool waited = false, copied_behind = false;   // since its last kernel: waits for events, and uploads after them
};

struct Module {
    void* library;
    std::vector<struct Function*> functions;
};

struct Function {
    void (*host)(void**, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned);
    std::vector<size_t> param_bytes;
    void* module;
    int most_shared = 48 << 10;           // dynamic shared memory per block, in bytes
    bool launched = false;
    int carveout = -1;                     // percent of a multiprocessor's memory for shared memory; -1: the driver's choice
};

struct Failure {
    std::string name;                      // empty: any call
    long countdown;
    int code;
};

std::recursive_mutex mutex;
std::map<void*, Stream> streams;           // by handle; nullptr is the default stream
std::map<void*, EventRef> events;
std::map<void*, Module> modules;
std::map<uintptr_t, size_t> device_memory, pinned_memory;
std::map<std::string, unsigned long long> calls;
std::vector<Failure> failures;
std::mt19937_64 scheduler;
sim_schedule_mode mode = SIM_LAZY;
SimCounts counts;
bool context_used = false;                 // by nvJPEG
int devices = 1, sticky = SUCCESS;
size_t code_bytes = 0;                     // of kernels that were launched; lazy loading
unsigned long long late_uploads = 0;       // uploads that a kernel needs, enqueued behind a wait in its stream
int most_resident = 0;                     // blocks per multiprocessor by shared memory, at the last launch
unsigned long long memory_limit = ~0ull;
char context;                              // its address is the context
thread_local void* current = nullptr;
thread_local int capture_mode = 0;         // global
std::atomic<bool> capturing{false};
thread_local char thread_stream;           // its address is the handle of the thread's default stream
std::set<void*> thread_streams;

// Counters as reported to tests: the context that is kept for nvJPEG does not count as a leak.
SimCounts told() {
    SimCounts it = counts;
    if (context_used && it.contexts > 0) it.contexts--;
    return it;
}

bool within(const std::map<uintptr_t, size_t>& memory, const void* pointer, size_t bytes) {
    uintptr_t start = (uintptr_t)pointer;
    auto next = memory.upper_bound(start);
    if (next == memory.begin()) return false;
    --next;
    return start + bytes <= next->first + next->second;
}

bool runnable(const Stream& stream) {
    const Operation& head = stream.queue.front();
    return !head.endless && (!head.wait || head.wait->reached >= head.generation);
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

// Runs the next operation of this stream, after its waits; other streams may run ahead. False if work that does not end is
// before it.
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
    while (event->reached < generation) {
        Stream* holder = nullptr;
        for (auto& [handle, stream] : streams)
            for (auto& operation : stream.queue)
                if (operation.record == event && operation.generation == generation) holder = &stream;
        if (!holder) return true;          // the stream is destroyed, after its work was done
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

// A host that waits for work that does not end would wait forever.
void wait(bool ended) {
    if (ended) return;
    fprintf(stderr, "simulated driver: the host waits for work that does not end\n");
    counts.misused++;
}

// Runs the scheduler after a call that does not wait.
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

int allocate(std::map<uintptr_t, size_t>& memory, void** pointer, size_t bytes, SimMemory& count) {
    if (bytes == 0) return INVALID_VALUE;
    if (count.bytes + bytes > memory_limit) return OUT_OF_MEMORY;
    void* block = nullptr;
    if (posix_memalign(&block, 512, bytes + GUARD_BYTES)) return OUT_OF_MEMORY;
    memset(block, POISON, bytes);
    memset((char*)block + bytes, GUARD, GUARD_BYTES);
    memory[(uintptr_t)block] = bytes;
    count.allocations++;
    count.bytes += bytes;
    if (count.bytes > count.peak_bytes) count.peak_bytes = count.bytes;
    *pointer = block;
    return SUCCESS;
}

// Waits for all streams, as cudaFree does.
int release(std::map<uintptr_t, size_t>& memory, void* pointer, SimMemory& count) {
    auto found = memory.find((uintptr_t)pointer);
    if (found == memory.end()) return INVALID_VALUE;
    wait(drain_all());
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (((unsigned char*)pointer)[found->second + i] != GUARD) {
            counts.overruns++;
            break;
        }
    count.allocations--;
    count.bytes -= found->second;
    memory.erase(found);
    free(pointer);
    return SUCCESS;
}

// The next operation of the legacy default stream waits for the default streams of all threads. The reverse is not simulated, so
// that no code relies on it.
Stream* legacy_stream() {
    Stream& legacy = streams[nullptr];
    for (void* handle : thread_streams) {
        Stream& other = streams[handle];
        if (other.queue.empty()) continue;
        auto event = std::make_shared<Event>();
        event->recorded = 1;
        other.queue.push_back({{}, {}, event, 1});
        legacy.queue.push_back({{}, event, {}, 1});
    }
    return &legacy;
}

Stream* stream_of(void* handle) {
    if (!handle || handle == (void*)1) return legacy_stream();         // CU_STREAM_LEGACY
    if (handle == (void*)2) {                                          // CU_STREAM_PER_THREAD
        thread_streams.insert(&thread_stream);
        return &streams[&thread_stream];
    }
    auto found = streams.find(handle);
    return found == streams.end() ? nullptr : &found->second;
}

}  // namespace
