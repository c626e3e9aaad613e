/* zero_: x := 0 everywhere.          x (any shape)! -> x
   gradient: the old x gets 0.
   example: accel.ones(2):zero_() --> { 0, 0 } */
#include "ops/map/fill.h"

static ac_status shape(ac_frame *f, ac_err *e) { return ac_frame_alias(f, 0, e); }
static ac_status cpu(ac_frame *f, ac_err *e) { return aci_fill(f, aci_float(0), e); }
static void grad(ac_grad *g) { ac_grad_set(g, 0, x_zeros_like(&g->x, g->dout[0], NULL, NULL)); }

AC_OP(zero_, .sig = "zero_(x!: tensor) -> tensor", .shape = shape, .cpu = cpu, .any_device = true,
      .grad = grad, .complex_as = AC_COMPLEX_NATIVE);
