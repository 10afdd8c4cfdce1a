/* Event sets: the file's growing list `event.<n>=<gpu> <type> <data>`, n from 1 to `event.count`.
 *
 * A set delivers, in order and once, what was added after a GPU was registered in it.
 */
#include "stub.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    nvmlDevice_t device;
    u64 type, data;
    unsigned int gpu_instance, compute_instance;
} nvmlEventData_t;

struct event_set {
    pthread_mutex_t lock;
    u64 types[MAX_GPUS];
    u64 since[MAX_GPUS];
    u64 delivered;
};

enum { SUPPORTED = 0x1 | 0x2 | 0x8 | 0x10, POLL_MS = 10 };

static u64 last_event(void)
{
    char value[VALUE_MAX];
    return stub_get("event.count", value) ? strtoull(value, NULL, 10) : 0;
}

API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *out)
{
    nvmlReturn_t status = stub_enter(__func__);
    if (status != NVML_SUCCESS)
        return status;
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return NVML_ERROR_UNKNOWN;
    pthread_mutex_init(&(*out)->lock, NULL);
    (*out)->delivered = last_event();
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    if (set == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    pthread_mutex_destroy(&set->lock);
    free(set);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, u64 *out)
{
    int gpu;
    nvmlReturn_t status = stub_enter_gpu(__func__, device, &gpu);
    if (status == NVML_SUCCESS)
        *out = SUPPORTED;
    return status;
}

API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, u64 types, nvmlEventSet_t set)
{
    int gpu;
    nvmlReturn_t status = stub_enter_gpu(__func__, device, &gpu);
    if (status != NVML_SUCCESS)
        return status;
    if (set == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (types & ~(u64)SUPPORTED)
        return NVML_ERROR_NOT_SUPPORTED;
    pthread_mutex_lock(&set->lock);
    set->types[gpu] |= types;
    set->since[gpu] = last_event();
    pthread_mutex_unlock(&set->lock);
    return NVML_SUCCESS;
}

/* The next event this set wants, if there is one already. */
static int next_event(struct event_set *set, nvmlEventData_t *out)
{
    u64 last = last_event();
    if (last < set->delivered) { /* the node was rebooted: its list began anew */
        set->delivered = 0;
        memset(set->since, 0, sizeof set->since);
    }
    while (set->delivered < last) {
        char key[KEY_MAX], value[VALUE_MAX];
        u64 number = ++set->delivered, type, data;
        int gpu;
        snprintf(key, sizeof key, "event.%llu", number);
        if (!stub_get(key, value) || sscanf(value, "%d %llu %llu", &gpu, &type, &data) != 3)
            continue;
        if (gpu < 0 || gpu >= MAX_GPUS || !(set->types[gpu] & type) || number <= set->since[gpu])
            continue;
        *out = (nvmlEventData_t){.device = stub_handle(gpu), .type = type, .data = data,
                                 .gpu_instance = 0xffffffff, .compute_instance = 0xffffffff};
        return 1;
    }
    return 0;
}

static u64 now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (u64)now.tv_sec * 1000 + (u64)now.tv_nsec / 1000000;
}

API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *out, unsigned int timeout_ms)
{
    const struct timespec nap = {.tv_nsec = POLL_MS * 1000000};
    u64 deadline = now_ms() + timeout_ms;
    if (set == NULL || out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (;;) {
        nvmlReturn_t status = stub_enter(__func__);
        if (status != NVML_SUCCESS)
            return status;
        pthread_mutex_lock(&set->lock);
        int found = next_event(set, out);
        pthread_mutex_unlock(&set->lock);
        if (found)
            return NVML_SUCCESS;
        if (now_ms() >= deadline)
            return NVML_ERROR_TIMEOUT;
        nanosleep(&nap, NULL);
    }
}
