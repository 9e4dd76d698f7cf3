/* A stand-in for NVIDIA's NVML with two GPUs, the second cut into two slices. The environment says what goes wrong.

   FAKE_INIT, FAKE_MEMORY, FAKE_LIST   the code that nvmlInit_v2, memory queries and process lists answer with
   FAKE_COUNT                          number of GPUs (2)
   FAKE_HIDDEN                         the number of a GPU that may not be seen
   FAKE_UUID                           the whole of the first GPU's name
   FAKE_USED_MB                        memory in use on the first GPU
   FAKE_PROCESSES                      "device/pid/MB/percent ..."; MB of -1: the driver does not say
   FAKE_CLIENTS                        the same for processes under MPS
   FAKE_FOLDER                         a folder in which processes say what they take: a file named by the process with
                                       "MB percent device client", the last three at will; read at every call
   FAKE_TOTAL_MB                       memory of each whole GPU (81920)
   FAKE_SLICED                         the number of the GPU that is cut into slices (1); -1: none
   FAKE_STRIDE                         bytes from one process to the next (24)
   NO_V3, NO_V2, NO_MEMORY_V2, NO_MPS  (when compiled) an older driver */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int number; int slice; } Device; /* slice: -1 is the GPU itself */
static Device gpus[16];
static Device slices[2] = {{1, 0}, {1, 1}};

typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned int gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned int pid; unsigned long long usedGpuMemory; } nvmlProcessInfo_v1_t;
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;
typedef struct {
    unsigned int pid;
    unsigned long long timeStamp;
    unsigned int smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;

enum { OK = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, VERSION_MISMATCH = 25 };

static long number_of(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

static int initialised;

int nvmlInit_v2(void)
{
    for (int i = 0; i < 16; i++) gpus[i] = (Device){i, -1};
    initialised = 1;
    return (int)number_of("FAKE_INIT", OK);
}

int nvmlShutdown(void) { initialised = 0; return OK; }
int fakeInitialised(void) { return initialised; }

const char *nvmlErrorString(int code)
{
    static char text[40];
    snprintf(text, sizeof text, "fake words for %d", code);
    return text;
}

int nvmlSystemGetDriverVersion(char *text, unsigned int size) { snprintf(text, size, "550.54.15"); return OK; }

int nvmlDeviceGetCount_v2(unsigned int *count) { *count = (unsigned int)number_of("FAKE_COUNT", 2); return OK; }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device **device)
{
    if (number_of("FAKE_HIDDEN", -1) == (long)index) return NO_PERMISSION;
    *device = &gpus[index];
    return OK;
}

int nvmlDeviceGetUUID(Device *device, char *text, unsigned int size)
{
    const char *given = getenv("FAKE_UUID");
    if (device->slice >= 0) snprintf(text, size, "MIG-5c1ce000-0000-0000-0000-00000000000%d", device->slice);
    else if (device->number == 0 && given) snprintf(text, size, "%s", given);
    else snprintf(text, size, "GPU-%d0000000-aaaa-bbbb-cccc-0123456789ab", device->number + 1);
    return OK;
}

int nvmlDeviceGetName(Device *device, char *text, unsigned int size)
{
    snprintf(text, size, device->slice >= 0 ? "NVIDIA Fake MIG 1g.10gb" : "NVIDIA Fake");
    return OK;
}

static int is_sliced(Device *device) { return device->number == number_of("FAKE_SLICED", 1); }

static int wanted(Device *device, int number)
{
    /* "1" is the sliced GPU as a whole, "10" and "11" are its slices. */
    if (device->slice >= 0) return number == 10 + device->slice;
    return number == device->number || (is_sliced(device) && number >= 10);
}

/* "device/pid/MB/percent ..." of a variable, and of the folder's files that are of its kind. */
static const char *entries_of(const char *variable)
{
    static char text[1 << 16];
    const char *given = getenv(variable), *folder = getenv("FAKE_FOLDER");
    size_t length = (size_t)snprintf(text, sizeof text, "%s", given ? given : "");
    DIR *open = folder ? opendir(folder) : NULL;
    for (struct dirent *entry; open && (entry = readdir(open)) && length < sizeof text - 100;) {
        char path[4096], kind[16] = "";
        long pid = atol(entry->d_name), mb = 0;
        int percent = 0, device = 0;
        if (pid <= 0 || strchr(entry->d_name, '.') || kill((pid_t)pid, 0)) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        int found = fscanf(file, "%ld %d %d %15s", &mb, &percent, &device, kind);
        fclose(file);
        if (found < 1 || (strcmp(kind, "client") == 0) != (strcmp(variable, "FAKE_CLIENTS") == 0)) continue;
        length += (size_t)snprintf(text + length, 100, "%s%d/%ld/%ld/%d", length ? " " : "", device, pid, mb, percent);
    }
    if (open) closedir(open);
    return text;
}

/* What the processes of one kind on a device take together: MB, or percent. */
static long sum_of(const char *variable, Device *device, int of_memory)
{
    long sum = 0;
    for (const char *text = entries_of(variable); *text; text = strchr(text, ' ') ? strchr(text, ' ') + 1 : "") {
        int number, percent;
        long pid, mb;
        if (sscanf(text, "%d/%ld/%ld/%d", &number, &pid, &mb, &percent) != 4 || !wanted(device, number)) continue;
        sum += of_memory ? (mb > 0 ? mb : 0) : percent;
    }
    return sum;
}

static long sum_of_all(Device *device, int of_memory)
{
    return sum_of("FAKE_PROCESSES", device, of_memory) + sum_of("FAKE_CLIENTS", device, of_memory);
}

static unsigned long long total_mb(Device *device)
{
    return device->slice >= 0 ? 10240 : (unsigned long long)number_of("FAKE_TOTAL_MB", 81920);
}

static unsigned long long used_mb(Device *device)
{
    if (getenv("FAKE_FOLDER")) return (unsigned long long)(number_of("FAKE_USED_MB", 0) + sum_of_all(device, 1));
    if (device->slice >= 0) return 1000 + 500 * (unsigned)device->slice;
    return device->number == 0 ? (unsigned long long)number_of("FAKE_USED_MB", 3000) : 2500;
}

#ifndef NO_MEMORY_V2
int nvmlDeviceGetMemoryInfo_v2(Device *device, nvmlMemory_v2_t *memory)
{
    if (memory->version != (sizeof(nvmlMemory_v2_t) | (2u << 24))) return VERSION_MISMATCH;
    memory->total = total_mb(device) << 20;
    memory->reserved = 500ull << 20;
    memory->used = used_mb(device) << 20;
    memory->free = memory->total - memory->used - memory->reserved;
    return (int)number_of("FAKE_MEMORY", OK);
}
#endif

int nvmlDeviceGetMemoryInfo(Device *device, nvmlMemory_t *memory)
{
    memory->total = total_mb(device) << 20;
    memory->used = (used_mb(device) + 500) << 20;
    memory->free = memory->total - memory->used;
    return (int)number_of("FAKE_MEMORY", OK);
}

int nvmlDeviceGetUtilizationRates(Device *device, nvmlUtilization_t *rates)
{
    if (is_sliced(device)) return NOT_SUPPORTED;
    *rates = (nvmlUtilization_t){87, 23};
    if (getenv("FAKE_FOLDER")) {
        long percent = sum_of_all(device, 0);
        *rates = (nvmlUtilization_t){percent > 100 ? 100 : (unsigned)percent, 0};
    }
    return OK;
}

int nvmlDeviceGetMigMode(Device *device, unsigned int *current, unsigned int *pending)
{
    if (device->number > 1) return NOT_SUPPORTED; /* an older GPU */
    *current = *pending = is_sliced(device);
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned int *count) { (void)device; *count = 7; return OK; }

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned int index, Device **slice)
{
    (void)device;
    if (index != 0 && index != 4) return NOT_FOUND; /* places need not follow each other */
    *slice = &slices[index ? 1 : 0];
    return OK;
}

int nvmlDeviceGetGpuInstanceId(Device *device, unsigned int *id) { *id = 7 + (unsigned)device->slice; return OK; }

static int list(const char *name, Device *device, unsigned int *count, char *entries, size_t stride)
{
    const char *text = entries_of(name);
    unsigned int found = 0, room = *count;
    int code = (int)number_of("FAKE_LIST", OK);
    if (code && (device->slice >= 0 || code != NOT_SUPPORTED)) return code;
    for (; *text; text = strchr(text, ' ') ? strchr(text, ' ') + 1 : "") {
        int number, percent;
        long pid, mb;
        if (sscanf(text, "%d/%ld/%ld/%d", &number, &pid, &mb, &percent) != 4 || !wanted(device, number)) continue;
        if (found++ >= room) continue;
        nvmlProcessInfo_t entry = {(unsigned)pid, mb < 0 ? ~0ull : (unsigned long long)mb << 20, ~0u, ~0u};
        if (number >= 10) entry.gpuInstanceId = (unsigned)(7 + number - 10);
        char *place = entries + (found - 1) * stride;
        memcpy(place, &entry, stride < sizeof entry ? stride : sizeof entry);
        if (stride > sizeof entry) memset(place + sizeof entry, 0, stride - sizeof entry);
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}

#define STRIDE ((size_t)number_of("FAKE_STRIDE", sizeof(nvmlProcessInfo_t)))
#ifndef NO_V3
int nvmlDeviceGetComputeRunningProcesses_v3(Device *d, unsigned int *n, void *p) { return list("FAKE_PROCESSES", d, n, p, STRIDE); }
#ifndef NO_MPS
int nvmlDeviceGetMPSComputeRunningProcesses_v3(Device *d, unsigned int *n, void *p) { return list("FAKE_CLIENTS", d, n, p, STRIDE); }
#endif
#endif
#ifndef NO_V2
int nvmlDeviceGetComputeRunningProcesses_v2(Device *d, unsigned int *n, void *p) { return list("FAKE_PROCESSES", d, n, p, sizeof(nvmlProcessInfo_t)); }
#endif
int nvmlDeviceGetComputeRunningProcesses(Device *d, unsigned int *n, void *p) { return list("FAKE_PROCESSES", d, n, p, sizeof(nvmlProcessInfo_v1_t)); }

int nvmlDeviceGetProcessUtilization(Device *device, nvmlProcessUtilizationSample_t *samples, unsigned int *count, unsigned long long since)
{
    const char *text = entries_of("FAKE_PROCESSES");
    unsigned int found = 0;
    if (is_sliced(device)) return NOT_SUPPORTED;
    for (; *text; text = strchr(text, ' ') ? strchr(text, ' ') + 1 : "") {
        int number, percent;
        long pid, mb;
        if (sscanf(text, "%d/%ld/%ld/%d", &number, &pid, &mb, &percent) != 4 || !wanted(device, number)) continue;
        if (samples && found < *count) samples[found] = (nvmlProcessUtilizationSample_t){(unsigned)pid, since + 1000, (unsigned)percent, 0, 0, 0};
        found++;
    }
    if (!found) return NOT_FOUND;
    if (!samples) { *count = found + 1; return INSUFFICIENT_SIZE; }
    if (found < *count) memset(&samples[found], 0, sizeof *samples); /* drivers leave entries empty */
    return OK;
}
