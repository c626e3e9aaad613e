/* distance: how far keys are from queries, for ALiBi.
   scores (..., tq, tk) -> y (tq, tk) of the dtype of scores: |i + tk - tq - j| for query i and key j, or |i - j|
   when causal.
   gradient: none. */
#include "ops/map/convert.h"
#include "ops/core/op.h"

enum { ROW = 256 };

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  return ac_frame_out(f, (ac_dtype)x->dtype, 2, x->shape + x->ndim - 2, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *y = f->out[0];
  const ac_dtype dt = (ac_dtype)y->dtype;
  const int64_t tq = y->shape[0], tk = y->shape[1], shift = ARG_B(f, 1) ? 0 : tk - tq;
  double row[ROW];
  (void)e;
  for (int64_t i = 0; i < tq; i++)
    for (int64_t j = 0; j < tk; j += ROW) {
      int64_t n = tk - j < ROW ? tk - j : ROW;
      for (int64_t k = 0; k < n; k++) {
        int64_t d = i + shift - j - k;
        row[k] = (double)(d < 0 ? -d : d);
      }
      aci_store(ACI_C_F64, row, dt, (char *)aci_data(y) + (i * tk + j) * (int64_t)aci_dsize(dt), 1,
                n);
    }
  return AC_OK;
}

AC_OP(distance, .sig = "distance(scores: tensor, causal: bool) -> tensor", .shape = shape,
      .cpu = cpu, .nondiff = true, .hidden = true);
