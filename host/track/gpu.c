/* Usage of GPUs (gpu.h). NVML is loaded with the first sample, in the writer's thread, never in a
 * step. The needed calls are declared here: they have had one form since NVML 5 (2013), so no
 * toolkit is needed to build. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "accel/base.h"
#include "track/gpu.h"

enum { NVML_SUCCESS = 0, NVML_TEMPERATURE_GPU = 0 };

typedef struct nvml_rates {
  unsigned gpu, memory; /* percent */
} nvml_rates;

typedef struct nvml_memory {
  unsigned long long total, free, used; /* bytes */
} nvml_memory;

/* Calls of the library: name, arguments. A device is an opaque pointer, a result 0 or the code of
 * an error. */
#define NVML_CALLS(X)                                           \
  X(nvmlInit_v2, (void))                                        \
  X(nvmlShutdown, (void))                                       \
  X(nvmlDeviceGetCount_v2, (unsigned *))                        \
  X(nvmlDeviceGetHandleByIndex_v2, (unsigned, void **))         \
  X(nvmlDeviceGetUtilizationRates, (void *, nvml_rates *))      \
  X(nvmlDeviceGetMemoryInfo, (void *, nvml_memory *))           \
  X(nvmlDeviceGetTemperature, (void *, int sensor, unsigned *)) \
  X(nvmlDeviceGetPowerUsage, (void *, unsigned *milliwatts))

struct aci_nvml {
#define X(name, args) int(*name) args;
  NVML_CALLS(X)
#undef X
};

const char *const aci_gpu_values[ACI_GPU_VALUES] = {"percent", "memory_mib", "celsius", "watts"};

/* dlsym gives no function pointers: the bytes are the same on every POSIX system. */
static bool take(void *from, const char *name, void *to, size_t n) {
  void *p = dlsym(from, name);
  if (p != NULL && n == sizeof p) memcpy(to, &p, n);
  return p != NULL;
}

static void load(aci_gpus *g) {
  const bool given = g->named != NULL && g->named[0] != 0 && strcmp(g->named, "auto") != 0;
  const char *file = given ? g->named : "libnvidia-ml.so.1";
  if (given && strcmp(g->named, "off") == 0) return;
  void *h = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (h == NULL) {
    if (given) ac_log_write(AC_LOG_WARN, "track", "no metrics of GPUs: %s does not load", file);
    return;
  }
  struct aci_nvml *lib = calloc(1, sizeof *lib);
#define X(name, args) &&take(h, #name, &lib->name, sizeof lib->name)
  const bool whole = lib != NULL NVML_CALLS(X);
#undef X
  const int code = whole ? lib->nvmlInit_v2() : -1;
  if (code != NVML_SUCCESS) {
    if (whole) ac_log_write(AC_LOG_DEBUG, "track", "no metrics of GPUs: nvmlInit gives %d", code);
    else ac_log_write(AC_LOG_WARN, "track", "no metrics of GPUs: %s is not NVML", file);
    free(lib);
    return;
  }
  g->lib = lib;
  unsigned n = 0;
  if (lib->nvmlDeviceGetCount_v2(&n) != NVML_SUCCESS) n = 0;
  g->n = n < ACI_GPUS ? n : ACI_GPUS;
  for (unsigned i = 0; i < g->n; i++) /* lost, or another user's */
    if (lib->nvmlDeviceGetHandleByIndex_v2(i, &g->device[i]) != NVML_SUCCESS) g->device[i] = NULL;
}

static void sample(const struct aci_nvml *lib, void *device, aci_gpu_sample *out) {
  nvml_rates rates;
  nvml_memory memory;
  unsigned celsius, milliwatts;
  out->has[0] = lib->nvmlDeviceGetUtilizationRates(device, &rates) == NVML_SUCCESS;
  out->has[1] = lib->nvmlDeviceGetMemoryInfo(device, &memory) == NVML_SUCCESS;
  out->has[2] =
      lib->nvmlDeviceGetTemperature(device, NVML_TEMPERATURE_GPU, &celsius) == NVML_SUCCESS;
  out->has[3] = lib->nvmlDeviceGetPowerUsage(device, &milliwatts) == NVML_SUCCESS;
  if (out->has[0]) out->value[0] = rates.gpu;
  if (out->has[1]) out->value[1] = (double)memory.used / (1 << 20);
  if (out->has[2]) out->value[2] = celsius;
  if (out->has[3]) out->value[3] = 1e-3 * milliwatts;
}

unsigned aci_gpus_sample(aci_gpus *g, aci_gpu_sample out[ACI_GPUS]) {
  if (!g->tried) load(g);
  g->tried = true;
  memset(out, 0, g->n * sizeof out[0]);
  for (unsigned i = 0; i < g->n; i++)
    if (g->device[i] != NULL) sample(g->lib, g->device[i], &out[i]);
  return g->n;
}

void aci_gpus_close(aci_gpus *g) {
  if (g->lib != NULL) g->lib->nvmlShutdown(); /* counted: others of the process keep theirs */
  free(g->lib);
  *g = (aci_gpus){.named = g->named, .tried = true};
}
