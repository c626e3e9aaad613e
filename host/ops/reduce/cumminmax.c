/* Running minima and maxima, a line at a time in blocks of the compute type. Threads share the
 * lines. */
#include "ops/reduce/cumminmax.h"

#include "ops/index/index.h"
#include "ops/index/sort_keys.h"

typedef struct cumminmax_job {
  aci_reduce_plan x, y, at;
  bool min;
} cumminmax_job;

static char *address(const aci_reduce_plan *p, int64_t off) {
  return (char *)(uintptr_t)p->ptr + off * (int64_t)aci_dsize(p->dt);
}

/* From element `first` of a line on: x becomes the values, at their positions. Of equal ones the
 * last. NaN beats everything. */
#define RUNNING(T, sfx)                                                                          \
  static void run_##sfx(T *x, int64_t *at, int64_t n, int64_t first, T *best, int64_t *position, \
                        bool min) {                                                              \
    T b = *best;                                                                                 \
    int64_t k = *position;                                                                       \
    for (int64_t i = 0; i < n; i++) {                                                            \
      const T v = x[i];                                                                          \
      const bool take = first + i == 0 || v != v || (b == b && (min ? v <= b : v >= b));         \
      b = take ? v : b;                                                                          \
      k = take ? first + i : k;                                                                  \
      x[i] = b;                                                                                  \
      at[i] = k;                                                                                 \
    }                                                                                            \
    *best = b;                                                                                   \
    *position = k;                                                                               \
  }
RUNNING(float, f32)
RUNNING(double, f64)
RUNNING(int64_t, i64)

static void lines(void *arg, int64_t begin, int64_t end) {
  const cumminmax_job *j = arg;
  const int64_t n = j->x.n_reduced;
  union {
    float f32[ACI_RED_BLOCK];
    double f64[ACI_RED_BLOCK];
    int64_t i64[ACI_RED_BLOCK];
  } row;
  int64_t at[ACI_RED_BLOCK];
  for (int64_t l = begin; l < end; l++) {
    const int64_t xb = aci_reduce_base(&j->x, l), yb = aci_reduce_base(&j->y, l),
                  ab = aci_reduce_base(&j->at, l);
    float f32 = 0;
    double f64 = 0;
    int64_t i64 = 0, position = 0;
    for (int64_t i = 0; i < n; i += ACI_RED_BLOCK) {
      const int64_t m = n - i < ACI_RED_BLOCK ? n - i : ACI_RED_BLOCK;
      aci_reduce_fetch(&j->x, xb, i, m, &row);
      if (j->x.ct == ACI_C_F32) run_f32(row.f32, at, m, i, &f32, &position, j->min);
      else if (j->x.ct == ACI_C_F64) run_f64(row.f64, at, m, i, &f64, &position, j->min);
      else run_i64(row.i64, at, m, i, &i64, &position, j->min);
      const int64_t ys = j->y.red_stride[0], as = j->at.red_stride[0];
      aci_store(j->y.ct, &row, j->y.dt, address(&j->y, yb + i * ys), ys, m);
      aci_store(ACI_C_I64, at, AC_I64, address(&j->at, ab + i * as), as, m);
    }
  }
}

ac_status aci_cumminmax_shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int d;
  AC_TRY(ac_frame_dim(f, 1, x->ndim, &d, e));
  AC_TRY(aci_order_check(x, e));
  AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e));
  return ac_frame_out(f, AC_I64, x->ndim, x->shape, e);
}

ac_status aci_cumminmax_run(ac_frame *f, bool min, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const uint32_t mask = x->ndim > 0 ? 1u << aci_wrap_dim(ARG_I(f, 1), x->ndim) : 0;
  const aci_ctype ct = aci_ctype_of((ac_dtype)x->dtype);
  cumminmax_job j = {.min = min};
  (void)e;
  if (x->numel == 0) return AC_OK;
  aci_reduce_plan_make(&j.x, x, mask, ct);
  aci_reduce_plan_make(&j.y, f->out[0], mask, ct);
  aci_reduce_plan_make(&j.at, f->out[1], mask, ACI_C_I64);
  ac_parallel_for(f->team, j.x.n_out, aci_reduce_grain(&j.x), lines, &j);
  return AC_OK;
}

void aci_cumminmax_grad(ac_grad *g) { aci_sort_keys_grad(g, 1); }
