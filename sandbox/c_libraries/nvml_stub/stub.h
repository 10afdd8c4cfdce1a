/* NVML as a stub: the types of NVIDIA's interface that are answered, and the state file behind them.
 *
 * The file named by PROBING_NVML_STATE holds lines `key=value`. A question about GPU 3 looks for
 * `gpu.3.<key>`, then for `gpu.<key>` (true of every GPU); a key that is nowhere is NOT_SUPPORTED.
 * It is read again whenever the file changed, so replacing it injects a fault into a live process.
 */
#ifndef PROBING_NVML_STUB_H
#define PROBING_NVML_STUB_H

#include <stddef.h>

#define API __attribute__((visibility("default")))

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999
} nvmlReturn_t;

typedef unsigned long long u64;
typedef struct gpu *nvmlDevice_t;
typedef struct event_set *nvmlEventSet_t;

enum { MAX_GPUS = 16, KEY_MAX = 96, VALUE_MAX = 1024 };

/* Checks that come before every answer: initialised, driver there, call not hanging, GPU reachable.
 * `gpu` gets the NVML index. */
nvmlReturn_t stub_enter(const char *function);
nvmlReturn_t stub_enter_gpu(const char *function, nvmlDevice_t device, int *gpu);

/* Value of a key of the whole node, or of one GPU; 0 when it is not in the file. */
int stub_get(const char *key, char value[VALUE_MAX]);
int stub_get_gpu(int gpu, const char *key, char value[VALUE_MAX]);
nvmlReturn_t stub_number(int gpu, const char *key, u64 *value);

/* The handle of GPU `index`. */
nvmlDevice_t stub_handle(int index);
int stub_gpu_count(void);

/* Copies a text answer into the caller's buffer, as NVML does. */
nvmlReturn_t stub_text(const char *value, char *out, unsigned int length);

/* One answer of one GPU, the shape of nearly every function of NVML. */
nvmlReturn_t answer_text(const char *function, nvmlDevice_t device, const char *key, char *out, unsigned int length);
nvmlReturn_t answer_u64(const char *function, nvmlDevice_t device, const char *key, u64 *out);
nvmlReturn_t answer_uint(const char *function, nvmlDevice_t device, const char *key, unsigned int *out);

/* Corrected (0) or uncorrected (1) errors over every location; defined in memory_faults.c. */
nvmlReturn_t stub_ecc_total(int gpu, unsigned int error_type, unsigned int counter_type, u64 *total);

#endif
