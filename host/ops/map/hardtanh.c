/* hardtanh: y = min(max(x, min_val), max_val). NaN stays NaN. Integers stay integers.          x (any shape) -> y (same shape)
   gradient: dx = dy if min_val < x < max_val, else 0, in one pass by hardtanh_backward.
   example: accel.tensor { -2.0, 0.5, 3.0 }:hardtanh() --> { -1, 0.5, 1 }
   example: accel.tensor { -2.0, 0.5, 3.0 }:hardtanh(0, 2) --> { 0, 0.5, 2 } */
#include "ops/map/map.h"

#define FWD(T, p, x) ((x) < p[0] ? p[0] : (x) > p[1] ? p[1] : (x))
#define BWD(T, p, dy, x) (((x) > p[0]) & ((x) < p[1]) ? (dy) : 0)
ACI_LOOP1(hardtanh, float, f32, FWD)
ACI_LOOP1(hardtanh, double, f64, FWD)
ACI_LOOP1(hardtanh, int64_t, i64, FWD)
static const aci_map hardtanh_map = {1, hardtanh_f32, hardtanh_f64, hardtanh_i64};

static ac_status shape(ac_frame *f, ac_err *e) {
  if (!(ARG_F(f, 1) <= ARG_F(f, 2)))
    return AC_FAIL(e, INVALID, "min_val is %g and max_val %g: the first must be the smaller",
                   ARG_F(f, 1), ARG_F(f, 2));
  if (ARG_T(f, 0)->dtype == AC_U8 && ARG_F(f, 1) < 0)
    return AC_FAIL(e, DTYPE, "min_val is %g, which u8 does not have; cast to a signed dtype first",
                   ARG_F(f, 1));
  return aci_map_shape_nobool(f, e);
}

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_hardtanh_backward(&g->x, g->dout[0], ARG_T(g, 0), ARG_F(g, 1), ARG_F(g, 2)));
}
static void grad_backward(ac_grad *g) { /* linear in dy, constant in x almost everywhere */
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0,
                x_hardtanh_backward(&g->x, g->dout[0], ARG_T(g, 1), ARG_F(g, 2), ARG_F(g, 3)));
  aci_grad_zero(g, 1);
}

AC_OP(hardtanh, .sig = "hardtanh(x: tensor, min_val: float = -1, max_val: float = 1) -> tensor",
      .shape = shape, .cpu = aci_map_cpu, .elementwise = true, .data = &hardtanh_map, .grad = grad,
      .save = AC_SAVE_IN(0), .inplace = true, .flops_per_element = 2);
AC_MAP2(hardtanh_backward, BWD,
        .sig = "hardtanh_backward(dy: tensor, x: tensor, min_val: float, max_val: float) -> tensor",
        .grad = grad_backward, .save = AC_SAVE_IN(1), .hidden = true);
