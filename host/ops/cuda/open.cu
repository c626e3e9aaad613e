/* The module's entry: takes the functions of the library and hands over kernels, drivers and the
 * device. */
#include <stdio.h>

#include "ops/cuda/launch.cuh"

#if !defined(ACI_CUDA_EMULATED) && defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define ACI_NVTX 1
#endif
#endif

aci_cuda_entry *&aci_cuda_entry::head() {
  static aci_cuda_entry *first;
  return first;
}

static void range_push(const char *name) {
#ifdef ACI_NVTX
  nvtxRangePushA(name);
#else
  (void)name;
#endif
}
static void range_pop() {
#ifdef ACI_NVTX
  nvtxRangePop();
#endif
}

static const ac_device_kernel *kernel_list() {
  static ac_device_kernel list[513]; /* the last row has no op */
  int n = 0;
  for (aci_cuda_entry *k = aci_cuda_entry::head(); k != NULL && n < 512; k = k->next, n++)
    list[n] = {k->op, k->run};
  return list;
}

extern const aci_drivers aci_cuda_drivers;

extern "C" AC_API const aci_cuda_api *accel_cuda_open(const struct aci_module_calls *calls) {
  static aci_cuda_api api;
  if (!aci_module_take(calls)) return NULL;
#ifdef ACI_CUDA_EMULATED
  api.runtime = "emulated";
#else
  static char runtime[16];
  snprintf(runtime, sizeof runtime, "%d.%d", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  api.runtime = runtime;
#endif
  api.count = aci_cuda_devices;
  api.describe = aci_cuda_describe;
  api.vtable = aci_cuda_vtable();
  api.kernels = kernel_list();
  api.drivers = &aci_cuda_drivers;
  api.range_push = range_push;
  api.range_pop = range_pop;
  return &api;
}
