// A simulated NVML with one device. A test sets its readings, or the environment variable SIM_NVML:
// seven numbers in the order of the enumeration below, separated by commas. Every call is counted
// and can be made to fail, like calls of the driver. Readings that are not set are unsupported.
#define SIM_NVJPEG
#include "simulated.h"

#include <cstdlib>
#include <cstring>

#define API extern "C" __attribute__((visibility("default")))

namespace {

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

long initialised = 0;
char device;
// Units of the readings: percent, percent, percent, bytes, bytes, KB/s, KB/s. A negative value
// means that the reading is unsupported.
enum { GPU, JPEG, DECODER, USED, TOTAL, SENT, RECEIVED, READINGS };
long long readings[READINGS];

__attribute__((constructor)) void take_readings() {
    const char* next = getenv("SIM_NVML");
    for (auto& reading : readings) {
        char* end = nullptr;
        reading = next ? strtoll(next, &end, 10) : -1;
        next = end && *end == ',' ? end + 1 : nullptr;
    }
}

}  // namespace

#define ENTER(name) if (int code = sim_enter(name)) return code;
#define NEED(handle) if (!initialised) return UNINITIALIZED; if (handle != &device) return INVALID_ARGUMENT;

// Sets a reading.
API void sim_nvml_set(int reading, long long value) { readings[reading] = value; }
API void sim_nvml_reset() { for (auto& reading : readings) reading = -1; }
API long sim_nvml_initialised() { return initialised; }

API int nvmlInit_v2() { ENTER("nvmlInit_v2") initialised++; return SUCCESS; }
API int nvmlShutdown() {
    sim_enter("nvmlShutdown");
    if (!initialised) return UNINITIALIZED;
    initialised--;
    return SUCCESS;
}
API const char* nvmlErrorString(int code) { return code == NOT_FOUND ? "Not Found" : "Simulated Error"; }

API int nvmlSystemGetNVMLVersion(char* text, unsigned bytes) {
    ENTER("nvmlSystemGetNVMLVersion")
    strncpy(text, "13.580.0", bytes);
    return SUCCESS;
}

API int nvmlDeviceGetHandleByPciBusId_v2(const char* place, void** out) {
    ENTER("nvmlDeviceGetHandleByPciBusId_v2")
    if (!initialised) return UNINITIALIZED;
    if (strcmp(place, "00000002:1b:03.0")) return NOT_FOUND;      // the address that cuda.cpp gives
    *out = &device;
    return SUCCESS;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** out) {
    ENTER("nvmlDeviceGetHandleByIndex_v2")
    if (!initialised) return UNINITIALIZED;
    if (index) return INVALID_ARGUMENT;
    *out = &device;
    return SUCCESS;
}

API int nvmlDeviceGetUtilizationRates(void* handle, unsigned* rates) {
    ENTER("nvmlDeviceGetUtilizationRates")
    NEED(handle)
    if (readings[GPU] < 0) return NOT_SUPPORTED;
    rates[0] = readings[GPU];
    rates[1] = 99;                         // utilization of memory, which feedwater must not report as that of the GPU
    return SUCCESS;
}

API int nvmlDeviceGetMemoryInfo(void* handle, unsigned long long* total_free_used) {
    ENTER("nvmlDeviceGetMemoryInfo")
    NEED(handle)
    if (readings[TOTAL] < 0) return NOT_SUPPORTED;
    total_free_used[0] = readings[TOTAL];
    total_free_used[1] = readings[TOTAL] - readings[USED];
    total_free_used[2] = readings[USED];
    return SUCCESS;
}

static int engine(int reading, unsigned* percent, unsigned* microseconds) {
    if (readings[reading] < 0) return NOT_SUPPORTED;
    *percent = readings[reading];
    *microseconds = 167000;
    return SUCCESS;
}

API int nvmlDeviceGetJpgUtilization(void* handle, unsigned* percent, unsigned* microseconds) {
    ENTER("nvmlDeviceGetJpgUtilization")
    NEED(handle)
    return engine(JPEG, percent, microseconds);
}

API int nvmlDeviceGetDecoderUtilization(void* handle, unsigned* percent, unsigned* microseconds) {
    ENTER("nvmlDeviceGetDecoderUtilization")
    NEED(handle)
    return engine(DECODER, percent, microseconds);
}

API int nvmlDeviceGetPcieThroughput(void* handle, unsigned counter, unsigned* kilobytes) {
    ENTER("nvmlDeviceGetPcieThroughput")
    NEED(handle)
    if (counter > 1) return INVALID_ARGUMENT;
    long long reading = readings[counter == 0 ? SENT : RECEIVED];
    if (reading < 0) return NOT_SUPPORTED;
    *kilobytes = reading;
    return SUCCESS;
}
