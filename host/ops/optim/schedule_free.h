/* Shared by the schedule-free optimizers: the weight of this step's point in the running average,
 * after "The Road Less Scheduled" (Defazio and others). With k steps done, the rate rises linearly
 * over warmup_steps,
 * lr_max = max(lr_max, rate);  w = (k + 1)^r lr_max^weight_lr_power;  weight_sum += w;  c = w /
 *                              weight_sum. */
#ifndef ACI_OPS_SCHEDULE_FREE_H
#define ACI_OPS_SCHEDULE_FREE_H
#include "ops/optim/formula.h"

typedef struct aci_free_step {
  double lr, count, c;
} aci_free_step;

/* Arguments at .. at + 3: lr, step, weight_sum, lr_max, of which the last three are updated.
 * options .. options + 2: warmup_steps, r, weight_lr_power. */
ACI_VM aci_free_step aci_free_now(aci_step_args *a, int at, int options) {
  double *x = a->x + at;
  const double done = x[1], warmup = a->x[options];
  aci_free_step s;
  s.count = done + 1;
  s.lr = x[0];
  if (done < warmup) s.lr *= (done + 1) / warmup;
  x[1] = s.count;
  x[3] = s.lr > x[3] ? s.lr : x[3];
  const double w = pow(s.count, a->x[options + 1]) * pow(x[3], a->x[options + 2]);
  x[2] += w;
  s.c = x[2] != 0 ? w / x[2] : 0;
  return s;
}

#endif
