// Executes real device code: NVRTC compiles kernels (nvrtc.cpp), and the PTX interpreter
// (crates/ptx) executes them. The environment variable SIM_PTX is the path of the interpreter's
// shared library. If it is not set, kernels are shared objects for the host. This file is a part of
// cuda.cpp. It must match crates/ptx/src/c_interface.rs.
#pragma once
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

#include "simulated.h"

namespace {

struct PtxShape {
    uint32_t grid[3], block[3];
    uint64_t shared_bytes, number;
    int every_schedule;
};

struct Executor {
    void* (*memory)();
    int (*map)(void* memory, uint64_t address, uint64_t bytes);
    void (*unmap)(void* memory, uint64_t address);
    void (*wrote)(void* memory, uint64_t address, uint64_t bytes);
    int (*is_written)(const void* memory, uint64_t address, uint64_t bytes);
    void* (*parse)(const char* text, void (*report)(const char*));
    void (*forget)(void* module);
    int (*parameters)(const void* module, const char* kernel, uint64_t (*out)[2], size_t most);
    uint64_t (*launch)(const void* module, void* memory, const char* kernel, const PtxShape* shape, const void* params,
                       size_t bytes, SimTotals* totals, void (*report)(const char*));

    explicit Executor(const char* path) {
        void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            fprintf(stderr, "simulated driver: SIM_PTX: %s\n", dlerror());
            abort();
        }
        auto find = [=](auto& function, const char* name) {
            function = (std::remove_reference_t<decltype(function)>)dlsym(library, name);
            if (!function) abort();
        };
        find(memory, "feedwater_ptx_memory");
        find(map, "feedwater_ptx_map");
        find(unmap, "feedwater_ptx_unmap");
        find(wrote, "feedwater_ptx_wrote");
        find(is_written, "feedwater_ptx_is_written");
        find(parse, "feedwater_ptx_parse");
        find(forget, "feedwater_ptx_forget");
        find(parameters, "feedwater_ptx_parameters");
        find(launch, "feedwater_ptx_launch");
    }
};

// Returns the interpreter, or null if SIM_PTX is not set.
Executor* executor() {
    static Executor* made = getenv("SIM_PTX") ? new Executor(getenv("SIM_PTX")) : nullptr;
    return made;
}

void report(const char* message) { fprintf(stderr, "device code: %s\n", message); }

}  // namespace
