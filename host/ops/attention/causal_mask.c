/* causal_mask: the keys that a causal query may not see.
   scores (..., tq, tk) -> y (tq, tk) bool, true (masked out) if the key's position is after the query's.
   gradient: none. */
#include "ops/core/op.h"

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

AC_OP(causal_mask, .sig = "causal_mask(scores: tensor) -> tensor", .shape = shape, .cpu = cpu,
      .nondiff = true, .hidden = true);
