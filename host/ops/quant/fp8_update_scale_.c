/* fp8_update_scale_: the scales of delayed scaling from the history of largest magnitudes, by TransformerEngine's formula (recipe
   DelayedScaling), for n tensors at once. With amax = history[0], or with most_recent = false the largest of its column:
   scale = fp8_max 2^-margin / amax, the largest f32 if that is infinite. scale stays if amax is 0 or not finite.
   Then the history moves up by one row, its first going to the end, and begins with zeros, which fp8_cast fills.
   With update = false only the history moves.
   scale (n), history (rows, n): f32. gradient: none.
   example: local s, h = accel.ones(1), accel.tensor { { 7.0 }, { 14 } } accel.fp8_update_scale_(s, h, 448) return s, h --> { 64 }, { { 0 }, { 7 } }
   example: local s, h = accel.ones(1), accel.tensor { { 7.0 }, { 14 } } accel.fp8_update_scale_(s, h, 448, 0, false) return s --> { 32 } */
#include <float.h>
#include <math.h>

#include "ops/core/on_host.h"

enum { SCALE, HISTORY, FP8_MAX, MARGIN, MOST_RECENT, UPDATE };

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *s = ARG_T(f, SCALE), *h = ARG_T(f, HISTORY);
  char a[160], b[160];
  if (s->ndim != 1 || h->ndim != 2 || h->shape[1] != s->shape[0] || h->shape[0] < 1 ||
      s->dtype != AC_F32 || h->dtype != AC_F32 || !aci_is_contiguous(s) || !aci_is_contiguous(h))
    return AC_FAIL(e, SHAPE,
                   "needs scale (n) and history (rows, n), contiguous and f32, got %s and %s",
                   aci_tensor_str(s, a, sizeof a), aci_tensor_str(h, b, sizeof b));
  if (!(ARG_F(f, FP8_MAX) > 0))
    return AC_FAIL(e, INVALID, "fp8_max must be above 0, got %g", ARG_F(f, FP8_MAX));
  return AC_OK;
}

static ac_status run(ac_frame *f, ac_err *e) {
  float *scale = aci_data(ARG_T(f, SCALE)), *history = aci_data(ARG_T(f, HISTORY));
  const int64_t rows = ARG_T(f, HISTORY)->shape[0], n = ARG_T(f, HISTORY)->shape[1];
  const float top = ldexpf((float)ARG_F(f, FP8_MAX), -(int)ARG_I(f, MARGIN));
  (void)e;
  for (int64_t i = 0; ARG_B(f, UPDATE) && i < n; i++) {
    float amax = history[i];
    for (int64_t r = 1; !ARG_B(f, MOST_RECENT) && r < rows; r++)
      amax = fmaxf(amax, history[r * n + i]);
    if (!isfinite(amax) || !(amax > 0)) continue;
    const float s = top / amax;
    scale[i] = isinf(s) ? FLT_MAX : s;
  }
  /* row 1 goes to row 0's place, and is lost: TransformerEngine overwrites it with zeros as well */
  for (int64_t i = 0; i < n; i++) {
    const float first = history[i];
    for (int64_t r = 1; r < rows - 1; r++) history[r * n + i] = history[(r + 1) * n + i];
    if (rows > 1) history[(rows - 1) * n + i] = first;
    history[i] = 0;
  }
  return AC_OK;
}
ACI_ON_HOST(run)

AC_OP(
    fp8_update_scale_,
    .sig =
        "fp8_update_scale_(scale!: tensor, history!: tensor, fp8_max: float, margin: int = 0, most_recent: bool = true, "
        "update: bool = true) -> ()",
    .shape = shape, .cpu = cpu, .by_vtable = true, .nondiff = true);
