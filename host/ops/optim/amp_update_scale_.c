/* amp_update_scale_: the loss scale of the next update, from whether this one's gradients were finite (PyTorch's rule).
   found_inf != 0:  scale = scale backoff_factor,  growth_tracker = 0
   otherwise:       growth_tracker += 1, and when that makes growth_interval:  growth_tracker = 0,
                    scale = scale growth_factor, unless that is not finite
   scale: one float. growth_tracker: one whole number. found_inf: one element.
   gradient: none.
   example: local s = accel.full({}, 8.0) accel.amp_update_scale_(s, s * 0, s * 0 + 1, 2, 0.5, 9) return s --> 4 */
#include "base/vmath.h"
#include "ops/optim/lists.h"

enum { SCALE, TRACKER, FOUND, GROWTH, BACKOFF, INTERVAL };

static ac_status shape(ac_frame *f, ac_err *e) {
  for (int i = SCALE; i <= FOUND; i++) AC_TRY(aci_number_check(f, i, e));
  if (!ac_dtype_is_float((ac_dtype)ARG_T(f, SCALE)->dtype))
    return AC_FAIL(e, DTYPE, "scale is %s; it must be a float",
                   ac_dtype_name((ac_dtype)ARG_T(f, SCALE)->dtype));
  if (ARG_I(f, INTERVAL) < 1)
    return AC_FAIL(e, INVALID, "growth_interval must be at least 1, got %lld",
                   (long long)ARG_I(f, INTERVAL));
  return AC_OK;
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  ac_tensor *scale = ARG_T(f, SCALE), *tracker = ARG_T(f, TRACKER);
  const double now = aci_number_get(scale), good = aci_number_get(tracker) + 1;
  (void)e;
  if (aci_number_get(ARG_T(f, FOUND)) != 0) {
    aci_number_set(scale, now * ARG_F(f, BACKOFF));
    aci_number_set(tracker, 0);
  } else if (good >= (double)ARG_I(f, INTERVAL)) {
    aci_number_set(scale, now * ARG_F(f, GROWTH));
    if (!isfinite(aci_number_get(scale))) aci_number_set(scale, now);
    aci_number_set(tracker, 0);
  } else {
    aci_number_set(tracker, good);
  }
  return AC_OK;
}

AC_OP(
    amp_update_scale_,
    .sig =
        "amp_update_scale_(scale!: tensor, growth_tracker!: tensor, found_inf: tensor, growth_factor: float, "
        "backoff_factor: float, growth_interval: int) -> ()",
    .shape = shape, .cpu = cpu, .nondiff = true);
