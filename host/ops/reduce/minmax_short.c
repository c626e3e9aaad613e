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

#define name max_f32
#define T float
#define TAKE TAKE_MAX
#define WAY ABOVE
#include "ops/reduce/minmax_short_rows.h"

#define name max_f64
#define T double
#define TAKE TAKE_MAX
#define WAY ABOVE
#include "ops/reduce/minmax_short_rows.h"

#define name min_f32
#define T float
#define TAKE TAKE_MIN
#define WAY BELOW
#include "ops/reduce/minmax_short_rows.h"

#define name min_f64
#define T double
#define TAKE TAKE_MIN
#define WAY BELOW
#include "ops/reduce/minmax_short_rows.h"

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
