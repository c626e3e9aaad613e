/* Samples of GPUs by NVML, the management library that comes with NVIDIA's driver. Used by
 * system.c. */
#ifndef ACI_TRACK_GPU_H
#define ACI_TRACK_GPU_H
#include <stdbool.h>

enum { ACI_GPUS = 16, ACI_GPU_VALUES = 4 };

typedef struct aci_gpus {
  const char *named; /* the library: NULL or "auto", "off", or a file. Must live as long as this */
  bool tried;
  /* GPUs of this machine, of which the first ACI_GPUS are sampled. 0 without the library */
  unsigned n;
  void *device[ACI_GPUS];
  struct aci_nvml *lib;
} aci_gpus;

typedef struct aci_gpu_sample {
  /* values that the GPU reports: some have no power, parts of one (MIG) no utilisation */
  bool has[ACI_GPU_VALUES];
  double value[ACI_GPU_VALUES];
} aci_gpu_sample;

/* The names of the values after system/gpu<index>_: the percentage of time in which kernels ran
 * since the driver's own sample before (a sixth of a second to a second), MiB in use by all
 * processes, degrees Celsius, watts. */
extern const char *const aci_gpu_values[ACI_GPU_VALUES];

/* Fills out[0 .. n) and returns n, the number of GPUs: 0 without a driver. Loads the library with
 * the first call. */
unsigned aci_gpus_sample(aci_gpus *g, aci_gpu_sample out[ACI_GPUS]);
void aci_gpus_close(aci_gpus *g);

#endif
