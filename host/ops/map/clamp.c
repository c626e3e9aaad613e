/* clamp: y = min(max(x, min), max), either bound may be missing. NaN if x or a bound is NaN.
   x (any shape), min, max (numbers, or tensors that broadcast) -> y
   gradient: dx = dy if min < x < max, else 0. With bounds that are tensors dy goes to the input that y is taken
   from, half to each if x equals a bound, summed over the dims that were broadcast.
   example: accel.tensor { -2.0, 0.5, 9 }:clamp(-1, 1) --> { -1, 0.5, 1 }
   example: accel.tensor { -2.0, 0.5, 9 }:clamp { min = 0 } --> { 0, 0.5, 9 }
   example: accel.tensor { -2.0, 9 }:clamp { max = accel.tensor { -3.0, 5 } } --> { -3, 5 } */
#include "ops/map/map.h"

#include "ops/core/ctx_impl.h"

#define FWD(T, p, x, lo, hi)                                                  \
  ((lo) != (lo) || (x) < (lo)   ? ((hi) < (lo) || (hi) != (hi) ? (hi) : (lo)) \
   : (x) > (hi) || (hi) != (hi) ? (hi)                                        \
                                : (x))
#define BWD(T, p, dy, x, lo, hi) \
  (((x) > (lo) || (lo) == -(T)INFINITY) && ((x) < (hi) || (hi) == (T)INFINITY) ? (dy) : 0)
ACI_LOOP3(clamp, float, f32, FWD)
ACI_LOOP3(clamp, double, f64, FWD)
ACI_LOOP3(clamp, int64_t, i64, FWD)
ACI_LOOP4(clamp_dx, float, f32, BWD)
ACI_LOOP4(clamp_dx, double, f64, BWD)
static const aci_map clamp_map = {3, clamp_f32, clamp_f64, clamp_i64};
static const aci_map backward_map = {4, clamp_dx_f32, clamp_dx_f64, NULL};

static bool is_bool(const ac_value *v) {
  return v->kind == AC_T_TENSOR ? v->tensor->dtype == AC_BOOL : v->scalar.kind == AC_SCALAR_BOOL;
}
static bool is_float(const ac_value *v) {
  return v->kind == AC_T_TENSOR ? ac_dtype_is_float((ac_dtype)v->tensor->dtype)
                                : v->scalar.kind == AC_SCALAR_FLOAT;
}

/* A missing bound becomes one that nothing crosses, of the kind that does not change the promotion of
 * x and the other bound. */
static ac_value bound(const ac_value *v, const ac_value *x, const ac_value *other, bool upper) {
  if (v->kind != AC_T_NONE) return *v;
  ac_value r = {.kind = AC_T_SCALAR, .scalar = {.kind = AC_SCALAR_INT}};
  if (is_float(x) || is_float(other)) {
    r.scalar.kind = AC_SCALAR_FLOAT;
    r.scalar.f = upper ? INFINITY : -INFINITY;
  } else if (is_bool(x) && is_bool(other)) {
    r.scalar.kind = AC_SCALAR_BOOL;
    r.scalar.i = upper;
  } else {
    r.scalar.i = upper ? INT64_MAX : INT64_MIN;
  }
  return r;
}

/* The frame again with complete bounds in its last two arguments. */
static void complete(ac_frame *g, ac_value *args) {
  const int n = g->n_args;
  const ac_value *x = &g->args[n - 3], *lo = &g->args[n - 2], *hi = &g->args[n - 1];
  memcpy(args, g->args, (size_t)n * sizeof *args);
  args[n - 2] = bound(lo, x, hi, false);
  args[n - 1] = bound(hi, x, lo, true);
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

static const ac_scalar *number(const ac_grad *g, int i) {
  return ARG_NONE(g, i) ? NULL : &g->args[i].scalar;
}

/* 1 if `all`, a half if `half`, else 0. */
static ac_tensor *share(ac_expr *ex, ac_tensor *all, ac_tensor *half) {
  return x_where(ex, all, F(1), T(x_where(ex, half, F(0.5), F(0))));
}

static ac_tensor *rest(ac_expr *ex, ac_tensor *taken) {
  return x_sub(ex, F(1), T(taken), aci_float(1));
}

/* With tensors as bounds dy is divided among x, min and max as in maximum and minimum: halves if
   two are equal. With one bound, both get all of dy if one is NaN. With two, x gets it, and max if
   it is below min. */
static void grad_tensors(ac_grad *g) {
  ac_expr *ex = &g->x;
  ac_tensor *dy = g->dout[0], *x = ARG_T(g, 0), *own, *low = NULL, *high = NULL;
  const bool has_lo = !ARG_NONE(g, 1), has_hi = !ARG_NONE(g, 2);
  const ac_operand lo = has_lo ? aci_grad_operand(g, 1) : F(0),
                   hi = has_hi ? aci_grad_operand(g, 2) : F(0);
  ac_tensor *below = has_lo ? x_lt(ex, T(x), lo) : NULL,
            *at_lo = has_lo ? x_eq(ex, T(x), lo) : NULL;
  ac_tensor *above = has_hi ? x_gt(ex, T(x), hi) : NULL,
            *at_hi = has_hi ? x_eq(ex, T(x), hi) : NULL;
  if (has_lo && has_hi) {
    ac_tensor *ordered = x_le(ex, lo, hi), *apart = x_lt(ex, lo, hi);
    at_lo = x_logical_and(ex, T(at_lo), T(apart));
    at_hi = x_logical_and(ex, T(at_hi), T(apart));
    own = share(ex, x_logical_or(ex, T(below), T(above)), x_logical_or(ex, T(at_lo), T(at_hi)));
    low = share(ex, x_logical_and(ex, T(below), T(ordered)), at_lo);
    above = x_logical_or(ex, T(x_logical_and(ex, T(above), T(ordered))), T(x_lt(ex, hi, lo)));
    high = share(ex, above, at_hi);
  } else if (has_lo) {
    own = share(ex, below, at_lo);
    low = rest(ex, share(ex, x_gt(ex, T(x), lo), at_lo));
  } else {
    own = share(ex, above, at_hi);
    high = rest(ex, share(ex, x_lt(ex, T(x), hi), at_hi));
  }
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, x_mul(ex, T(dy), T(rest(ex, own)))));
  if (ac_grad_needs(g, 1)) ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, x_mul(ex, T(dy), T(low))));
  if (ac_grad_needs(g, 2)) ac_grad_set(g, 2, ac_grad_reduce_to(g, 2, x_mul(ex, T(dy), T(high))));
}

static void grad(ac_grad *g) {
  if (g->args[1].kind == AC_T_TENSOR || g->args[2].kind == AC_T_TENSOR) grad_tensors(g);
  else
    ac_grad_set(g, 0, x_clamp_backward(&g->x, g->dout[0], ARG_T(g, 0), number(g, 1), number(g, 2)));
}
static void grad_backward(ac_grad *g) { /* linear in dy, constant in x almost everywhere */
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0, x_clamp_backward(&g->x, g->dout[0], ARG_T(g, 1), number(g, 2), number(g, 3)));
  aci_grad_zero(g, 1);
}

AC_OP(clamp, .sig = "clamp(x: tensor, min: operand?, max: operand?) -> tensor", .shape = shape,
      .cpu = cpu, .any_device = true, .data = &clamp_map, .grad = grad,
      .save = AC_SAVE_IN(0) | AC_SAVE_IN(1) | AC_SAVE_IN(2), .inplace = true,
      .flops_per_element = 2, .alias = "clip");
AC_OP(clamp_backward,
      .sig = "clamp_backward(dy: tensor, x: tensor, min: scalar?, max: scalar?) -> tensor",
      .shape = shape, .cpu = cpu, .any_device = true, .data = &backward_map, .grad = grad_backward,
      .save = AC_SAVE_IN(1), .hidden = true);
