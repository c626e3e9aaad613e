/* Largest and smallest values of short lists of floats, many per call. NaN is looked for apart from
 * the comparison, which then is one instruction, and vector code in short lists too. */
#include "ops/reduce/minmax.h"
#include "ops/reduce/reduction.h"

#define TAKE_MAX(a, v) m_max((double)(v), a)
#define TAKE_MIN(a, v) m_min((double)(v), a)
#define ABOVE_X(a, i) (x[i] > (a) ? x[i] : (a))
#define BELOW_X(a, i) (x[i] < (a) ? x[i] : (a))
#define ABOVE(a, b) ((b) > (a) ? (b) : (a))
#define BELOW(a, b) ((b) < (a) ? (b) : (a))
#define NANS_X(a, i) ((a) + (x[i] != x[i] ? 1 : 0))

#define SHORT(name, T, TAKE, WAY)                                                                  \
  AC_ISA_FN(name##_rows,                                                                           \
            (aci_word * s, const void *xv, int64_t step, int64_t n_rows, int64_t n, double p),     \
            (s, xv, step, n_rows, n, p)) {                                                         \
    (void)p;                                                                                       \
    for (int64_t r = 0; r < n_rows; r++) {                                                         \
      const T *restrict x = (const T *)xv + r * step;                                              \
      ACI_LANES_RUN(T, best, n, x[0], WAY##_X, WAY);                                               \
      ACI_LANES_RUN(T, nans, n, 0, NANS_X, ACI_JOIN_ADD);                                          \
      s[r].f = TAKE(s[r].f, nans > 0 ? (T)NAN : best);                                             \
    }                                                                                              \
  }                                                                                                \
  AC_ISA_FN(name##_columns, (aci_word * s, const void *const *xv, int64_t m, int64_t n, double p), \
            (s, xv, m, n, p)) {                                                                    \
    (void)p;                                                                                       \
    for (int64_t r = 0; r < m; r++) {                                                              \
      const T *x = xv[r];                                                                          \
      _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) s[i].f = TAKE(s[i].f, x[i]);            \
    }                                                                                              \
  }                                                                                                \
  static void name##_join(aci_word *s, const aci_word *t, int64_t n, double p) {                   \
    (void)p;                                                                                       \
    for (int64_t i = 0; i < n; i++) s[i].f = TAKE(s[i].f, t[i].f);                                 \
  }
SHORT(max_f32, float, TAKE_MAX, ABOVE)
SHORT(max_f64, double, TAKE_MAX, ABOVE)
SHORT(min_f32, float, TAKE_MIN, BELOW)
SHORT(min_f64, double, TAKE_MIN, BELOW)

#define REDUCTION(name, READS, START)                                         \
  {                                                                           \
    .reads = READS, .words = 1, .start = {{.f = START}}, .rows = name##_rows, \
    .columns = name##_columns, .join = name##_join                            \
  }
static const aci_reduction reductions[2][2] = {
    {REDUCTION(max_f32, AC_F32, -INFINITY), REDUCTION(max_f64, AC_F64, -INFINITY)},
    {REDUCTION(min_f32, AC_F32, INFINITY), REDUCTION(min_f64, AC_F64, INFINITY)}};

ac_status aci_minmax_short(ac_frame *f, const ac_tensor *x, uint32_t mask, bool min,
                           ac_tensor *values, ac_err *e) {
  return aci_reduction_run(f, x, mask, &reductions[min][x->dtype == AC_F64], 0, values, NULL, e);
}
