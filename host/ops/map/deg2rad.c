/* deg2rad: y = x pi / 180, degrees as radians.          x (any shape, integers are computed in f32) -> y (same shape)
   gradient: dx = dy pi / 180.
   example: accel.tensor { 180.0, -90 }:deg2rad() --> { 3.141593, -1.570796 } */
#include "ops/map/map.h"

#define RADIANS 0.017453292519943295
#define FWD(T, p, x) ((x) * (T)RADIANS)

static void grad(ac_grad *g) { ac_grad_set(g, 0, x_mul(&g->x, T(g->dout[0]), F(RADIANS))); }

AC_MAP1(deg2rad, FWD, .sig = "deg2rad(x: tensor) -> tensor", .grad = grad, .inplace = true);
