/* Variance in one pass over memory: each block of elements has its own mean and sum of squared
 * distances, found in two passes while it is in cache, and blocks join by the formula of Chan,
 * Golub and LeVeque. No sum of squares is ever subtracted from another, so a large mean costs
 * nothing. */
#include "ops/reduce/moments.h"
#include "ops/reduce/moments_args.h"

#include "ops/reduce/reduction.h"

/* State: count, mean, sum of squared distances. */
static inline AC_INLINE void join_one(aci_word *s, double n, double mean, double m2) {
  const double have = s[0].f, all = have + n, way = mean - s[ACI_REDUCTION_TILE].f;
  const double share = all > 0 ? n / all : 0;
  s[0].f = all;
  s[ACI_REDUCTION_TILE].f += way * share;
  s[2 * ACI_REDUCTION_TILE].f += m2 + way * way * have * share;
}
static void join(aci_word *s, const aci_word *t, int64_t n, double p) {
  (void)p;
  for (int64_t i = 0; i < n; i++)
    join_one(s + i, t[i].f, t[ACI_REDUCTION_TILE + i].f, t[2 * ACI_REDUCTION_TILE + i].f);
}

static double variance(const aci_word *s, int64_t i, int64_t count, double correction) {
  const double over = (double)count - correction;
  return s[2 * ACI_REDUCTION_TILE + i].f / (over > 0 ? over : 0);
}
static void finish_var(aci_word *y, const aci_word *s, int64_t n, int64_t count, double p) {
  for (int64_t i = 0; i < n; i++) y[i].f = variance(s, i, count, p);
}
static void finish_std(aci_word *y, const aci_word *s, int64_t n, int64_t count, double p) {
  for (int64_t i = 0; i < n; i++) y[i].f = sqrt(variance(s, i, count, p));
}

#define SUM_X(a, i) ((a) + (double)x[i])
#define DISTANCE_X(a, i) m_fma((double)x[i] - mean, (double)x[i] - mean, a)
#define T float
#define sfx f32
#include "ops/reduce/moments_rows.h"

#define T double
#define sfx f64
#include "ops/reduce/moments_rows.h"

#define REDUCTION(sfx, READS, FINISH)                                                             \
  {                                                                                               \
    .reads = READS, .words = 3, .rows = moments_##sfx##_rows, .columns = moments_##sfx##_columns, \
    .join = join, .finish = FINISH                                                                \
  }
static const aci_reduction reductions[2][2] = {
    {REDUCTION(f32, AC_F32, finish_var), REDUCTION(f32, AC_F32, finish_std)},
    {REDUCTION(f64, AC_F64, finish_var), REDUCTION(f64, AC_F64, finish_std)}};

ac_status aci_moments_shape(ac_frame *f, ac_err *e) {
  ac_dtype dt = (ac_dtype)ARG_T(f, 0)->dtype;
  if (!ac_dtype_is_float(dt))
    return AC_FAIL(e, DTYPE, "is for floating point, not %s; cast the tensor first",
                   ac_dtype_name(dt));
  if (!ARG_NONE(f, 3) && !ARG_NONE(f, 4))
    return AC_FAIL(e, INVALID, "correction and unbiased are two names of one option; give one");
  return aci_reduce_out(f, 1, 2, dt, e);
}

ac_status aci_moments_run(ac_frame *f, bool root, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  return aci_reduction_run(f, x, aci_reduce_mask(&f->args[1], x->ndim),
                           &reductions[x->dtype == AC_F64][root],
                           aci_moments_correction(&f->args[3]), f->out[0], NULL, e);
}

/* 2 (x - mean) / (n - correction) */
void aci_moments_grad(ac_grad *g, ac_tensor *dvar) {
  ac_expr *x = &g->x;
  const ac_value *d = &g->args[1];
  const int64_t *list = d->kind == AC_T_NONE ? NULL : d->ints, *shape = ac_grad_shape(g, 0, 0);
  const int ndim = ac_grad_ndim(g, 0, 0);
  const uint32_t mask = aci_reduce_mask(d, ndim);
  double n = 1;
  for (int k = 0; k < ndim; k++)
    if (mask >> k & 1) n *= (double)shape[k];
  ac_tensor *in = ARG_T(g, 0), *mean = x_mean(x, in, list, list == NULL ? 0 : d->n, true, NULL);
  ac_tensor *scale = x_mul(x, T(aci_reduce_unsqueeze(g, d, dvar)),
                           F(2 / (n - aci_moments_correction(&g->args[3]))));
  ac_grad_set(g, 0, x_mul(x, T(x_sub(x, T(in), T(mean), aci_float(1))), T(scale)));
}
