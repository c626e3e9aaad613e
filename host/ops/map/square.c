/* square: y = x^2.          x (any shape) -> y (same shape, bool gives i64)
   gradient: dx = 2 x dy.
   example: accel.tensor { 1.5, -3 }:square() --> { 2.25, 9 } */
#include "ops/map/map.h"

#define FWD(T, p, x) ((x) * (x))
ACI_LOOP1(square, float, f32, FWD)
ACI_LOOP1(square, double, f64, FWD)
ACI_LOOP1(square, int64_t, i64, FWD)
static const aci_map square_map = {1, square_f32, square_f64, square_i64};

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  return x->dtype == AC_BOOL ? ac_frame_out(f, AC_I64, x->ndim, x->shape, e) : aci_map_shape(f, e);
}

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_mul(&g->x, T(g->dout[0]), T(x_mul(&g->x, T(ARG_T(g, 0)), F(2)))));
}

/* z z */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  out[0] = x_mul(x, T(a[0].tensor), T(a[0].tensor));
  return 1;
}

AC_OP(square, .sig = "square(x: tensor) -> tensor", .shape = shape, .cpu = aci_map_cpu,
      .data = &square_map, .grad = grad, .save = AC_SAVE_IN(0), .inplace = true,
      .flops_per_element = 1, .on_complex = on_complex);
