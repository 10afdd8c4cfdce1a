/* AMD SMI as a stub: the few calls of libamd_smi.so that the agent makes, answered from a state file.
 *
 * The file named by PROBING_AMDSMI_STATE holds lines `key=value`, read anew at every call. `gpu.count` GPUs are
 * there; a question about GPU 3 looks for `gpu.3.<key>`; a key that is nowhere is NOT_SUPPORTED. Keys: bdf
 * (0000:c1:00.0), uuid, missing (1: it is not listed), status (a status code that every call about it returns),
 * hang (1: calls about it never return), correctable, uncorrectable, deferred, temperature, temperature_critical.
 * Without the file the driver is not loaded.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

enum { SUCCESS = 0, INVAL = 1, NOT_SUPPORTED = 2, DRIVER_NOT_LOADED = 34 };
enum { MAX_GPUS = 64, HOTSPOT = 1, VRAM = 2, CURRENT = 0, CRITICAL = 5, AMD_GPU = 1 };

typedef void *handle;
typedef struct {
    uint64_t correctable, uncorrectable, deferred, reserved[5];
} error_count;

static char socket_mark;
static char gpus[MAX_GPUS];

/* The value of `key` into `value`; 0 when it is nowhere, -1 when there is no file. */
static int look_up(const char *key, char *value, size_t size)
{
    const char *path = getenv("PROBING_AMDSMI_STATE");
    FILE *file = path ? fopen(path, "re") : NULL;
    char line[512];
    size_t length = strlen(key);
    int found = 0;
    if (file == NULL)
        return -1;
    while (!found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, key, length) == 0 && line[length] == '=') {
            snprintf(value, size, "%s", line + length + 1);
            found = 1;
        }
    }
    fclose(file);
    return found;
}

static int of_gpu(handle gpu, const char *key, char *value, size_t size)
{
    char name[64];
    snprintf(name, sizeof name, "gpu.%d.%s", (int)((char *)gpu - gpus), key);
    return look_up(name, value, size);
}

/* What stands before every answer about a GPU: that it is one, that it answers at all. */
static int before(handle gpu)
{
    char value[64];
    if ((char *)gpu < gpus || (char *)gpu >= gpus + MAX_GPUS)
        return INVAL;
    while (of_gpu(gpu, "hang", value, sizeof value) > 0 && value[0] == '1')
        usleep(100000);
    return of_gpu(gpu, "status", value, sizeof value) > 0 ? atoi(value) : SUCCESS;
}

static int number(handle gpu, const char *key, int64_t *out)
{
    char value[64];
    if (of_gpu(gpu, key, value, sizeof value) <= 0)
        return NOT_SUPPORTED;
    *out = strtoll(value, NULL, 10);
    return SUCCESS;
}

API int amdsmi_init(uint64_t flags)
{
    char value[64];
    (void)flags;
    return look_up("gpu.count", value, sizeof value) < 0 ? DRIVER_NOT_LOADED : SUCCESS;
}

API int amdsmi_shut_down(void)
{
    return SUCCESS;
}

API int amdsmi_get_socket_handles(uint32_t *count, handle *sockets)
{
    if (sockets != NULL && *count > 0)
        sockets[0] = &socket_mark;
    *count = 1;
    return SUCCESS;
}

API int amdsmi_get_processor_handles(handle socket, uint32_t *count, handle *processors)
{
    char value[64];
    uint32_t listed = 0;
    int n = look_up("gpu.count", value, sizeof value) > 0 ? atoi(value) : 0;
    if (socket != &socket_mark)
        return INVAL;
    for (int i = 0; i < n && i < MAX_GPUS; i++) {
        if (of_gpu(gpus + i, "missing", value, sizeof value) > 0 && value[0] == '1')
            continue;
        if (processors != NULL && listed < *count)
            processors[listed] = gpus + i;
        listed++;
    }
    *count = listed;
    return SUCCESS;
}

API int amdsmi_get_processor_type(handle gpu, int *type)
{
    (void)gpu;
    *type = AMD_GPU;
    return SUCCESS;
}

API int amdsmi_get_gpu_bdf_id(handle gpu, uint64_t *bdf)
{
    char value[64];
    unsigned domain, bus, device, function;
    int status = before(gpu);
    if (status != SUCCESS)
        return status;
    if (of_gpu(gpu, "bdf", value, sizeof value) <= 0 ||
        sscanf(value, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4)
        return NOT_SUPPORTED;
    *bdf = (uint64_t)domain << 32 | (uint64_t)bus << 8 | (uint64_t)device << 3 | function;
    return SUCCESS;
}

API int amdsmi_get_gpu_device_uuid(handle gpu, unsigned *length, char *uuid)
{
    int status = before(gpu);
    if (status != SUCCESS)
        return status;
    return of_gpu(gpu, "uuid", uuid, *length) > 0 ? SUCCESS : NOT_SUPPORTED;
}

API int amdsmi_get_gpu_total_ecc_count(handle gpu, error_count *out)
{
    int64_t value;
    int status = before(gpu);
    if (status != SUCCESS)
        return status;
    memset(out, 0, sizeof *out);
    if (number(gpu, "uncorrectable", &value) != SUCCESS)
        return NOT_SUPPORTED;
    out->uncorrectable = (uint64_t)value;
    if (number(gpu, "correctable", &value) == SUCCESS)
        out->correctable = (uint64_t)value;
    if (number(gpu, "deferred", &value) == SUCCESS)
        out->deferred = (uint64_t)value;
    return SUCCESS;
}

API int amdsmi_get_temp_metric(handle gpu, int type, int metric, int64_t *out)
{
    int status = before(gpu);
    if (status != SUCCESS)
        return status;
    if (type != HOTSPOT || (metric != CURRENT && metric != CRITICAL))
        return NOT_SUPPORTED;
    return number(gpu, metric == CURRENT ? "temperature" : "temperature_critical", out);
}
