/* Who a GPU is: handles, names, UUIDs, PCI addresses, versions, modes. */
#include "stub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct {
    char busIdLegacy[16];
    unsigned int domain;
    unsigned int bus;
    unsigned int device;
    unsigned int pciDeviceId;
    unsigned int pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

API const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT: return "Timeout";
    case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
    default: return "Unknown Error";
    }
}

static nvmlReturn_t system_text(const char *function, const char *key, char *out, unsigned int length)
{
    char value[VALUE_MAX];
    nvmlReturn_t status = stub_enter(function);
    if (status != NVML_SUCCESS)
        return status;
    return stub_get(key, value) ? stub_text(value, out, length) : NVML_ERROR_NOT_SUPPORTED;
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned int length)
{
    return system_text(__func__, "driver.version", out, length);
}

API nvmlReturn_t nvmlSystemGetNVMLVersion(char *out, unsigned int length)
{
    return system_text(__func__, "nvml.version", out, length);
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    char value[VALUE_MAX];
    nvmlReturn_t status = system_text(__func__, "cuda.version", value, sizeof value);
    if (status == NVML_SUCCESS)
        *out = atoi(value);
    return status;
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *out)
{
    return nvmlSystemGetCudaDriverVersion_v2(out);
}

API nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *out, unsigned int length)
{
    char path[64], name[VALUE_MAX];
    nvmlReturn_t status = stub_enter(__func__);
    if (status != NVML_SUCCESS)
        return status;
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return NVML_ERROR_NOT_FOUND;
    size_t got = fread(name, 1, sizeof name - 1, file);
    fclose(file);
    name[got] = '\0';
    name[strcspn(name, "\n")] = '\0';
    return stub_text(name, out, length);
}

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *out)
{
    nvmlReturn_t status = stub_enter(__func__);
    if (status == NVML_SUCCESS)
        *out = (unsigned int)stub_gpu_count();
    return status;
}

/* Handing out a handle already fails for a lost GPU, as with the real library. */
static nvmlReturn_t hand_out(const char *function, int index, nvmlDevice_t *out)
{
    int gpu;
    *out = stub_handle(index);
    return stub_enter_gpu(function, *out, &gpu);
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *out)
{
    nvmlReturn_t status = stub_enter(__func__);
    if (status != NVML_SUCCESS)
        return status;
    if (out == NULL || index >= (unsigned int)stub_gpu_count())
        return NVML_ERROR_INVALID_ARGUMENT;
    return hand_out(__func__, (int)index, out);
}

static nvmlReturn_t handle_by_text(const char *function, const char *key, const char *wanted, nvmlDevice_t *out)
{
    char value[VALUE_MAX];
    nvmlReturn_t status = stub_enter(function);
    if (status != NVML_SUCCESS)
        return status;
    for (int i = 0; i < stub_gpu_count(); i++)
        if (stub_get_gpu(i, key, value) && strcasecmp(value, wanted) == 0)
            return hand_out(function, i, out);
    return NVML_ERROR_NOT_FOUND;
}

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out)
{
    return handle_by_text(__func__, "uuid", uuid, out);
}

API nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *out)
{
    return handle_by_text(__func__, "serial", serial, out);
}

static int parse_pci(const char *text, unsigned int *domain, unsigned int *bus, unsigned int *device)
{
    return sscanf(text, "%x:%x:%x", domain, bus, device) == 3;
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *out)
{
    char value[VALUE_MAX];
    unsigned int want[3], have[3];
    nvmlReturn_t status = stub_enter(__func__);
    if (status != NVML_SUCCESS)
        return status;
    if (!parse_pci(bus_id, &want[0], &want[1], &want[2]))
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < stub_gpu_count(); i++)
        if (stub_get_gpu(i, "pci", value) && parse_pci(value, &have[0], &have[1], &have[2]) &&
            memcmp(want, have, sizeof want) == 0)
            return hand_out(__func__, i, out);
    return NVML_ERROR_NOT_FOUND;
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *out)
{
    char value[VALUE_MAX];
    u64 id = 0, subsystem = 0;
    int gpu;
    nvmlReturn_t status = answer_text(__func__, device, "pci", value, sizeof value);
    if (status != NVML_SUCCESS)
        return status;
    memset(out, 0, sizeof *out);
    if (!parse_pci(value, &out->domain, &out->bus, &out->device))
        return NVML_ERROR_UNKNOWN;
    snprintf(out->busId, sizeof out->busId, "%08X:%02X:%02X.0", out->domain, out->bus, out->device);
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%04X:%02X:%02X.0", out->domain & 0xffff, out->bus & 0xff,
             out->device & 0xff);
    if (stub_enter_gpu(__func__, device, &gpu) == NVML_SUCCESS) {
        stub_number(gpu, "pci_device_id", &id);
        stub_number(gpu, "pci_subsystem_id", &subsystem);
    }
    out->pciDeviceId = (unsigned int)id;
    out->pciSubSystemId = (unsigned int)subsystem;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *out)
{
    int gpu;
    nvmlReturn_t status = stub_enter_gpu(__func__, device, &gpu);
    if (status == NVML_SUCCESS)
        *out = (unsigned int)gpu;
    return status;
}

#define TEXT(function, key)                                                            \
    API nvmlReturn_t function(nvmlDevice_t device, char *out, unsigned int length)     \
    {                                                                                  \
        return answer_text(__func__, device, key, out, length);                        \
    }
#define NUMBER(function, key)                                          \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned int *out)  \
    {                                                                  \
        return answer_uint(__func__, device, key, out);                \
    }

TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
TEXT(nvmlDeviceGetBoardPartNumber, "board_part_number")
TEXT(nvmlDeviceGetInforomImageVersion, "inforom.image")

/* The one text without a length: NVML_GSP_FIRMWARE_VERSION_BUF_SIZE is part of its contract. */
API nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *out)
{
    return answer_text(__func__, device, "gsp.version", out, 0x40);
}

NUMBER(nvmlDeviceGetMinorNumber, "minor")
NUMBER(nvmlDeviceGetBoardId, "board_id")
NUMBER(nvmlDeviceGetModuleId, "module_id")
NUMBER(nvmlDeviceGetBrand, "brand")
NUMBER(nvmlDeviceGetArchitecture, "architecture")
NUMBER(nvmlDeviceGetPersistenceMode, "persistence_mode")
NUMBER(nvmlDeviceGetComputeMode, "compute_mode")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie.max_generation")
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie.max_generation")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie.max_width")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie.generation")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie.width")
NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie.replay")

API nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t device, unsigned int object, char *out, unsigned int length)
{
    static const char *const keys[] = {"inforom.oem", "inforom.ecc", "inforom.power", "inforom.den"};
    if (object >= sizeof keys / sizeof *keys)
        return NVML_ERROR_INVALID_ARGUMENT;
    return answer_text(__func__, device, keys[object], out, length);
}

API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    unsigned int value = 0;
    nvmlReturn_t status = answer_uint(__func__, device, "compute_capability", &value);
    if (status == NVML_SUCCESS) {
        *major = (int)(value / 10);
        *minor = (int)(value % 10);
    }
    return status;
}

API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    nvmlReturn_t status = answer_uint(__func__, device, "mig.current", current);
    return status == NVML_SUCCESS ? answer_uint(__func__, device, "mig.pending", pending) : status;
}

API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *out)
{
    int gpu;
    nvmlReturn_t status = stub_enter_gpu(__func__, device, &gpu);
    if (status == NVML_SUCCESS)
        *out = 0;
    return status;
}
