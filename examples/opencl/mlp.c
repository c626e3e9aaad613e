/* The feed-forward part of a transformer: products, and the map of the activation between them. */
#include "device.h"

enum { X, WEIGHT1, WEIGHT2, BIAS1, BIAS2, ACTIVATION, TRANSPOSED };
enum { DY, DY_WEIGHT2, DY_H, DY_Z, DY_ACTIVATION, DY_TRANSPOSED, DY_SUMS };
enum { GELU, GELU_TANH, RELU, SILU }; /* as in the signatures */

/* y := act(x), or y := dy act'(x) where dy is given; relu's x is its result then. */
static ac_status activate(const ac_frame *f, int64_t activation, ac_tensor *dy, ac_tensor *x, ac_tensor *y, ac_err *e) {
  static const char *const forward[] = {"gelu", "gelu", "relu", "silu"}, *const backward[] = {"gelu_backward", "gelu_backward", "relu_backward",
                                                                                              "silu_backward"};
  ac_value a[3];
  int n = 0;
  if (dy != NULL) a[n++] = (ac_value){.kind = AC_T_TENSOR, .tensor = dy};
  a[n++] = (ac_value){.kind = AC_T_TENSOR, .tensor = x};
  if (activation <= GELU_TANH) a[n++] = (ac_value){.kind = AC_T_ENUM, .i = activation == GELU_TANH};
  return ocl_map_as(f, (dy != NULL ? backward : forward)[activation], a, n, y, e);
}

static ac_tensor *optional(const ac_value *v) { return v->kind == AC_T_TENSOR ? v->tensor : NULL; }

/* The argument of the activation is kept where the third result has room for it. */
static ac_status parts(ac_frame *f, ac_err *e) {
  const ac_value *a = f->args;
  ac_tensor *h = f->out[1], *z = ac_tensor_numel(f->out[2]) > 0 ? f->out[2] : h;
  AC_TRY(ocl_rows_product(f, a[X].tensor, a[WEIGHT1].tensor, a[TRANSPOSED].b, optional(&a[BIAS1]), z, e));
  AC_TRY(activate(f, a[ACTIVATION].i, NULL, z, h, e));
  return ocl_rows_product(f, h, a[WEIGHT2].tensor, a[TRANSPOSED].b, optional(&a[BIAS2]), f->out[0], e);
}

static ac_status backward(ac_frame *f, ac_err *e) {
  const ac_value *a = f->args;
  ac_tensor *dz = f->out[0];
  AC_TRY(ocl_rows_product(f, a[DY].tensor, a[DY_WEIGHT2].tensor, !a[DY_TRANSPOSED].b, NULL, dz, e));
  AC_TRY(activate(f, a[DY_ACTIVATION].i, dz, a[a[DY_ACTIVATION].i == RELU ? DY_H : DY_Z].tensor, dz, e));
  if (!a[DY_SUMS].b) return AC_OK;
  return ocl_sum(f, dz, (1u << (ac_tensor_ndim(dz) - 1)) - 1, f->out[1], e);
}

const ac_device_kernel ocl_mlp_kernels[] = {{"mlp_parts", parts}, {"mlp_backward", backward}, {NULL, NULL}};
