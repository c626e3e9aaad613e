/* std: y = the root of var: sqrt(sum of (x - mean)^2 / (n - correction)) over dim (all dims when none are given).
   correction is 1 if it is not given. unbiased = false is its old spelling for 0, true for 1.
   x (floating point, any shape) -> y (without those dims, or 1 with keepdim)
   gradient: dx = dy (x - mean) / (y (n - correction)), 0 if y is 0.
   example: accel.tensor { 1.0, 2.0, 4.0, 5.0 }:std() --> 1.825742
   example: accel.tensor { { 1.0, 3.0 }, { 2.0, 8.0 } }:std(1, { correction = 0 }) --> { 0.5, 2.5 } */
#include "ops/core/fuse.h"
#include "ops/reduce/moments.h"

static ac_status cpu(ac_frame *f, ac_err *e) { return aci_moments_run(f, true, e); }

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *y = g->out[0], *flat = x_eq(x, T(y), F(0));
  ac_tensor *half =
      x_div(x, T(x_mul(x, T(g->dout[0]), F(0.5))), T(x_masked_fill(x, y, flat, F(1))));
  aci_moments_grad(g, x_masked_fill(x, half, flat, F(0)));
}

/* the root of the variance */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  ac_tensor *v = aci_complex_again(x, ac_op_find(x->ctx, "var"), a, a[0].tensor);
  (void)op;
  out[0] = x_sqrt(x, v);
  return 1;
}

AC_OP(std,
      .sig = "std(x: tensor, dim: dims?, keepdim: bool = false, correction: scalar?, "
             "unbiased: bool?) -> tensor",
      .shape = aci_moments_shape, .cpu = cpu, .data = &aci_fuse_reduces, .grad = grad,
      .save = AC_SAVE_IN(0) | AC_SAVE_OUT(0), .flops_per_element = 5, .on_complex = on_complex);
