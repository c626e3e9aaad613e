/* Counting nonzero elements. Types of one byte are read directly. */
#include "ops/reduce/count.h"

#define COUNT(a, v) ((a) + ((v) != 0 ? 1u : 0u))
#define COUNT_X(a, i) COUNT(a, x[i])
#define JOIN(a, b) ((a) + (b))
ACI_REDUCTION_ONE(count_f32, float, uint64_t, u, 0, COUNT, JOIN)
ACI_REDUCTION_ONE(count_f64, double, uint64_t, u, 0, COUNT, JOIN)
ACI_REDUCTION_ONE(count_i64, int64_t, uint64_t, u, 0, COUNT, JOIN)
ACI_REDUCTION_ONE(count_u8, uint8_t, uint64_t, u, 0, COUNT, JOIN)

#define REDUCTION(sfx, READS)                                              \
  {                                                                        \
    .reads = READS, .words = 1, .whole = true, .rows = count_##sfx##_rows, \
    .columns = count_##sfx##_columns, .join = count_##sfx##_join           \
  }
static const aci_reduction reductions[] = {REDUCTION(f32, AC_F32), REDUCTION(f64, AC_F64),
                                           REDUCTION(i64, AC_I64), REDUCTION(u8, AC_BOOL)};

ac_status aci_count_run(ac_frame *f,
                        void (*finish)(aci_word *, const aci_word *, int64_t, int64_t, double),
                        ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const ac_dtype dt = (ac_dtype)x->dtype;
  aci_reduction reduction = reductions[aci_dsize(dt) == 1 ? 3 : (int)aci_ctype_of(dt)];
  reduction.finish = finish;
  return aci_reduction_run(f, x, aci_reduce_mask(&f->args[1], x->ndim), &reduction, 0, f->out[0],
                           NULL, e);
}
