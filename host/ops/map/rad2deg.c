/* rad2deg: y = x 180 / pi, radians as degrees.          x (any shape, integers are computed in f32) -> y (same shape)
   gradient: dx = dy 180 / pi.
   example: accel.tensor { math.pi, -math.pi / 2 }:rad2deg() --> { 180, -90 } */
#include "ops/map/map.h"

#define DEGREES 57.295779513082323
#define FWD(T, p, x) ((x) * (T)DEGREES)

static void grad(ac_grad *g) { ac_grad_set(g, 0, x_mul(&g->x, T(g->dout[0]), F(DEGREES))); }

AC_MAP1(rad2deg, FWD, .sig = "rad2deg(x: tensor) -> tensor", .grad = grad, .inplace = true);
