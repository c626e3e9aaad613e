/* fill_: x := value everywhere.          x (any shape)! -> x
   gradient: the old x gets 0.
   example: accel.zeros(2):fill_(3) --> { 3, 3 } */
#include "ops/map/fill.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_fill_check(f->args[1].scalar, (ac_dtype)ARG_T(f, 0)->dtype, e));
  return ac_frame_alias(f, 0, e);
}
static ac_status cpu(ac_frame *f, ac_err *e) { return aci_fill(f, f->args[1].scalar, e); }
static void grad(ac_grad *g) { ac_grad_set(g, 0, x_zeros_like(&g->x, g->dout[0], NULL, NULL)); }

AC_OP(fill_, .sig = "fill_(x!: tensor, value: scalar) -> tensor", .shape = shape, .cpu = cpu,
      .any_device = true, .grad = grad, .complex_as = AC_COMPLEX_NATIVE);
