/* celu: y = x if x > 0, else alpha (e^(x / alpha) - 1): elu with a slope that does not jump.
   x (any shape) -> y (same shape)
   gradient: dx = dy if x > 0, else dy e^(x / alpha), in one pass by elu_backward.
   example: accel.tensor { -1.0, 2.0 }:celu(2) --> { -0.786939, 2 } */
#include "ops/map/exponential.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  if (ARG_F(f, 1) == 0) return AC_FAIL(e, INVALID, "alpha may not be 0: x is divided by it");
  return aci_map_shape(f, e);
}

static void grad(ac_grad *g) {
  double alpha = ARG_F(g, 1);
  ac_grad_set(g, 0, x_elu_backward(&g->x, g->dout[0], ARG_T(g, 0), 1, alpha, 1 / alpha));
}

#define FWD(T, p, x) ACI_ELU(T, x, 1, p[0], 1 / p[0])
ACI_LOOP1(celu, float, f32, FWD)
ACI_LOOP1(celu, double, f64, FWD)
static const aci_map celu_map = {1, celu_f32, celu_f64, NULL};

AC_OP(celu, .sig = "celu(x: tensor, alpha: float = 1) -> tensor", .shape = shape,
      .cpu = aci_map_cpu, .elementwise = true, .data = &celu_map, .grad = grad,
      .save = AC_SAVE_IN(0), .inplace = true, .flops_per_element = 10);
