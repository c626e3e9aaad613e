/* tril: matrices with everything above a diagonal set to zero. diagonal 0 is the main one, positive ones lie
   above it.
   x (..., m, n) -> y (..., m, n).          gradient: dx = dy cut the same way.
   example: accel.ones(2, 3):tril() --> { { 1, 0, 0 }, { 1, 1, 0 } } */
#include "ops/index/triangle.h"

static ac_status cpu(ac_frame *f, ac_err *e) { return aci_triangle(f, false, e); }
static void grad(ac_grad *g) { ac_grad_set(g, 0, x_tril(&g->x, g->dout[0], ARG_I(g, 1))); }

AC_OP(tril, .sig = "tril(x: tensor, diagonal: int = 0) -> tensor", .shape = aci_triangle_shape,
      .cpu = cpu, .grad = grad, .inplace = true, .copy_back = true,
      .on_complex = aci_complex_parts);
