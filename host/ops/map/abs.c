/* abs: y = |x|.          x (any shape, not bool) -> y (same shape, dtype)
   gradient: dx = dy * sign x, which is 0 at 0.
   example: accel.tensor { -1.5, 2 }:abs() --> { 1.5, 2 } */
#include "ops/map/map.h"

#define FWD(T, p, x) m_abs(x)
#define FWD_INT(T, p, x) ((x) < 0 ? (T)(0 - (uint64_t)(x)) : (x))
ACI_LOOP1(abs, float, f32, FWD)
ACI_LOOP1(abs, double, f64, FWD)
ACI_LOOP1(abs, int64_t, i64, FWD_INT)
static const aci_map abs_map = {1, abs_f32, abs_f64, abs_i64};

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_mul(&g->x, T(g->dout[0]), T(x_sign(&g->x, ARG_T(g, 0)))));
}

/* sqrt(a^2 + b^2), real */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  ac_tensor *re = aci_re(x, a[0].tensor), *im = aci_im(x, a[0].tensor);
  out[0] = x_complex_abs(x, T(re), T(im));
  return 1;
}

AC_OP(abs, .sig = "abs(x: tensor) -> tensor", .shape = aci_map_shape_nobool, .cpu = aci_map_cpu,
      .data = &abs_map, .grad = grad, .save = AC_SAVE_IN(0), .inplace = true,
      .flops_per_element = 1, .alias = "absolute", .on_complex = on_complex);
