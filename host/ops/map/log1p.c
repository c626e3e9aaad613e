/* log1p: y = ln(1 + x), accurate near 0.          x (any shape) -> y (same shape)
   gradient: dx = dy / (1 + x).
   example: accel.tensor { 0.0, 1 }:log1p() --> { 0, 0.693147 } */
#include "ops/map/map.h"

#define FWD(T, p, x) (m_log1p(x))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0];
  ac_scalar one = aci_float(1);
  ac_grad_set(g, 0, x_div(x, T(dy), T(x_add(x, T(ARG_T(g, 0)), F(1), one))));
}

/* ln |1 + z| + i angle(1 + z) */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  ac_tensor *re = aci_re(x, a[0].tensor), *im = aci_im(x, a[0].tensor);
  ac_tensor *more = x_mul(x, T(re), T(x_add(x, T(re), F(2), aci_float(1)))); /* |1 + z|^2 - 1 */
  more = x_add(x, T(more), T(x_square(x, im)), aci_float(1));
  out[0] = aci_join(x, x_mul(x, T(x_log1p(x, more)), F(0.5)),
                    x_atan2(x, T(im), T(x_add(x, T(re), F(1), aci_float(1)))));
  return 1;
}

AC_MAP1(log1p, FWD, .sig = "log1p(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 8, .on_complex = on_complex);
