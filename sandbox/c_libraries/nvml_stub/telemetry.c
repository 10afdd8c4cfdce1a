/* How a GPU does: temperature, power, clocks, memory, processes, NVLink, fabric, and the field values. */
#include "stub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned int version, sensor; int temperature; } nvmlTemperature_t;
typedef struct { unsigned int gpu, memory; } nvmlUtilization_t;
typedef struct { u64 total, free, used; } nvmlMemory_t;
typedef struct { unsigned int version; u64 total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned int pid; u64 used; unsigned int gpu_instance, compute_instance; } nvmlProcessInfo_t;
typedef struct { unsigned char cluster[16]; nvmlReturn_t status; unsigned int clique; unsigned char state; } nvmlGpuFabricInfo_t;
typedef struct {
    unsigned int version;
    unsigned char cluster[16];
    nvmlReturn_t status;
    unsigned int clique;
    unsigned char state;
    unsigned int health;
    unsigned char summary; /* version 3 only */
} nvmlGpuFabricInfoV_t;
typedef struct {
    unsigned int field, scope;
    long long timestamp, latency_us;
    unsigned int type;
    nvmlReturn_t status;
    union { double d; unsigned int ui; u64 ull; int i; } value;
} nvmlFieldValue_t;

enum { TEMPERATURE_V1 = 0x100000C, MEMORY_V2 = 0x2000028, FABRIC_V2 = 0x2000024, FABRIC_V3 = 0x3000028 };
enum { DOUBLE = 0, UINT = 1, ULL = 3 };

API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor, unsigned int *out)
{
    return sensor ? NVML_ERROR_INVALID_ARGUMENT : answer_uint(__func__, device, "temperature_c", out);
}

API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *out)
{
    unsigned int value = 0;
    if (out->version != TEMPERATURE_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (out->sensor)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = answer_uint(__func__, device, "temperature_c", &value);
    out->temperature = (int)value;
    return status;
}

API nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned int threshold, unsigned int *out)
{
    static const char *const keys[] = {"threshold.shutdown_c", "threshold.slowdown_c", "threshold.memory_max_c",
                                       "threshold.gpu_max_c"};
    if (threshold >= sizeof keys / sizeof *keys)
        return NVML_ERROR_NOT_SUPPORTED;
    return answer_uint(__func__, device, keys[threshold], out);
}

#define NUMBER(function, key)                                          \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned int *out)  \
    {                                                                  \
        return answer_uint(__func__, device, key, out);                \
    }
#define LONG_NUMBER(function, key)                            \
    API nvmlReturn_t function(nvmlDevice_t device, u64 *out)  \
    {                                                         \
        return answer_u64(__func__, device, key, out);        \
    }

NUMBER(nvmlDeviceGetPowerUsage, "power_mw")
NUMBER(nvmlDeviceGetPowerManagementLimit, "power_limit_mw")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit_mw")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
NUMBER(nvmlDeviceGetPerformanceState, "performance_state")
LONG_NUMBER(nvmlDeviceGetTotalEnergyConsumption, "energy_mj")
LONG_NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, "throttle.reasons")
LONG_NUMBER(nvmlDeviceGetCurrentClocksEventReasons, "throttle.reasons")
LONG_NUMBER(nvmlDeviceGetSupportedClocksThrottleReasons, "throttle.supported")
LONG_NUMBER(nvmlDeviceGetSupportedClocksEventReasons, "throttle.supported")

static nvmlReturn_t clock_speed(const char *function, nvmlDevice_t device, const char *set, unsigned int type,
                          unsigned int *out)
{
    static const char *const names[] = {"graphics", "sm", "memory", "video"};
    char key[KEY_MAX];
    if (type >= sizeof names / sizeof *names)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(key, sizeof key, "%s.%s_mhz", set, names[type]);
    return answer_uint(function, device, key, out);
}

API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *out)
{
    return clock_speed(__func__, device, "clock", type, out);
}

API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *out)
{
    return clock_speed(__func__, device, "clock_max", type, out);
}

API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out)
{
    nvmlReturn_t status = answer_uint(__func__, device, "utilization.gpu_percent", &out->gpu);
    return status == NVML_SUCCESS ? answer_uint(__func__, device, "utilization.memory_percent", &out->memory) : status;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out)
{
    nvmlReturn_t status = answer_u64(__func__, device, "memory.total_bytes", &out->total);
    if (status == NVML_SUCCESS)
        status = answer_u64(__func__, device, "memory.used_bytes", &out->used);
    out->free = out->total - out->used;
    return status;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out)
{
    if (out->version != MEMORY_V2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t status = answer_u64(__func__, device, "memory.total_bytes", &out->total);
    if (status == NVML_SUCCESS)
        status = answer_u64(__func__, device, "memory.used_bytes", &out->used);
    if (status == NVML_SUCCESS)
        status = answer_u64(__func__, device, "memory.reserved_bytes", &out->reserved);
    out->free = out->total - out->reserved - out->used;
    return status;
}

/* `processes` is a list `pid:bytes,pid:bytes`; absent or empty means none. */
API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *out)
{
    char list[VALUE_MAX] = "";
    unsigned int there = 0, room = *count;
    int gpu;
    nvmlReturn_t status = stub_enter_gpu(__func__, device, &gpu);
    if (status != NVML_SUCCESS)
        return status;
    stub_get_gpu(gpu, "processes", list);
    for (char *rest = NULL, *item = strtok_r(list, ",", &rest); item; item = strtok_r(NULL, ",", &rest), there++) {
        if (out == NULL || there >= room)
            continue;
        char *colon = strchr(item, ':');
        out[there] = (nvmlProcessInfo_t){.pid = (unsigned int)strtoul(item, NULL, 10),
                                         .used = colon ? strtoull(colon + 1, NULL, 10) : 0,
                                         .gpu_instance = 0xffffffff,
                                         .compute_instance = 0xffffffff};
    }
    *count = there;
    return there > (out ? room : 0) ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *out)
{
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, out);
}

/* What link `link` says: `link.<n>.<what>`, else what is true of every link, `link.<what>`. */
static nvmlReturn_t link_number(int gpu, unsigned int link, const char *what, u64 *out)
{
    char key[KEY_MAX];
    u64 links = 0;
    nvmlReturn_t status = stub_number(gpu, "links", &links);
    if (status != NVML_SUCCESS)
        return status;
    if (link >= links)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(key, sizeof key, "link.%u.%s", link, what);
    status = stub_number(gpu, key, out);
    snprintf(key, sizeof key, "link.%s", what);
    return status == NVML_SUCCESS ? status : stub_number(gpu, key, out);
}

API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, unsigned int *active)
{
    u64 value = 0;
    int gpu;
    nvmlReturn_t status = stub_enter_gpu(__func__, device, &gpu);
    if (status == NVML_SUCCESS)
        status = link_number(gpu, link, "state", &value);
    *active = (unsigned int)value;
    return status;
}

API nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int *out)
{
    u64 value = 0;
    int gpu;
    nvmlReturn_t status = stub_enter_gpu(__func__, device, &gpu);
    if (status == NVML_SUCCESS)
        status = link_number(gpu, link, "version", &value);
    *out = (unsigned int)value;
    return status;
}

API nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, unsigned int counter, u64 *out)
{
    static const char *const names[] = {"replay", "recovery", "crc_flit", "crc_data", "ecc_data"};
    int gpu;
    nvmlReturn_t status = stub_enter_gpu(__func__, device, &gpu);
    if (status != NVML_SUCCESS)
        return status;
    return counter >= sizeof names / sizeof *names ? NVML_ERROR_INVALID_ARGUMENT
                                                   : link_number(gpu, link, names[counter], out);
}

static nvmlReturn_t fabric(const char *function, nvmlDevice_t device, nvmlGpuFabricInfoV_t *out)
{
    char text[VALUE_MAX];
    u64 state, status_word = 0, clique = 0, health = 0, summary = 0;
    int gpu;
    nvmlReturn_t status = stub_enter_gpu(function, device, &gpu);
    if (status == NVML_SUCCESS)
        status = stub_number(gpu, "fabric.state", &state);
    if (status != NVML_SUCCESS)
        return status;
    stub_number(gpu, "fabric.status", &status_word);
    stub_number(gpu, "fabric.clique", &clique);
    stub_number(gpu, "fabric.health_mask", &health);
    stub_number(gpu, "fabric.health_summary", &summary);
    memset(out->cluster, 0, sizeof out->cluster);
    if (stub_get_gpu(gpu, "fabric.cluster", text))
        memcpy(out->cluster, text, strnlen(text, sizeof out->cluster));
    out->status = (nvmlReturn_t)status_word;
    out->clique = (unsigned int)clique;
    out->state = (unsigned char)state;
    out->health = (unsigned int)health;
    out->summary = (unsigned char)summary;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *out)
{
    nvmlGpuFabricInfoV_t full = {0};
    nvmlReturn_t status = fabric(__func__, device, &full);
    if (status == NVML_SUCCESS) {
        memcpy(out->cluster, full.cluster, sizeof out->cluster);
        out->status = full.status;
        out->clique = full.clique;
        out->state = full.state;
    }
    return status;
}

API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *out)
{
    nvmlGpuFabricInfoV_t full = {.version = out->version};
    if (out->version != FABRIC_V2 && out->version != FABRIC_V3)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t status = fabric(__func__, device, &full);
    if (status == NVML_SUCCESS)
        memcpy(out, &full, out->version == FABRIC_V2 ? offsetof(nvmlGpuFabricInfoV_t, summary) : sizeof full);
    return status;
}

/* Field ids that ask again what has a function of its own. */
static const struct { unsigned int field; const char *key; unsigned int type; } fields[] = {
    {1, "ecc.current", UINT},          {2, "ecc.pending", UINT},
    {31, "retired.pending", UINT},     {82, "memory_temperature_c", UINT},
    {83, "energy_mj", ULL},            {91, "links", UINT},
    {94, "pcie.replay", UINT},         {142, "remapped.corrected", UINT},
    {143, "remapped.uncorrected", UINT}, {144, "remapped.pending", UINT},
    {145, "remapped.failure", UINT},   {185, "power_mw", UINT},
    {186, "power_mw", UINT},           {230, "recovery_action", UINT},
};

/* Totals over all links, by field id. */
static const struct { unsigned int field; const char *what; } link_totals[] = {
    {38, "crc_flit"}, {45, "crc_data"}, {52, "replay"}, {59, "recovery"},
};

/* Errors of the link named by the scope, by field id. */
static const struct { unsigned int field; const char *what; } link_errors[] = {
    {161, "replay"}, {162, "recovery"}, {163, "crc_flit"},
};

static nvmlReturn_t link_total(int gpu, const char *what, u64 *out)
{
    u64 links = 0, one;
    nvmlReturn_t status = stub_number(gpu, "links", &links);
    *out = 0;
    for (unsigned int i = 0; i < links && status == NVML_SUCCESS; i++, *out += one)
        if ((status = link_number(gpu, i, what, &one)) != NVML_SUCCESS)
            return status;
    return status;
}

static void field_value(int gpu, nvmlFieldValue_t *out)
{
    u64 value = 0;
    out->type = ULL;
    out->status = NVML_ERROR_NOT_SUPPORTED;
    if (out->field >= 3 && out->field <= 6)
        out->status = stub_ecc_total(gpu, (out->field - 3) % 2, (out->field - 3) / 2, &value);
    else if (out->field == 165)
        out->status = link_number(gpu, out->scope, "state", &value);
    for (size_t i = 0; i < sizeof link_errors / sizeof *link_errors; i++)
        if (out->field == link_errors[i].field)
            out->status = link_number(gpu, out->scope, link_errors[i].what, &value);
    for (size_t i = 0; i < sizeof link_totals / sizeof *link_totals; i++)
        if (out->field == link_totals[i].field)
            out->status = link_total(gpu, link_totals[i].what, &value);
    out->value.ull = value;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (out->field == fields[i].field) {
            out->status = stub_number(gpu, fields[i].key, &value);
            out->type = fields[i].type;
            if (out->type == UINT)
                out->value.ui = (unsigned int)value;
            else
                out->value.ull = value;
        }
}

API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    int gpu;
    nvmlReturn_t status = stub_enter_gpu(__func__, device, &gpu);
    if (status != NVML_SUCCESS)
        return status;
    for (int i = 0; i < count; i++)
        field_value(gpu, &values[i]);
    return NVML_SUCCESS;
}
