/* exp: y = e^x.          x (any shape) -> y (same shape)
   gradient: dx = dy * y.
   example: accel.tensor { 0.0, 1 }:exp() --> { 1, 2.718282 } */
#include "ops/map/map.h"

#define FWD(T, p, x) m_exp(x)

static void grad(ac_grad *g) { ac_grad_set(g, 0, x_mul(&g->x, T(g->dout[0]), T(g->out[0]))); }

/* e^a (cos b + i sin b) */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  ac_tensor *re = aci_re(x, a[0].tensor), *im = aci_im(x, a[0].tensor);
  ac_tensor *r = x_exp(x, re);
  out[0] = aci_join(x, x_mul(x, T(r), T(x_cos(x, im))), x_mul(x, T(r), T(x_sin(x, im))));
  return 1;
}

AC_MAP1(exp, FWD, .sig = "exp(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_OUT(0),
        .inplace = true, .flops_per_element = 8, .on_complex = on_complex);
