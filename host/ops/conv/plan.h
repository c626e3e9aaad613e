/* Layouts of convolutions, pools and patches, for the kernels of the CPU and of device modules. */
#ifndef ACI_OPS_CONV_PLAN_H
#define ACI_OPS_CONV_PLAN_H
#include "accel/opdef.h"
#include "base/hostdev.h"
#include "device/cpu/kernels/conv.h"
#include "ops/map/convert.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- convolutions ---- */
/* The convolution between a tensor of shape `wide` (its input), a kernel, and one of shape `narrow`
 * (its result). Lists are at arguments stride, stride + 1 and dilation, groups at groups. SHAPE
 * when they do not belong together. */
typedef struct aci_conv_operands {
  const int64_t *wide, *kernel, *narrow;
  int n_wide, n_kernel, n_narrow;
  int stride, dilation, groups;
} aci_conv_operands;
ACI_MODULE_API ac_status aci_conv_describe(const ac_frame *f, const aci_conv_operands *o,
                                           aci_conv *c, ac_err *e);

/* ---- pools ---- */
/* A plane is the space of one channel of one image, (H, W) or (L). Every output position owns a
 * window of it. Adaptive pools cut each dim of size `in` into `out` windows from floor(o in / out)
 * to ceil((o + 1) in / out). */
enum { ACI_POOL_DIMS = 2 };

typedef struct aci_pool {
  ac_dtype dtype;
  aci_ctype ct;
  int n; /* dims of space. 1 has height 1 */
  int64_t planes, in[ACI_POOL_DIMS], out[ACI_POOL_DIMS];
  int64_t k[ACI_POOL_DIMS], stride[ACI_POOL_DIMS], pad[ACI_POOL_DIMS], dil[ACI_POOL_DIMS];
  bool adaptive;
  bool count_pad;  /* averages count the padding */
  int64_t divisor; /* of averages. 0: the number of elements */
} aci_pool;

/* The numbers of the parameters. space and adaptive belong to the hidden ops, which take n and the
 * kind as arguments. */
typedef struct aci_pool_args {
  int n; /* dims of space. 0: at argument space */
  /* argument of the window, or of the output size. stride and padding follow unless adaptive */
  int kernel;
  int dilation, ceil;  /* -1: none */
  int count_pad;       /* -1: none. divisor_override follows unless n is 1 */
  int adaptive, space; /* -1: none */
  bool is_adaptive;    /* if there is no such argument */
} aci_pool_args;
static inline aci_pool_args aci_pool_args_of(int n, int kernel, int dilation, int ceil,
                                             int count_pad, int adaptive, int space) {
  aci_pool_args a = {n, kernel, dilation, ceil, count_pad, adaptive, space, false};
  return a;
}
static inline aci_pool_args aci_max_pool_args(int n) {
  return aci_pool_args_of(n, 1, 4, 5, -1, -1, -1);
}
static inline aci_pool_args aci_avg_pool_args(int n) {
  return aci_pool_args_of(n, 1, -1, 4, 5, -1, -1);
}
static inline aci_pool_args aci_adaptive_pool_args(int n) {
  aci_pool_args a = aci_pool_args_of(n, 1, -1, -1, -1, -1, -1);
  a.is_adaptive = true;
  return a;
}
/* for max_pool_backward and max_pool_take, and for avg_pool_backward */
static inline aci_pool_args aci_max_pool_back_args(void) {
  return aci_pool_args_of(0, 2, 5, 6, -1, 7, 8);
}
static inline aci_pool_args aci_avg_pool_back_args(void) {
  return aci_pool_args_of(0, 2, -1, 5, 6, 8, 9);
}

/* The windows over an input of this shape. INVALID and SHAPE name the mismatch. */
ACI_MODULE_API ac_status aci_pool_make(const ac_frame *f, const aci_pool_args *a, ac_dtype dt,
                                       const int64_t *shape, int ndim, aci_pool *p, ac_err *e);
/* Window dim d of output position o, clipped to the input, as [lo, hi): for adaptive and undilated
 * ones. */
AC_HOSTDEV static inline void aci_pool_span(const aci_pool *p, int d, int64_t o, int64_t *lo,
                                            int64_t *hi) {
  if (p->adaptive) { /* o in / out without the product, which might not fit */
    const int64_t whole = p->in[d] / p->out[d], rest = p->in[d] % p->out[d];
    *lo = o * whole + o * rest / p->out[d];
    *hi = (o + 1) * whole + ((o + 1) * rest + p->out[d] - 1) / p->out[d];
    return;
  }
  *lo = o * p->stride[d] - p->pad[d];
  *hi = *lo + p->k[d];
  if (*lo < 0) *lo = 0;
  if (*hi > p->in[d]) *hi = p->in[d];
}
/* How many elements dim d of window o counts with in an average. */
AC_HOSTDEV static inline int64_t aci_pool_extent(const aci_pool *p, int d, int64_t o) {
  int64_t lo, hi;
  if (!p->adaptive && p->count_pad) {
    lo = o * p->stride[d] - p->pad[d];
    hi = lo + p->k[d] < p->in[d] + p->pad[d] ? lo + p->k[d] : p->in[d] + p->pad[d];
  } else {
    aci_pool_span(p, d, o, &lo, &hi);
  }
  return hi > lo ? hi - lo : 0;
}

/* ---- patches: a window over the planes of (N, C, H, W) ---- */
typedef struct aci_patches {
  int64_t planes, channels; /* planes = batch * channels */
  int64_t in[2], out[2], k[2], dil[2], pad[2], stride[2];
} aci_patches;

/* Window arguments (kernel_size, dilation, padding, stride) from argument `at` on, over a tensor of
 * this
 * shape. */
ACI_MODULE_API ac_status aci_patches_make(const ac_frame *f, int at, const int64_t *shape, int ndim,
                                          aci_patches *p, ac_err *e);

#ifdef __cplusplus
}
#endif
#endif
