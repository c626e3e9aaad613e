/* clamp: y = min(max(x, min), max), either bound may be missing; NaN stays NaN.
   x (any shape) -> y (same shape)
   gradient: dx = dy where min < x < max, else 0.
   example: accel.tensor { -2.0, 0.5, 9 }:clamp(-1, 1) --> { -1, 0.5, 1 }
   example: accel.tensor { -2.0, 0.5, 9 }:clamp { min = 0 } --> { 0, 0.5, 9 } */
#include "ops/map/map.h"

#include "ops/ctx_impl.h"

#define FWD(T, p, x, lo, hi) ((x) < (lo) ? ((hi) < (lo) ? (hi) : (lo)) : (x) > (hi) ? (hi) : (x))
#define BWD(T, p, dy, x, lo, hi) \
  (((x) > (lo) || (lo) == -(T)INFINITY) && ((x) < (hi) || (hi) == (T)INFINITY) ? (dy) : 0)
ACI_LOOP3(clamp, float, f32, FWD)
ACI_LOOP3(clamp, double, f64, FWD)
ACI_LOOP3(clamp, int64_t, i64, FWD)
ACI_LOOP4(clamp_dx, float, f32, BWD)
ACI_LOOP4(clamp_dx, double, f64, BWD)
static const aci_map clamp_map = {3, clamp_f32, clamp_f64, clamp_i64};
static const aci_map backward_map = {4, clamp_dx_f32, clamp_dx_f64, NULL};

/* A bound that was left out becomes one that nothing crosses; of the kind that does not change the
 * promotion. */
static ac_value bound(const ac_value *v, const ac_tensor *x, bool upper) {
  if (v->kind != AC_T_NONE) return *v;
  bool flt = ac_dtype_is_float((ac_dtype)x->dtype);
  ac_value r = {.kind = AC_T_SCALAR, .scalar = {.kind = flt ? AC_SCALAR_FLOAT : AC_SCALAR_INT}};
  if (flt) r.scalar.f = upper ? INFINITY : -INFINITY;
  else r.scalar.i = upper ? INT64_MAX : INT64_MIN;
  return r;
}

/* The frame again with complete bounds in its last two arguments. */
static void complete(ac_frame *g, ac_value *args) {
  int n = g->n_args;
  memcpy(args, g->args, (size_t)n * sizeof *args);
  args[n - 2] = bound(&g->args[n - 2], g->args[n - 3].tensor, false);
  args[n - 1] = bound(&g->args[n - 1], g->args[n - 3].tensor, true);
  g->args = args;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  ac_value args[4];
  ac_frame g = *f;
  if (ARG_NONE(f, f->n_args - 2) && ARG_NONE(f, f->n_args - 1))
    return AC_FAIL(e, INVALID, "needs min or max");
  complete(&g, args);
  AC_TRY(aci_map_shape(&g, e));
  f->n_out = g.n_out;
  f->out[0] = g.out[0];
  return AC_OK;
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  ac_value args[4];
  ac_frame g = *f;
  complete(&g, args);
  return aci_map_run(&g, f->desc->data, e);
}

static const ac_scalar *number(const ac_grad *g, int i) { return ARG_NONE(g, i) ? NULL : &g->args[i].scalar; }

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_clamp_backward(&g->x, g->dout[0], ARG_T(g, 0), number(g, 1), number(g, 2)));
}
static void grad_backward(ac_grad *g) { /* linear in dy, constant in x almost everywhere */
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0, x_clamp_backward(&g->x, g->dout[0], ARG_T(g, 1), number(g, 2), number(g, 3)));
  aci_grad_zero(g, 1);
}

AC_OP(clamp, .sig = "clamp(x: tensor, min: scalar?, max: scalar?) -> tensor", .shape = shape, .cpu = cpu, .any_device = true,
      .data = &clamp_map, .grad = grad, .save = AC_SAVE_IN(0), .inplace = true, .flops_per_element = 2);
AC_OP(clamp_backward, .sig = "clamp_backward(dy: tensor, x: tensor, min: scalar?, max: scalar?) -> tensor",
      .shape = shape, .cpu = cpu, .any_device = true, .data = &backward_map, .grad = grad_backward, .save = AC_SAVE_IN(1),
      .hidden = true);
