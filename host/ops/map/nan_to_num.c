/* nan_to_num: y = nan if x is NaN, posinf if it is +inf, neginf if it is -inf, else x. If omitted, posinf and
   neginf are the largest and smallest finite numbers of the dtype. Integers stay as they are.
   x (any shape) -> y (same shape)
   gradient: dx = dy if x is finite, else 0.
   example: accel.tensor { 0 / 0, 1.5, math.huge }:nan_to_num { posinf = 9 } --> { 0, 1.5, 9 } */
#include <float.h>

#include "ops/map/map.h"

#define FWD(T, p, x) \
  ((x) != (x) ? p[0] : (x) == (T)INFINITY ? p[1] : (x) == -(T)INFINITY ? p[2] : (x))
#define FWD_INT(T, p, x) (x)
ACI_LOOP1(nan_to_num, float, f32, FWD)
ACI_LOOP1(nan_to_num, double, f64, FWD)
ACI_LOOP1(nan_to_num, int64_t, i64, FWD_INT)
static const aci_map nan_to_num_map = {1, nan_to_num_f32, nan_to_num_f64, nan_to_num_i64};

static double largest(ac_dtype dt) {
  return dt == AC_F64    ? DBL_MAX
         : dt == AC_F16  ? 65504
         : dt == AC_BF16 ? 0x1.fep127
                         : (double)FLT_MAX;
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_dtype dt = (ac_dtype)ARG_T(f, 0)->dtype;
  const double top = largest(dt);
  ac_value args[4];
  ac_frame g = *f;
  memcpy(args, f->args, sizeof args);
  if (ARG_NONE(f, 2)) args[2] = (ac_value){.kind = AC_T_FLOAT, .f = top};
  if (ARG_NONE(f, 3)) args[3] = (ac_value){.kind = AC_T_FLOAT, .f = -top};
  /* not used, and may not fit */
  for (int i = 1; i < 4 && !ac_dtype_is_float(dt); i++) args[i].f = 0;
  g.args = args;
  return aci_map_run(&g, f->desc->data, e);
}

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_grad_set(g, 0, x_where(x, x_isfinite(x, ARG_T(g, 0)), T(g->dout[0]), F(0)));
}

AC_OP(nan_to_num,
      .sig = "nan_to_num(x: tensor, nan: float = 0, posinf: float?, neginf: float?) -> tensor",
      .shape = aci_map_shape, .cpu = cpu, .any_device = true, .elementwise = true,
      .data = &nan_to_num_map, .grad = grad, .save = AC_SAVE_IN(0), .inplace = true,
      .flops_per_element = 3, .on_complex = aci_complex_parts);
