/* future: which keys a causal query may not see.
   scores (..., tq, tk) -> y (tq, tk) bool, true where the key lies behind the query.
   gradient: none. */
#include "ops/op.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  return ac_frame_out(f, AC_BOOL, 2, x->shape + x->ndim - 2, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *y = f->out[0];
  uint8_t *v = aci_data(y);
  (void)e;
  for (int64_t i = 0; i < y->shape[0]; i++)
    for (int64_t j = 0; j < y->shape[1]; j++) v[i * y->shape[1] + j] = j > i;
  return AC_OK;
}

AC_OP(future, .sig = "future(scores: tensor) -> tensor", .shape = shape, .cpu = cpu, .nondiff = true,
      .hidden = true);
