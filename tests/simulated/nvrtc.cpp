// A simulated run-time compiler. The machine's C++ compiler creates a shared object in place of a
// cubin. If the environment variable SIM_NVRTC is the path of NVIDIA's library, that library
// compiles instead, and its PTX replaces the cubin (executor.h).
#include "simulated.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <type_traits>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace {

struct Program {
    std::string source, log, image;
    bool is_virtual = false;
};

std::string slurp(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream content;
    content << file.rdbuf();
    return content.str();
}

unsigned long long compilations = 0, openings = 0;
std::vector<int> architectures = {75, 80, 86, 89, 90, 100, 120};
char last_target[32] = "";
std::string last_log;

// Functions of NVIDIA's library.
struct Nvrtc {
    int (*create)(void**, const char*, const char*, int, const char* const*, const char* const*);
    int (*destroy)(void**);
    int (*compile)(void*, int, const char* const*);
    int (*ptx_size)(void*, size_t*);
    int (*ptx)(void*, char*);
    int (*log_size)(void*, size_t*);
    int (*log)(void*, char*);

    explicit Nvrtc(const char* path) {
        void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            fprintf(stderr, "simulated compiler: SIM_NVRTC: %s\n", dlerror());
            abort();
        }
        auto find = [=](auto& function, const char* name) {
            function = (std::remove_reference_t<decltype(function)>)dlsym(library, name);
            if (!function) abort();
        };
        find(create, "nvrtcCreateProgram");
        find(destroy, "nvrtcDestroyProgram");
        find(compile, "nvrtcCompileProgram");
        find(ptx_size, "nvrtcGetPTXSize");
        find(ptx, "nvrtcGetPTX");
        find(log_size, "nvrtcGetProgramLogSize");
        find(log, "nvrtcGetProgramLog");
    }
};

// Returns NVIDIA's library, or null if SIM_NVRTC is not set.
Nvrtc* nvrtc() {
    static Nvrtc* made = getenv("SIM_NVRTC") ? new Nvrtc(getenv("SIM_NVRTC")) : nullptr;
    return made;
}

std::string image_of(const Program& program, int architecture, const std::string& code, bool device_code) {
    SimImage header;
    memcpy(header.magic, program.is_virtual ? SIM_PTX_MAGIC : SIM_CUBIN_MAGIC, sizeof header.magic);
    header.architecture = architecture;
    header.bytes = code.size();
    header.device_code = device_code;
    return std::string((char*)&header, sizeof header) + code;
}

// Compiles with NVIDIA's library. Adds line numbers to the caller's options for error reports. The
// result is PTX even if machine code is requested.
int compile_for_device(Program* program, int architecture, int count, const char* const* given) {
    std::vector<const char*> options(given, given + count);
    options.push_back("-lineinfo");
    options.push_back("--ptxas-options=-v");
    void* real = nullptr;
    int code = nvrtc()->create(&real, program->source.c_str(), "feedwater.cu", 0, nullptr, nullptr);
    if (code) return code;
    code = nvrtc()->compile(real, options.size(), options.data());
    size_t bytes = 0;
    nvrtc()->log_size(real, &bytes);
    program->log.resize(bytes);
    nvrtc()->log(real, program->log.data());
    last_log = program->log = program->log.c_str();
    if (!code) code = nvrtc()->ptx_size(real, &bytes);
    std::string ptx(code ? 0 : bytes, 0);
    if (!code) code = nvrtc()->ptx(real, ptx.data());
    if (!code) program->image = image_of(*program, architecture, ptx, true);
    nvrtc()->destroy(&real);
    return code;
}

// Compiles for this machine. Compiled kernels are kept beside this library, for all test programs.
int compile_for_host(Program* program, int architecture) {
    namespace fs = std::filesystem;
    const char* compiler = getenv("CXX");
    std::string command = std::string(compiler ? compiler : "c++") +
                          " -x c++ -std=c++17 -O1 -ffp-contract=off -fno-strict-aliasing -fPIC -shared -Wl,-Bsymbolic";
    Dl_info library;
    if (!dladdr((void*)compile_for_host, &library)) return 1;
    std::string number = std::to_string(std::hash<std::string>()(command + program->source));
    fs::path kept = fs::path(library.dli_fname).replace_filename("compiled-" + number + ".so");
    int status = 0;
    if (!fs::exists(kept)) {
        std::string name = kept.string() + "-XXXXXX";
        if (!mkdtemp(name.data())) return 1;
        fs::path directory = name;
        std::ofstream(directory / "kernel.cpp") << program->source;
        command += " -o '" + (directory / "kernel.so").string() + "' '" + (directory / "kernel.cpp").string() + "' 2> '" +
                   (directory / "log").string() + "'";
        status = system(command.c_str());
        program->log = slurp(directory / "log");
        if (status == 0) fs::rename(directory / "kernel.so", kept);
        fs::remove_all(directory);
    }
    if (status == 0) program->image = image_of(*program, architecture, slurp(kept), false);
    return status == 0 ? 0 : 6;            // NVRTC_ERROR_COMPILATION
}

}  // namespace

API int nvrtcVersion(int* major, int* minor) {
    __atomic_fetch_add(&openings, 1, __ATOMIC_RELAXED);
    *major = 13;
    *minor = 0;
    return 0;
}

API int nvrtcCreateProgram(Program** program, const char* source, const char*, int, const char* const*,
                           const char* const*) {
    *program = new Program{source};
    return 0;
}

API int nvrtcDestroyProgram(Program** program) {
    delete *program;
    *program = nullptr;
    return 0;
}

API int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
    int architecture = 0;
    for (int i = 0; i < count; i++) {
        program->is_virtual |= sscanf(options[i], "--gpu-architecture=compute_%d", &architecture) == 1;
        sscanf(options[i], "--gpu-architecture=sm_%d", &architecture);
    }
    bool known = std::find(architectures.begin(), architectures.end(), architecture) != architectures.end();
    if (!known) return 5;                  // NVRTC_ERROR_INVALID_OPTION
    snprintf(last_target, sizeof last_target, "%s_%d", program->is_virtual ? "compute" : "sm", architecture);
    __atomic_fetch_add(&compilations, 1, __ATOMIC_RELAXED);
    if (nvrtc()) return compile_for_device(program, architecture, count, options);
    return compile_for_host(program, architecture);
}

API int nvrtcGetNumSupportedArchs(int* count) {
    *count = architectures.size();
    return 0;
}

API int nvrtcGetSupportedArchs(int* out) {
    std::copy(architectures.begin(), architectures.end(), out);
    return 0;
}

// Code for a virtual architecture has no machine code, so the size is 0.
API int nvrtcGetCUBINSize(Program* program, size_t* bytes) {
    *bytes = program->is_virtual ? 0 : program->image.size();
    return 0;
}

API int nvrtcGetPTXSize(Program* program, size_t* bytes) {
    *bytes = program->image.size();
    return 0;
}

API int nvrtcGetPTX(Program* program, char* out) {
    memcpy(out, program->image.data(), program->image.size());
    return 0;
}

API int nvrtcGetCUBIN(Program* program, char* out) {
    if (!program->is_virtual) memcpy(out, program->image.data(), program->image.size());
    return 0;
}

API int nvrtcGetProgramLogSize(Program* program, size_t* bytes) {
    *bytes = program->log.size() + 1;
    return 0;
}

API int nvrtcGetProgramLog(Program* program, char* out) {
    memcpy(out, program->log.c_str(), program->log.size() + 1);
    return 0;
}

API const char* nvrtcGetErrorString(int code) {
    return code == 5 ? "NVRTC_ERROR_INVALID_OPTION" : "NVRTC_ERROR";
}

// Sets the architectures that the compiler supports, in ascending order.
API void sim_nvrtc_set_architectures(const int* known, int count) { architectures.assign(known, known + count); }

// Returns the architecture of the last compilation, such as "sm_90".
API const char* sim_nvrtc_target() { return last_target; }

// Returns the log that NVIDIA's library wrote during the last compilation.
API const char* sim_nvrtc_log() { return last_log.c_str(); }

API unsigned long long sim_compilations() { return __atomic_load_n(&compilations, __ATOMIC_RELAXED); }

// Returns the number of queries of the version, one for each time that the library was opened.
API unsigned long long sim_compiler_openings() { return __atomic_load_n(&openings, __ATOMIC_RELAXED); }
