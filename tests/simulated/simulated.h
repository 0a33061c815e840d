// Declarations that the simulated libraries and the tests share. Must match mod.rs and counts.rs.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum sim_schedule_mode { SIM_LAZY = 0, SIM_EAGER = 1, SIM_RANDOM = 2 };

struct SimMemory {
    uint64_t allocations = 0, bytes = 0, peak_bytes = 0;
};

struct SimCounts {
    SimMemory device, pinned;
    uint64_t contexts = 0, streams = 0, events = 0, modules = 0, nvjpeg_objects = 0;    // number of objects that exist now
    uint64_t timed_events = 0;                                                           // number of those among `events` that record times
    uint64_t calls = 0, operations = 0, launches = 0, injected = 0;                      // since the last reset
    uint64_t overruns = 0, write_combined = 0, timed_waits = 0, destroyed_in_use = 0, misused = 0;    // wrong uses of the API or of memory
    uint64_t kernel_faults = 0;                                                          // faults that the interpreter found
};

// Statistics of the interpreter, summed over launches. The fields are explained in counts.rs.
struct SimTotals {
    uint64_t launches = 0, blocks = 0, instructions = 0, lanes = 0, branches = 0, divergent_branches = 0;
    uint64_t shared_wavefronts = 0, ideal_wavefronts = 0, sectors_loaded = 0, sectors_stored = 0, mma = 0, barriers = 0;
    uint64_t longest_blocks = 0;    // sum over launches of the instructions of the longest block
};

// Output of the simulated compiler: this header, followed by a shared object for the host, or by
// PTX with a NUL byte if NVRTC compiled it. For the host, cubins and PTX contain the same shared
// object, but the driver treats them differently.
#define SIM_CUBIN_MAGIC "SIMCUBIN"
#define SIM_PTX_MAGIC "SIM PTX "
struct SimImage {
    char magic[8];
    uint64_t architecture;                 // 90 for sm_90
    uint64_t bytes;
    uint64_t device_code;                  // 1 if PTX follows, 0 if a shared object follows
};

#ifdef SIM_NVJPEG
extern "C" {
int sim_enter(const char* name);
void sim_context_used();
void* sim_current();
void sim_objects(long change);
void sim_destroyed_in_use();
void sim_misused(const char* what);
int sim_pinned(const void* bytes, size_t count);
void sim_wrote(void* bytes, size_t count);
int sim_engines_are_held();
int sim_endless(void* stream);
int sim_enqueue(void* stream, void (*function)(void*), void* data);
void sim_run_now(void (*function)(void*), void* data);
}
#endif
