/* Stands in for NVML: NVML_TWIN_GPUS GPUs (3), of which the second tells no power and no utilisation, as a part of a GPU does, and the third is
 * lost. NVML_TWIN_INIT: what nvmlInit gives. It counts how often it is begun and ended. */
#include <stdint.h>
#include <stdlib.h>

#include "accel/base.h"

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, LOST = 15 };
static int begun;

static int from_environment(const char *name, int otherwise) {
  const char *text = getenv(name);
  return text != NULL ? atoi(text) : otherwise;
}

AC_API int nvmlInit_v2(void);
AC_API int nvmlShutdown(void);
AC_API int nvmlDeviceGetCount_v2(unsigned *n);
AC_API int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device);
AC_API int nvmlDeviceGetUtilizationRates(void *device, unsigned rates[2]);
AC_API int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3]);
AC_API int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius);
AC_API int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
AC_API int nvml_twin_begun(void);

int nvml_twin_begun(void) { return begun; }

int nvmlInit_v2(void) {
  const int code = from_environment("NVML_TWIN_INIT", SUCCESS);
  begun += code == SUCCESS;
  return code;
}

int nvmlShutdown(void) {
  begun--;
  return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *n) {
  *n = (unsigned)from_environment("NVML_TWIN_GPUS", 3);
  return begun > 0 ? SUCCESS : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device) {
  if (i == 2) return LOST;
  *device = (void *)(uintptr_t)(i + 1);
  return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned rates[2]) {
  if ((uintptr_t)device == 2) return NOT_SUPPORTED;
  rates[0] = 86 + (unsigned)(uintptr_t)device;
  rates[1] = 40;
  return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3]) {
  memory[0] = 80ull << 30;
  memory[2] = (unsigned long long)(uintptr_t)device * 1536 << 20;
  memory[1] = memory[0] - memory[2];
  return SUCCESS;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) {
  *celsius = 60 + (unsigned)(uintptr_t)device;
  return sensor == 0 ? SUCCESS : INVALID;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
  *milliwatts = 345500;
  return (uintptr_t)device == 2 ? NOT_SUPPORTED : SUCCESS;
}
