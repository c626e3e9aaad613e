/* clone: y = x, in memory of its own, contiguous.          x (any shape) -> y (same shape, dtype)
   gradient: dx = dy.
   example: local a = accel.tensor { 1, 2 } local b = a:clone() b:fill_(0) return a, b --> { 1, 2 }, { 0, 0 } */
#include "ops/map/map.h"

#define FWD(T, p, x) (x)

static void grad(ac_grad *g) { ac_grad_set(g, 0, g->dout[0]); }

AC_MAP1N(clone, FWD, .sig = "clone(x: tensor) -> tensor", .grad = grad, .quantized = 1,
         .on_complex = aci_complex_pairs);
