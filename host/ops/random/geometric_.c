/* geometric_: x := independent numbers of trials up to the first success of probability p, from 1 on.
   x (any dtype but bool, any shape)! -> x
   gradient: none to the old values.
   example: accel.empty(3):geometric_(1) --> { 1, 1, 1 }
   example: local x = accel.empty(10000):geometric_(0.5) return math.abs(x:mean():item() - 2) < 0.1 --> true */
#include "ops/random/distributions.h"
#include "ops/random/draw.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  if (x->dtype >= AC_BOOL)
    return AC_FAIL(e, DTYPE, "needs a tensor of numbers, got %s",
                   ac_dtype_name((ac_dtype)x->dtype));
  if (!(ARG_F(f, 1) > 0 && ARG_F(f, 1) <= 1))
    return AC_FAIL(e, INVALID, "p must be above 0 and at most 1, got %g", ARG_F(f, 1));
  return ac_frame_alias(f, 0, e);
}

static void draw(int64_t n, const uint32_t *w, const void *params, void *row) {
  const double rate = *(const double *)params;
  double *y = row;
  for (int64_t i = 0; i < n; i++) y[i] = aci_geometric(aci_u64_of(w[2 * i], w[2 * i + 1]), rate);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const double rate = -log1p(-ARG_F(f, 1));
  (void)e;
  aci_draw_fill(f, f->out[0], ACI_C_F64, 2, draw, &rate);
  return AC_OK;
}

AC_OP(geometric_, .sig = "geometric_(x!: tensor, p: float, generator: generator?) -> tensor",
      .shape = shape, .cpu = cpu, .grad = aci_draw_no_grad);
