/* What pools share: the windows of a call, shape rules, and the loops over planes. A plane is the space of
 * one channel of one image, (H, W) or (L); every output place owns a window of it. Adaptive pools cut each
 * dim of size `in` into `out` windows from floor(o in / out) to ceil((o + 1) in / out). */
#ifndef ACI_OPS_POOL_H
#define ACI_OPS_POOL_H
#include "ops/conv/conv.h"
#include "ops/map/convert.h"

enum { ACI_POOL_DIMS = 2 };

typedef struct aci_pool {
  ac_dtype dtype;
  aci_ctype ct;
  int n; /* dims of space; 1 has height 1 */
  int64_t planes, in[ACI_POOL_DIMS], out[ACI_POOL_DIMS];
  int64_t k[ACI_POOL_DIMS], stride[ACI_POOL_DIMS], pad[ACI_POOL_DIMS], dil[ACI_POOL_DIMS];
  bool adaptive;
  bool count_pad;  /* averages count the padding */
  int64_t divisor; /* of averages; 0: the number of elements */
} aci_pool;

/* Where the parameters lie. space and adaptive are those of the hidden ops, which take n and the kind as
 * arguments. */
typedef struct aci_pool_args {
  int n;      /* dims of space; 0: at argument space */
  int kernel; /* argument of the window, or of the output size; stride and padding follow unless adaptive */
  int dilation, ceil;  /* -1: none */
  int count_pad;       /* -1: none; divisor_override follows unless n is 1 */
  int adaptive, space; /* -1: none */
  bool is_adaptive;    /* where there is no such argument */
} aci_pool_args;

/* The windows over an input of this shape. INVALID and SHAPE say what does not fit. */
ac_status aci_pool_make(const ac_frame *f, const aci_pool_args *a, ac_dtype dt, const int64_t *shape,
                        int ndim, aci_pool *p, ac_err *e);
/* Input check, windows, and the output of dtype dt over them. */
ac_status aci_pool_out(ac_frame *f, const aci_pool_args *a, aci_pool *p, ac_err *e);
/* Pushes an output of dtype dt: x's shape with the extents of p's windows. */
ac_status aci_pool_push(ac_frame *f, const aci_pool *p, const int64_t *shape, int ndim, ac_dtype dt,
                        ac_err *e);
/* SHAPE unless dy has the shape that windows p give over x. */
ac_status aci_pool_fits(const aci_pool *p, const ac_tensor *dy, const int64_t *shape, int ndim, ac_err *e);
/* Window dim d of output place o, clipped to the input, as [lo, hi): for adaptive and undilated ones. */
static inline void aci_pool_span(const aci_pool *p, int d, int64_t o, int64_t *lo, int64_t *hi) {
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

/* ---- kernels; every tensor has p's dtype, and any strides where it is const ---- */
/* values and indices (i64, may be NULL) are contiguous outputs. */
ac_status aci_pool_max(ac_frame *f, const aci_pool *p, const ac_tensor *x, ac_tensor *values,
                       ac_tensor *indices, ac_err *e);
/* dx = dy added to where the largest elements stand. */
ac_status aci_pool_max_backward(ac_frame *f, const aci_pool *p, const ac_tensor *dy, const ac_tensor *x,
                                ac_tensor *dx, ac_err *e);
/* y = t at the places where the largest elements of x stand. */
ac_status aci_pool_max_take(ac_frame *f, const aci_pool *p, const ac_tensor *t, const ac_tensor *x,
                            ac_tensor *y, ac_err *e);
ac_status aci_pool_avg(ac_frame *f, const aci_pool *p, const ac_tensor *x, ac_tensor *y, ac_err *e);
ac_status aci_pool_avg_backward(ac_frame *f, const aci_pool *p, const ac_tensor *dy, ac_tensor *dx,
                                ac_err *e);

/* ---- ops ---- */
/* max_pool<n>d: (x, kernel_size, stride, padding, dilation, ceil_mode, return_indices). */
ac_status aci_max_pool_shape(ac_frame *f, int n, ac_err *e);
ac_status aci_max_pool_run(ac_frame *f, int n, ac_err *e);
void aci_max_pool_grad(ac_grad *g, int n);
/* adaptive_max_pool<n>d: (x, output_size, return_indices). */
ac_status aci_adaptive_max_pool_shape(ac_frame *f, int n, ac_err *e);
ac_status aci_adaptive_max_pool_run(ac_frame *f, int n, ac_err *e);
void aci_adaptive_max_pool_grad(ac_grad *g, int n);
/* avg_pool<n>d: (x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override of 2d). */
ac_status aci_avg_pool_shape(ac_frame *f, int n, ac_err *e);
ac_status aci_avg_pool_run(ac_frame *f, int n, ac_err *e);
void aci_avg_pool_grad(ac_grad *g, int n);
/* adaptive_avg_pool<n>d: (x, output_size). */
ac_status aci_adaptive_avg_pool_shape(ac_frame *f, int n, ac_err *e);
ac_status aci_adaptive_avg_pool_run(ac_frame *f, int n, ac_err *e);
void aci_adaptive_avg_pool_grad(ac_grad *g, int n);

#endif
