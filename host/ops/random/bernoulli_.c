/* bernoulli_: x := 1 with probability p, else 0, independently.          x (any shape)! -> x.
   gradient: none to the old values.
   example: accel.empty(3):bernoulli_(1) --> { 1, 1, 1 }
   example: local m = accel.empty(10000):bernoulli_(0.25):mean():item() return m > 0.2 and m < 0.3 --> true */
#include "ops/random/draw.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  double p = ARG_F(f, 1);
  if (!(p >= 0 && p <= 1)) return AC_FAIL(e, INVALID, "p must lie between 0 and 1, got %g", p);
  if (ARG_T(f, 0)->dtype > AC_BOOL)
    return AC_FAIL(e, DTYPE, "%s is a storage dtype", ac_dtype_name((ac_dtype)ARG_T(f, 0)->dtype));
  return ac_frame_alias(f, 0, e);
}

static void draw(int64_t n, const uint32_t *w, const void *params, void *row) {
  uint64_t below = *(const uint64_t *)params;
  int64_t *y = row;
  for (int64_t i = 0; i < n; i++) y[i] = w[i] < below;
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  uint64_t below = (uint64_t)(ARG_F(f, 1) * 0x1p32);
  (void)e;
  aci_draw_fill(f, f->out[0], ACI_C_I64, 4, draw, &below);
  return AC_OK;
}

AC_OP(bernoulli_, .sig = "bernoulli_(x!: tensor, p: float = 0.5, generator: generator?) -> tensor",
      .shape = shape, .cpu = cpu, .grad = aci_draw_no_grad);
