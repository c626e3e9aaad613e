/* What the schedule-free optimizers share: the weight of this step's point in the running average, after "The
 * Road Less Scheduled" (Defazio and others). With k steps done: the rate rises linearly over warmup_steps;
 * lr_max = max(lr_max, rate);  w = (k + 1)^r lr_max^weight_lr_power;  weight_sum += w;  c = w / weight_sum. */
#ifndef ACI_OPS_SCHEDULE_FREE_H
#define ACI_OPS_SCHEDULE_FREE_H
#include "ops/optim/step.h"

typedef struct aci_free_step {
  double lr, count, weight_sum, lr_max, c;
} aci_free_step;

/* Arguments at .. at + 3: lr, step, weight_sum, lr_max; options .. options + 2: warmup_steps, r,
 * weight_lr_power. */
static inline aci_free_step aci_free_begin(const ac_frame *f, int at, int options) {
  const double done = aci_number_get(ARG_T(f, at + 1)), warmup = (double)ARG_I(f, options);
  aci_free_step s = {.count = done + 1, .lr = aci_number_get(ARG_T(f, at))};
  if (done < warmup) s.lr *= (done + 1) / warmup;
  double most = aci_number_get(ARG_T(f, at + 3));
  s.lr_max = s.lr > most ? s.lr : most;
  double w = pow(s.count, ARG_F(f, options + 1)) * pow(s.lr_max, ARG_F(f, options + 2));
  s.weight_sum = aci_number_get(ARG_T(f, at + 2)) + w;
  s.c = s.weight_sum != 0 ? w / s.weight_sum : 0;
  return s;
}
static inline void aci_free_end(const ac_frame *f, int at, const aci_free_step *s) {
  aci_number_set(ARG_T(f, at + 1), s->count);
  aci_number_set(ARG_T(f, at + 2), s->weight_sum);
  aci_number_set(ARG_T(f, at + 3), s->lr_max);
}

static inline ac_status aci_free_shape(ac_frame *f, int options, ac_err *e) {
  AC_TRY(aci_step_shape(f, e));
  if (ARG_I(f, options) < 0)
    return AC_FAIL(e, INVALID, "warmup_steps must not be negative, got %lld", (long long)ARG_I(f, options));
  return AC_OK;
}

#endif
