/* logsumexp: y = ln of the sum of e^x over dim, without overflow. -inf over nothing and over -inf alone.
   x (any shape, integers as f32) -> y (without those dims, or 1 with keepdim)
   gradient: dx = dy e^(x - y), 0 if y is -inf, in one pass by logsumexp_backward.
   example: accel.tensor { { 0.0, 0.0 }, { 1000.0, 1000.0 } }:logsumexp(2) --> { 0.693147, 1000.693147 } */
#include "ops/core/fuse.h"
#include "ops/map/map.h"
#include "ops/reduce/reduction.h"

/* State: a shift that is finite (-inf over nothing) and the sum of e^(x - shift). A growing shift
 * rescales the sum. An infinite sum stays, as infinity times e^(far less) would be NaN. */
static inline AC_INLINE void join_one(aci_word *shift, aci_word *sum, double shift2, double sum2) {
  if (shift->f == -INFINITY) {
    shift->f = shift2;
    sum->f = sum2;
    return;
  }
  const double a = shift->f, b = shift2, top = a > b ? a : b;
  const double wa = a == top || sum->f == INFINITY ? 1 : exp(a - top);
  const double wb = b == top || sum2 == INFINITY ? 1 : exp(b - top);
  sum->f = sum->f * wa + sum2 * wb;
  shift->f = top;
}
static void join(aci_word *s, const aci_word *t, int64_t n, double p) {
  (void)p;
  for (int64_t i = 0; i < n; i++)
    join_one(&s[i], &s[ACI_REDUCTION_TILE + i], t[i].f, t[ACI_REDUCTION_TILE + i].f);
}
static void finish(aci_word *y, const aci_word *s, int64_t n, int64_t count, double p) {
  (void)count, (void)p;
  for (int64_t i = 0; i < n; i++) y[i].f = log(s[ACI_REDUCTION_TILE + i].f) + s[i].f;
}

/* NaN may be passed over: it comes back with its exponential. */
#define MAX_X(a, i) (x[i] > (a) ? x[i] : (a))
#define JOIN_MAX(a, b) ((b) > (a) ? (b) : (a))
#define EXP_X(a, i) ((a) + m_exp(x[i] - shift))
#define T float
#define sfx f32
#include "ops/reduce/logsumexp_rows.h"

#define T double
#define sfx f64
#include "ops/reduce/logsumexp_rows.h"

static const aci_reduction reductions[] = {{.reads = AC_F32,
                                            .words = 2,
                                            .start = {{.f = -INFINITY}},
                                            .rows = lse_f32_rows,
                                            .columns = lse_f32_columns,
                                            .join = join,
                                            .finish = finish},
                                           {.reads = AC_F64,
                                            .words = 2,
                                            .start = {{.f = -INFINITY}},
                                            .rows = lse_f64_rows,
                                            .columns = lse_f64_columns,
                                            .join = join,
                                            .finish = finish}};

static ac_status shape(ac_frame *f, ac_err *e) {
  ac_dtype dt = (ac_dtype)ARG_T(f, 0)->dtype;
  AC_TRY(aci_reduction_check(f, e));
  return aci_reduce_out(f, 1, 2, ac_dtype_is_float(dt) ? dt : AC_F32, e);
}
static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  return aci_reduction_run(f, x, aci_reduce_mask(&f->args[1], x->ndim),
                           &reductions[x->dtype == AC_F64], 0, f->out[0], NULL, e);
}

static void grad(ac_grad *g) {
  ac_tensor *y = aci_reduce_unsqueeze(g, &g->args[1], g->out[0]);
  ac_tensor *dy = aci_reduce_unsqueeze(g, &g->args[1], g->dout[0]);
  ac_grad_set(g, 0, x_logsumexp_backward(&g->x, dy, ARG_T(g, 0), y));
}

#define BWD(T, p, dy, x, y) ((y) == -(T)INFINITY ? 0 : (dy)*m_exp((x) - (y)))

static int plain_backward(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *y = a[2].tensor, *nothing = x_eq(x, T(y), F(-INFINITY));
  ac_tensor *w =
      x_exp(x, x_sub(x, T(a[1].tensor), T(x_masked_fill(x, y, nothing, F(0))), aci_float(1)));
  out[0] = x_mul(x, T(a[0].tensor), T(w)); /* there e^x is 0 as well */
  return 1;
}

AC_OP(logsumexp, .sig = "logsumexp(x: tensor, dim: dims, keepdim: bool = false) -> tensor",
      .shape = shape, .cpu = cpu, .data = &aci_fuse_reduces, .grad = grad,
      .save = AC_SAVE_IN(0) | AC_SAVE_OUT(0), .flops_per_element = 10);
AC_MAP3(logsumexp_backward, BWD,
        .sig = "logsumexp_backward(dy: tensor, x: tensor, y: tensor) -> tensor",
        .composed = plain_backward, .hidden = true, .flops_per_element = 10);
