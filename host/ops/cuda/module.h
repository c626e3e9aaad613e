/* The interface between the library and accel_cuda.so. The module is one binary for machines with
 * and without a driver: it includes the CUDA runtime, which looks for the driver when it is first
 * asked for a device.
 *
 * Library -> module: one call of ACI_CUDA_SYMBOL hands over the functions that the module takes
 * from the library, which it cannot link (ops/core/gen/emit_calls.c). Module -> library: kernels of ops,
 * drivers of shared kernels, the device. */
#ifndef ACI_OPS_CUDA_MODULE_H
#define ACI_OPS_CUDA_MODULE_H
#include "ops/conv/plan.h"
#include "ops/core/ctx_impl.h"
#include "ops/core/dynamic.h"
#include "ops/index/advanced_index_plan.h"
#include "ops/index/remap_plan.h"
#include "ops/map/plan.h"
#include "ops/reduce/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ACI_CUDA_SYMBOL "accel_cuda_open"

/* Flags of a CUDA device, in the order of the provider's table: kernels ask aci_flag. */
enum aci_cuda_flag {
  ACI_CUDA_SYNC, /* every launch waits for its kernel */
  ACI_CUDA_TF32, /* products of f32 may round their factors */
  ACI_CUDA_CUDNN /* convolutions use cuDNN if installed */
};

typedef struct aci_cuda_api {
  const char *runtime; /* "13.0", or "emulated" for the twin that the tests build */
  /* Devices that this process may use. 0: why gets a short text that names the missing part. */
  int (*count)(char *why, size_t n);
  /* "NVIDIA H100 80GB HBM3, 79.2 GiB, compute 9.0" */
  void (*describe)(int index, char *text, size_t n);
  const ac_device_vtable *vtable;
  const ac_device_kernel *kernels;
  const aci_drivers *drivers;
  /* NVTX ranges, for profilers. */
  void (*range_push)(const char *name);
  void (*range_pop)(void);
} aci_cuda_api;
/* generated: functions of the library that the module takes under their own names */
struct aci_module_calls;
/* In the module, which it fills in: false when the module was built from other headers than the
 * library. */
bool aci_module_take(const struct aci_module_calls *calls);
/* NULL when that is so. */
typedef const aci_cuda_api *(*aci_cuda_open_fn)(const struct aci_module_calls *calls);

#ifdef __cplusplus
}
#endif
#endif
