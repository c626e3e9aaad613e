/* selu: y = scale x if x > 0, else scale alpha (e^x - 1), with the constants that keep mean 0 and variance 1 from
   layer to layer (scale 1.0507, alpha 1.67326).          x (any shape) -> y (same shape)
   gradient: dx = dy scale if x > 0, else dy scale alpha e^x, in one pass by elu_backward.
   example: accel.tensor { -1.0, 2.0 }:selu() --> { -1.111331, 2.101402 } */
#include "ops/map/exponential.h"

#define SCALE 1.0507009873554804934193349852946
#define ALPHA 1.6732632423543772848170429916717

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_elu_backward(&g->x, g->dout[0], ARG_T(g, 0), SCALE, ALPHA, 1));
}

#define FWD(T, p, x) ACI_ELU(T, x, (T)SCALE, (T)ALPHA, 1)

AC_MAP1(selu, FWD, .sig = "selu(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 10);
