/* The state file: read when it changed, searched by key, and the checks that come before every answer. */
#include "stub.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct gpu {
    int index;
};

struct entry {
    const char *key, *value;
};

enum { FRESH_NS = 50 * 1000 };

static struct gpu gpus[MAX_GPUS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *text;
static struct entry *entries; /* the lines of `text`, in the order of their keys */
static size_t n_entries;
static struct stat seen;
static u64 looked_ns;
static int references;

static int same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->key, ((const struct entry *)b)->key);
}

static void forget(void)
{
    free(text);
    free(entries);
    text = NULL;
    entries = NULL;
    n_entries = 0;
}

/* Cuts `text` into keys and values. */
static void take_apart(void)
{
    size_t lines = 1;
    for (const char *at = text; *at; at++)
        lines += *at == '\n';
    entries = calloc(lines, sizeof *entries);
    char *rest = text;
    for (char *line; entries != NULL && (line = strsep(&rest, "\n")) != NULL;) {
        char *value = strchr(line, '=');
        if (value == NULL)
            continue;
        *value = '\0';
        entries[n_entries++] = (struct entry){.key = line, .value = value + 1};
    }
    if (entries != NULL)
        qsort(entries, n_entries, sizeof *entries, by_key);
}

static u64 now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (u64)now.tv_sec * 1000000000 + (u64)now.tv_nsec;
}

/* Under the lock: `entries` become the present file; without one the driver counts as not loaded.
 *
 * One question of a caller is several of ours, microseconds apart: they look at the file once. */
static void refresh(void)
{
    const char *path = getenv("PROBING_NVML_STATE");
    struct stat now;
    u64 at_ns = now_ns();
    if (text != NULL && at_ns - looked_ns < FRESH_NS)
        return;
    looked_ns = at_ns;
    if (path == NULL || stat(path, &now) != 0) {
        forget();
        return;
    }
    if (text != NULL && same(&now, &seen))
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *fresh = fd >= 0 && fstat(fd, &now) == 0 ? malloc((size_t)now.st_size + 1) : NULL;
    ssize_t got = fresh ? pread(fd, fresh, (size_t)now.st_size, 0) : -1;
    if (got >= 0) {
        forget();
        fresh[got] = '\0';
        text = fresh;
        seen = now;
        take_apart();
    } else {
        free(fresh);
    }
    if (fd >= 0)
        close(fd);
}

static int find(const char *key, char value[VALUE_MAX])
{
    const struct entry wanted = {.key = key};
    const struct entry *found = n_entries ? bsearch(&wanted, entries, n_entries, sizeof *entries, by_key) : NULL;
    if (found == NULL)
        return 0;
    snprintf(value, VALUE_MAX, "%s", found->value);
    return 1;
}

int stub_get(const char *key, char value[VALUE_MAX])
{
    pthread_mutex_lock(&lock);
    refresh();
    int found = find(key, value);
    pthread_mutex_unlock(&lock);
    return found;
}

int stub_get_gpu(int gpu, const char *key, char value[VALUE_MAX])
{
    char own[KEY_MAX], shared[KEY_MAX];
    snprintf(own, sizeof own, "gpu.%d.%s", gpu, key);
    snprintf(shared, sizeof shared, "gpu.%s", key);
    pthread_mutex_lock(&lock);
    refresh();
    int found = find(own, value) || find(shared, value);
    pthread_mutex_unlock(&lock);
    return found;
}

nvmlReturn_t stub_number(int gpu, const char *key, u64 *value)
{
    char buffer[VALUE_MAX];
    if (!stub_get_gpu(gpu, key, buffer))
        return NVML_ERROR_NOT_SUPPORTED;
    *value = strtoull(buffer, NULL, 0);
    return NVML_SUCCESS;
}

int stub_gpu_count(void)
{
    char value[VALUE_MAX];
    int count = stub_get("gpu.count", value) ? atoi(value) : 0;
    return count < 0 ? 0 : count > MAX_GPUS ? MAX_GPUS : count;
}

nvmlDevice_t stub_handle(int index)
{
    gpus[index].index = index;
    return &gpus[index];
}

/* Whether `list` (`all`, or function names separated by commas) names this function. */
static int names(const char *list, const char *function)
{
    size_t length = strlen(function);
    if (strcmp(list, "all") == 0)
        return 1;
    for (const char *at = list; (at = strstr(at, function)) != NULL; at += length)
        if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return 1;
    return 0;
}

/* Does not return while the state file says that this call hangs. */
static void hang(const char *function, int gpu)
{
    const struct timespec nap = {.tv_nsec = 50 * 1000 * 1000};
    char list[VALUE_MAX];
    while ((gpu < 0 ? stub_get("driver.hang", list) : stub_get_gpu(gpu, "hang", list)) && names(list, function))
        nanosleep(&nap, NULL);
}

static nvmlReturn_t driver(void)
{
    char state[VALUE_MAX];
    if (!stub_get("driver.state", state) || strcmp(state, "not_loaded") == 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    return strcmp(state, "mismatch") == 0 ? NVML_ERROR_LIB_RM_VERSION_MISMATCH : NVML_SUCCESS;
}

nvmlReturn_t stub_enter(const char *function)
{
    if (__atomic_load_n(&references, __ATOMIC_SEQ_CST) == 0)
        return NVML_ERROR_UNINITIALIZED;
    hang(function, -1);
    return driver();
}

nvmlReturn_t stub_enter_gpu(const char *function, nvmlDevice_t device, int *gpu)
{
    char value[VALUE_MAX];
    nvmlReturn_t status = stub_enter(function);
    if (status != NVML_SUCCESS)
        return status;
    if (device < gpus || device >= gpus + MAX_GPUS || device->index >= stub_gpu_count())
        return NVML_ERROR_INVALID_ARGUMENT;
    *gpu = device->index;
    hang(function, *gpu);
    if (stub_get_gpu(*gpu, "lost", value) && strcmp(value, "0") != 0)
        return NVML_ERROR_GPU_IS_LOST;
    return NVML_SUCCESS;
}

nvmlReturn_t stub_text(const char *value, char *out, unsigned int length)
{
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(value) + 1 > length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(out, value, strlen(value) + 1);
    return NVML_SUCCESS;
}

nvmlReturn_t answer_text(const char *function, nvmlDevice_t device, const char *key, char *out, unsigned int length)
{
    char value[VALUE_MAX];
    int gpu;
    nvmlReturn_t status = stub_enter_gpu(function, device, &gpu);
    if (status != NVML_SUCCESS)
        return status;
    return stub_get_gpu(gpu, key, value) ? stub_text(value, out, length) : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t answer_u64(const char *function, nvmlDevice_t device, const char *key, u64 *out)
{
    int gpu;
    nvmlReturn_t status = stub_enter_gpu(function, device, &gpu);
    if (status != NVML_SUCCESS)
        return status;
    return out == NULL ? NVML_ERROR_INVALID_ARGUMENT : stub_number(gpu, key, out);
}

nvmlReturn_t answer_uint(const char *function, nvmlDevice_t device, const char *key, unsigned int *out)
{
    u64 value;
    nvmlReturn_t status = answer_u64(function, device, key, &value);
    if (status == NVML_SUCCESS && out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (status == NVML_SUCCESS)
        *out = (unsigned int)value;
    return status;
}

API nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    hang("nvmlInitWithFlags", -1);
    nvmlReturn_t status = driver();
    if (status == NVML_SUCCESS)
        __atomic_add_fetch(&references, 1, __ATOMIC_SEQ_CST);
    return status;
}

API nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

API nvmlReturn_t nvmlShutdown(void)
{
    int before = __atomic_load_n(&references, __ATOMIC_SEQ_CST);
    while (before > 0)
        if (__atomic_compare_exchange_n(&references, &before, before - 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            return NVML_SUCCESS;
    return NVML_ERROR_UNINITIALIZED;
}
