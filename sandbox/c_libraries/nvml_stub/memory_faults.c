/* What goes wrong in GPU memory: ECC counters, remapped rows, retired pages. */
#include "stub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned int max, high, partial, low, none; } nvmlRowRemapperHistogramValues_t;
typedef struct {
    unsigned int version;
    u64 aggregateUncParity, aggregateUncSecDed, aggregateCor;
    u64 volatileUncParity, volatileUncSecDed, volatileCor;
    u64 bucketL2, bucketSm, bucketPcie, bucketMcu, bucketOther;
    unsigned int thresholdExceeded;
} nvmlEccSramErrorStatus_t;

static const char *const counters[] = {"volatile", "aggregate"};
static const char *const errors[] = {"corrected", "uncorrected"};
static const char *const locations[] = {"l1", "l2", "dram", "register_file", "texture", "texture_shm", "cbu", "sram"};
enum { LOCATIONS = sizeof locations / sizeof *locations };

static nvmlReturn_t counter(int gpu, unsigned int error, unsigned int kind, unsigned int location, u64 *out)
{
    char key[KEY_MAX];
    snprintf(key, sizeof key, "ecc.%s.%s.%s", counters[kind], errors[error], locations[location]);
    return stub_number(gpu, key, out);
}

nvmlReturn_t stub_ecc_total(int gpu, unsigned int error, unsigned int kind, u64 *total)
{
    nvmlReturn_t status = NVML_ERROR_NOT_SUPPORTED;
    u64 one;
    *total = 0;
    for (unsigned int i = 0; i < LOCATIONS; i++)
        if (counter(gpu, error, kind, i, &one) == NVML_SUCCESS) {
            *total += one;
            status = NVML_SUCCESS;
        }
    return status;
}

API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    nvmlReturn_t status = answer_uint(__func__, device, "ecc.current", current);
    return status == NVML_SUCCESS ? answer_uint(__func__, device, "ecc.pending", pending) : status;
}

API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int error, unsigned int kind, u64 *out)
{
    int gpu;
    nvmlReturn_t status = stub_enter_gpu(__func__, device, &gpu);
    if (status != NVML_SUCCESS)
        return status;
    return error > 1 || kind > 1 ? NVML_ERROR_INVALID_ARGUMENT : stub_ecc_total(gpu, error, kind, out);
}

API nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned int error, unsigned int kind,
                                                 unsigned int location, u64 *out)
{
    int gpu;
    nvmlReturn_t status = stub_enter_gpu(__func__, device, &gpu);
    if (status != NVML_SUCCESS)
        return status;
    return error > 1 || kind > 1 || location >= LOCATIONS ? NVML_ERROR_INVALID_ARGUMENT
                                                          : counter(gpu, error, kind, location, out);
}

API nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_t *out)
{
    const unsigned int version = out->version;
    u64 exceeded = 0;
    int gpu;
    if (version != 0x1000068)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t status = stub_enter_gpu(__func__, device, &gpu);
    if (status != NVML_SUCCESS)
        return status;
    memset(out, 0, sizeof *out);
    out->version = version;
    counter(gpu, 0, 0, LOCATIONS - 1, &out->volatileCor);
    counter(gpu, 0, 1, LOCATIONS - 1, &out->aggregateCor);
    counter(gpu, 1, 0, LOCATIONS - 1, &out->volatileUncSecDed);
    counter(gpu, 1, 1, LOCATIONS - 1, &out->aggregateUncSecDed);
    out->bucketL2 = out->aggregateUncSecDed;
    stub_number(gpu, "ecc.sram_threshold_exceeded", &exceeded);
    out->thresholdExceeded = (unsigned int)exceeded;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected,
                                           unsigned int *pending, unsigned int *failure)
{
    nvmlReturn_t status = answer_uint(__func__, device, "remapped.corrected", corrected);
    if (status == NVML_SUCCESS)
        status = answer_uint(__func__, device, "remapped.uncorrected", uncorrected);
    if (status == NVML_SUCCESS)
        status = answer_uint(__func__, device, "remapped.pending", pending);
    return status == NVML_SUCCESS ? answer_uint(__func__, device, "remapped.failure", failure) : status;
}

API nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *out)
{
    nvmlReturn_t status = answer_uint(__func__, device, "remapped.banks_max", &out->max);
    if (status == NVML_SUCCESS)
        status = answer_uint(__func__, device, "remapped.banks_high", &out->high);
    if (status == NVML_SUCCESS)
        status = answer_uint(__func__, device, "remapped.banks_partial", &out->partial);
    if (status == NVML_SUCCESS)
        status = answer_uint(__func__, device, "remapped.banks_low", &out->low);
    return status == NVML_SUCCESS ? answer_uint(__func__, device, "remapped.banks_none", &out->none) : status;
}

/* `retired.<cause>` is a list `address:epoch,address:epoch`; absent on GPUs that remap rows instead. */
static nvmlReturn_t retired(const char *function, nvmlDevice_t device, unsigned int cause, unsigned int *count,
                            u64 *addresses, u64 *times)
{
    static const char *const keys[] = {"retired.single_bit", "retired.double_bit"};
    char list[VALUE_MAX];
    unsigned int there = 0, room = addresses ? *count : 0;
    int gpu;
    nvmlReturn_t status = stub_enter_gpu(function, device, &gpu);
    if (status != NVML_SUCCESS)
        return status;
    if (cause >= sizeof keys / sizeof *keys)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!stub_get_gpu(gpu, keys[cause], list))
        return NVML_ERROR_NOT_SUPPORTED;
    for (char *rest = NULL, *item = strtok_r(list, ",", &rest); item; item = strtok_r(NULL, ",", &rest), there++) {
        char *colon = strchr(item, ':');
        if (there >= room)
            continue;
        addresses[there] = strtoull(item, NULL, 0);
        if (times)
            times[there] = colon ? strtoull(colon + 1, NULL, 10) : 0;
    }
    *count = there;
    return there > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned int cause, unsigned int *count, u64 *addresses)
{
    return retired(__func__, device, cause, count, addresses, NULL);
}

/* pynvml asks for the count without passing `times` at all: it is only touched with room for answers. */
API nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, unsigned int cause, unsigned int *count,
                                              u64 *addresses, u64 *times)
{
    return retired(__func__, device, cause, count, addresses, addresses ? times : NULL);
}

API nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, unsigned int *out)
{
    return answer_uint(__func__, device, "retired.pending", out);
}
