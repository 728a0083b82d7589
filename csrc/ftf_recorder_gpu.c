/* CONTEXT: NORMAL. See ftf_recorder_parts.h. NVML is asked only when the job has loaded it (RTLD_NOLOAD) and only in the
   state the job put it in: without its nvmlInit() every question is answered by NVML_ERROR_UNINITIALIZED, and we leave it
   at that. The driver may answer late or, when a GPU has fallen off the bus, never: after one late answer it is asked no
   more, and ftf_watcher_stop() does not wait for a thread that is stuck in it. */
#include "ftf_recorder_parts.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define LATE_NS INT64_C(50000000)

/* nvml.h, stable since driver 285: nvmlReturn_t 0 is success, nvmlMemory_t are three unsigned long long. */
struct nvml_memory {
    unsigned long long total, free, used;
};
typedef int (*nvml_by_index)(unsigned, void **);
typedef int (*nvml_by_uuid)(const char *, void **);
typedef int (*nvml_memory_info)(void *, struct nvml_memory *);

static struct {
    nvml_by_index by_index;
    nvml_by_uuid by_uuid;
    nvml_memory_info memory;
    uint32_t found; /* set last */
    bool late;
    char device[80];
} nvml;

void ftf_gpu_find(const char *device)
{
    if (device && strcmp(nvml.device, device) != 0)
        strncpy(nvml.device, device, sizeof nvml.device - 1);
    if (__atomic_load_n(&nvml.found, __ATOMIC_ACQUIRE) || nvml.device[0] == 0)
        return;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        return; /* the reference that a success takes is kept: the functions must stay */
    void *by_index = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    void *by_uuid = dlsym(library, "nvmlDeviceGetHandleByUUID");
    void *memory = dlsym(library, "nvmlDeviceGetMemoryInfo");
    if (!by_index || !memory) {
        dlclose(library);
        return;
    }
    memcpy(&nvml.by_index, &by_index, sizeof by_index);
    memcpy(&nvml.by_uuid, &by_uuid, sizeof by_uuid);
    memcpy(&nvml.memory, &memory, sizeof memory);
    __atomic_store_n(&nvml.found, 1, __ATOMIC_RELEASE);
}

void ftf_gpu_slow(struct ftf_ring_slow *slow)
{
    if (!__atomic_load_n(&nvml.found, __ATOMIC_ACQUIRE) || nvml.late)
        return;
    struct nvml_memory memory;
    void *device = 0;
    bool number = nvml.device[0] >= '0' && nvml.device[0] <= '9';
    int64_t asked = ftf_clock_ns(CLOCK_MONOTONIC);
    nvml.late = true; /* as long as there is no answer */
    int result = number         ? nvml.by_index((unsigned)atoi(nvml.device), &device)
                 : nvml.by_uuid ? nvml.by_uuid(nvml.device, &device)
                                : -1;
    if (result == 0 && nvml.memory(device, &memory) == 0) {
        slow->gpu_used = memory.used;
        slow->gpu_total = memory.total;
    }
    nvml.late = ftf_clock_ns(CLOCK_MONOTONIC) - asked > LATE_NS;
}
