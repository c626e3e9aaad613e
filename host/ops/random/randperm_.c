/* randperm_: x := the numbers 0 .. n - 1 in random order, every order equally likely (Fisher and Yates).
   x (n)! -> x
   example: accel.empty(5, { dtype = "i64" }):randperm_():sum() --> 10 */
#include "ops/random/draw.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  char a[128];
  if (x->ndim != 1)
    return AC_FAIL(e, SHAPE, "needs one dim, got shape %s", aci_shape_str(x->ndim, x->shape, a, sizeof a));
  if (x->dtype != AC_I64) return AC_FAIL(e, DTYPE, "needs i64, got %s", ac_dtype_name((ac_dtype)x->dtype));
  return ac_frame_alias(f, 0, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->out[0];
  const int64_t n = x->numel, st = x->stride[0];
  int64_t *v = aci_data(x);
  aci_draw d = aci_draw_of(&f->ticket);
  uint32_t w[ACI_DRAW_ROW];
  (void)e;
  for (int64_t i = 0; i < n; i++) v[i * st] = i;
  for (int64_t b = 0; b < n;
       b += ACI_DRAW_ROW / 2) { /* place i takes the value of a place not yet settled, from draw i */
    int64_t m = n - b < ACI_DRAW_ROW / 2 ? n - b : ACI_DRAW_ROW / 2;
    aci_draw_words(&d, (uint64_t)(b / 2), (m + 1) / 2, w);
    for (int64_t i = b; i < b + m; i++) {
      int64_t j = i + (int64_t)aci_uniform_below(aci_u64_of(w[2 * (i - b)], w[2 * (i - b) + 1]),
                                                 (uint64_t)(n - i)),
              t = v[i * st];
      v[i * st] = v[j * st];
      v[j * st] = t;
    }
  }
  return AC_OK;
}

AC_OP(randperm_, .sig = "randperm_(x!: tensor, generator: generator?) -> tensor", .shape = shape, .cpu = cpu,
      .nondiff = true);
