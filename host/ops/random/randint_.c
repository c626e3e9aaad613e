/* randint_: x := independent integers, each of low .. high - 1 equally likely.          x (any shape)! -> x
   gradient: none to the old values.
   example: accel.empty(3, { dtype = "i64" }):randint_(7, 8) --> { 7, 7, 7 } */
#include "ops/random/draw.h"

static bool holds(ac_dtype d, int64_t low, int64_t last) {
  switch (d) {
    case AC_I64: return true;
    case AC_I32: return low >= INT32_MIN && last <= INT32_MAX;
    case AC_I16: return low >= INT16_MIN && last <= INT16_MAX;
    case AC_I8: return low >= INT8_MIN && last <= INT8_MAX;
    case AC_U8: return low >= 0 && last <= UINT8_MAX;
    case AC_BOOL: return low >= 0 && last <= 1;
    case AC_F64: return low >= -(1ll << 53) && last <= 1ll << 53;
    case AC_F32: return low >= -(1ll << 24) && last <= 1ll << 24;
    case AC_F16: return low >= -(1ll << 11) && last <= 1ll << 11;
    case AC_BF16: return low >= -(1ll << 8) && last <= 1ll << 8;
    default: return false;
  }
}

static ac_status shape(ac_frame *f, ac_err *e) {
  int64_t low = ARG_I(f, 1), high = ARG_I(f, 2);
  if (low >= high)
    return AC_FAIL(e, INVALID, "low %lld must be less than high %lld", (long long)low,
                   (long long)high);
  if (!holds((ac_dtype)ARG_T(f, 0)->dtype, low, high - 1))
    return AC_FAIL(e, INVALID, "%s cannot hold every integer of %lld to %lld",
                   ac_dtype_name((ac_dtype)ARG_T(f, 0)->dtype), (long long)low,
                   (long long)(high - 1));
  return ac_frame_alias(f, 0, e);
}

static void draw(int64_t n, const uint32_t *w, const void *params, void *row) {
  const int64_t *p = params;
  int64_t *y = row;
  uint64_t range = (uint64_t)p[1] - (uint64_t)p[0];
  for (int64_t i = 0; i < n; i++)
    y[i] = (int64_t)((uint64_t)p[0] + aci_uniform_below(aci_u64_of(w[2 * i], w[2 * i + 1]), range));
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  int64_t p[2] = {ARG_I(f, 1), ARG_I(f, 2)};
  (void)e;
  aci_draw_fill(f, f->out[0], ACI_C_I64, 2, draw, p);
  return AC_OK;
}

AC_OP(randint_, .sig = "randint_(x!: tensor, low: int, high: int, generator: generator?) -> tensor",
      .shape = shape, .cpu = cpu, .grad = aci_draw_no_grad);
