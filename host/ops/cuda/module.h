/* What the library and accel_cuda.so say to one another. The module is one binary for machines with and without a driver: it brings
 * the CUDA runtime inside, which looks for the driver when it is first asked for a device.
 *
 * Library -> module: one call of ACI_CUDA_SYMBOL hands over the functions that the module takes from the library (it cannot link
 * them: a stock interpreter loads the library privately). Module -> library: kernels of ops, drivers of shared kernels, the device. */
#ifndef ACI_OPS_CUDA_MODULE_H
#define ACI_OPS_CUDA_MODULE_H
#include "ops/conv/plan.h"
#include "ops/ctx_impl.h"
#include "ops/dynamic.h"
#include "ops/index/advanced_index_plan.h"
#include "ops/index/remap_plan.h"
#include "ops/map/plan.h"
#include "ops/reduce/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ACI_CUDA_SYMBOL "accel_cuda_open"
enum { ACI_CUDA_VERSION = 1 };

/* X(result, name, parameters, arguments): each is a field here and a function of the same name in the module. */
/* clang-format off */
#define ACI_CUDA_CALLS(X)                                                                                                        \
  X(ac_status, ac_block_alloc, (ac_device * d, size_t n, ac_mem_class c, ac_stream *s, ac_block **out, ac_err *e),              \
    (d, n, c, s, out, e))                                                                                                        \
  X(void, ac_block_free, (ac_block * b), (b))                                                                                    \
  X(const char *, ac_dtype_name, (ac_dtype d), (d))                                                                              \
  X(bool, ac_dtype_is_float, (ac_dtype d), (d))                                                                                  \
  X(ac_status, aci_conv_describe, (const ac_frame *f, const aci_conv_operands *o, aci_conv *c, ac_err *e), (f, o, c, e))          \
  X(ac_status, aci_pool_make,                                                                                                    \
    (const ac_frame *f, const aci_pool_args *a, ac_dtype dt, const int64_t *shape, int ndim, aci_pool *p, ac_err *e),            \
    (f, a, dt, shape, ndim, p, e))                                                                                               \
  X(ac_status, aci_patches_make,                                                                                                 \
    (const ac_frame *f, int at, const int64_t *shape, int ndim, aci_patches *p, ac_err *e), (f, at, shape, ndim, p, e))          \
  X(ac_status, aci_advanced_index_plan, (const ac_frame *f, int arg, int dims, int ndim, const int64_t *shape, aci_advanced_index *p, ac_err *e),\
    (f, arg, dims, ndim, shape, p, e))                                                                                           \
  X(void, aci_scalar_bytes, (ac_scalar v, ac_dtype dt, void *bytes), (v, dt, bytes))                                                  \
  X(int, aci_advanced_index_shape, (const aci_advanced_index *p, const int64_t *shape, int64_t *out), (p, shape, out))           \
  X(void, aci_pad_maps, (const ac_frame *f, int ndim, const int64_t *shape, const int64_t *stride, aci_remap *m),                \
    (f, ndim, shape, stride, m))                                                                                                 \
  X(const aci_map_loop *, aci_map_plan_make, (const ac_frame *f, const aci_map *m, aci_map_plan *plan), (f, m, plan))            \
  X(ac_status, aci_map_run, (ac_frame * f, const aci_map *m, ac_err *e), (f, m, e))                                              \
  X(void, aci_reduce_plan_make, (aci_reduce_plan * p, const ac_tensor *x, uint32_t mask, aci_ctype ct), (p, x, mask, ct))        \
  X(uint32_t, aci_reduce_mask, (const ac_value *dims, int ndim), (dims, ndim))                                                   \
  X(ac_status, aci_frame_size, (ac_frame * f, int result, int ndim, const int64_t *shape, ac_err *e), (f, result, ndim, shape, e))
/* clang-format on */

typedef struct aci_cuda_calls {
  size_t struct_size;
  ac_status (*ac_err_set)(ac_err *e, ac_status code, const char *file, int line, const char *fmt, ...)
      AC_PRINTF(5, 6);
#define ACI_CUDA_X(result, name, params, args) result(*name) params;
  ACI_CUDA_CALLS(ACI_CUDA_X)
#undef ACI_CUDA_X
} aci_cuda_calls;

/* Flags of a CUDA device, in the order of the provider's table: kernels ask aci_flag. */
enum aci_cuda_flag {
  ACI_CUDA_SYNC, /* every launch waits for its kernel */
  ACI_CUDA_TF32, /* products of f32 may round their factors */
  ACI_CUDA_CUDNN /* convolutions go through cuDNN where it is installed */
};

typedef struct aci_cuda_api {
  int version;
  const char *runtime; /* "13.0", or "emulated" for the twin that the tests build */
  /* Devices that this process may use. 0: why says, in a few words, what is missing. */
  int (*count)(char *why, size_t n);
  void (*describe)(int index, char *text, size_t n); /* "NVIDIA H100 80GB HBM3, 79.2 GiB, compute 9.0" */
  const ac_device_vtable *vtable;
  const ac_device_kernel *kernels;
  const aci_drivers *drivers;
  /* NVTX ranges, for profilers. */
  void (*range_push)(const char *name);
  void (*range_pop)(void);
} aci_cuda_api;
/* NULL when the calls are of another version. */
typedef const aci_cuda_api *(*aci_cuda_open_fn)(const aci_cuda_calls *calls);

#ifdef __cplusplus
}
#endif
#endif
