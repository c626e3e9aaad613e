/* Shape rules and loops over planes, shared by pools. plan.h lays out their windows. */
#ifndef ACI_OPS_POOL_H
#define ACI_OPS_POOL_H
#include "ops/conv/conv.h"

/* Input check, windows, and the output of dtype dt over them. */
ac_status aci_pool_out(ac_frame *f, const aci_pool_args *a, aci_pool *p, ac_err *e);
/* Pushes an output of dtype dt: x's shape with the extents of p's windows. */
ac_status aci_pool_push(ac_frame *f, const aci_pool *p, const int64_t *shape, int ndim, ac_dtype dt,
                        ac_err *e);
/* SHAPE unless dy has the shape that windows p give over x. */
ac_status aci_pool_fits(const aci_pool *p, const ac_tensor *dy, const int64_t *shape, int ndim,
                        ac_err *e);

/* ---- kernels. Every tensor has p's dtype, and any strides if it is const ---- */
/* values and indices (i64, may be NULL) are contiguous outputs. */
ac_status aci_pool_max(ac_frame *f, const aci_pool *p, const ac_tensor *x, ac_tensor *values,
                       ac_tensor *indices, ac_err *e);
/* dx = dy added at the positions of the largest elements. */
ac_status aci_pool_max_backward(ac_frame *f, const aci_pool *p, const ac_tensor *dy,
                                const ac_tensor *x, ac_tensor *dx, ac_err *e);
/* y = t at the positions of the largest elements of x. */
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
/* avg_pool<n>d: (x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override of
 * 2d). */
ac_status aci_avg_pool_shape(ac_frame *f, int n, ac_err *e);
ac_status aci_avg_pool_run(ac_frame *f, int n, ac_err *e);
void aci_avg_pool_grad(ac_grad *g, int n);
/* adaptive_avg_pool<n>d: (x, output_size). */
ac_status aci_adaptive_avg_pool_shape(ac_frame *f, int n, ac_err *e);
ac_status aci_adaptive_avg_pool_run(ac_frame *f, int n, ac_err *e);
void aci_adaptive_avg_pool_grad(ac_grad *g, int n);

#endif
