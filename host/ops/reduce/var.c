/* var: y = sum of (x - mean)^2 / (n - correction) over dim (all dims when none are given), with n elements under
   each output. Not finite if n - correction is 0 or less. correction = 1 estimates the variance of the
   distribution that x was drawn from, 0 gives the variance of x itself. It is 1 if it is not given. unbiased = false is
   its old spelling for 0, true for 1.
   x (floating point, any shape) -> y (without those dims, or 1 with keepdim)
   gradient: dx = dy 2 (x - mean) / (n - correction).
   example: accel.tensor { 1.0, 2.0, 4.0, 5.0 }:var() --> 3.333333
   example: accel.tensor { { 1.0, 3.0 }, { 2.0, 8.0 } }:var(2, { correction = 0 }) --> { 1, 9 } */
#include "ops/core/fuse.h"
#include "ops/reduce/moments.h"

static ac_status cpu(ac_frame *f, ac_err *e) { return aci_moments_run(f, false, e); }
static void grad(ac_grad *g) { aci_moments_grad(g, g->dout[0]); }

/* the sum of both parts */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  ac_tensor *re = aci_complex_again(x, op, a, aci_re(x, a[0].tensor));
  out[0] = x_add(x, T(re), T(aci_complex_again(x, op, a, aci_im(x, a[0].tensor))), aci_float(1));
  return 1;
}

AC_OP(var,
      .sig = "var(x: tensor, dim: dims?, keepdim: bool = false, correction: scalar?, "
             "unbiased: bool?) -> tensor",
      .shape = aci_moments_shape, .cpu = cpu, .data = &aci_fuse_reduces, .grad = grad,
      .save = AC_SAVE_IN(0), .flops_per_element = 5, .on_complex = on_complex);
