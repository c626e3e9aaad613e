/* The rules of optimizers with 8-bit states, element by element in f32, for blockwise.c and
 * blockwise_step.cu. blockwise_step_.c states them. Fused operations with one rounding less are the
 * same as in bitsandbytes. */
#ifndef ACI_OPS_BLOCKWISE_FORMULA_H
#define ACI_OPS_BLOCKWISE_FORMULA_H
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/hostdev.h"
#include "base/vmath.h"

enum aci_blockwise_arg {
  ACI_BW_PARAMS,
  ACI_BW_GRADS,
  ACI_BW_STATE1,
  ACI_BW_ABSMAX1,
  ACI_BW_LR,
  ACI_BW_STEP,
  ACI_BW_RULE,
  ACI_BW_BETA1,
  ACI_BW_BETA2,
  ACI_BW_BETA3,
  ACI_BW_ALPHA,
  ACI_BW_EPS,
  ACI_BW_DECAY,
  ACI_BW_STATE2,
  ACI_BW_ABSMAX2,
  ACI_BW_STATE3,
  ACI_BW_ABSMAX3,
  ACI_BW_GENERATOR,
  ACI_BW_FIRST
};
enum aci_blockwise_rule {
  ACI_BW_ADAM,
  ACI_BW_MOMENTUM,
  ACI_BW_LION,
  ACI_BW_RMSPROP,
  ACI_BW_ADAGRAD,
  ACI_BW_ADEMAMIX
};
enum { ACI_BW_BLOCK = 256 /* elements under one absmax */ };

static inline bool aci_bw_needs_second(int64_t rule) {
  return rule == ACI_BW_ADAM || rule == ACI_BW_ADEMAMIX;
}

/* Options of a call, and the factors of a step made of them. */
typedef struct aci_bw_options {
  int rule;
  double beta1, beta2, beta3, alpha, eps, decay;
} aci_bw_options;
typedef struct aci_bw_factors {
  float beta1, fresh1, beta2, fresh2, beta3, fresh3, alpha, eps, decay, keep, lr, step1, root,
      correction1;
  bool first;
} aci_bw_factors;

/* step: of this update, from 1. */
AC_HOSTDEV static inline aci_bw_factors aci_bw_factors_of(const aci_bw_options *o, double lr,
                                                          double step) {
  const double correction1 = 1 - pow(o->beta1, step), correction2 = sqrt(1 - pow(o->beta2, step));
  aci_bw_factors k;
  k.beta1 = o->rule == ACI_BW_ADAGRAD ? 1 : (float)o->beta1;
  k.fresh1 = o->rule == ACI_BW_ADAGRAD ? 1 : (float)(1 - o->beta1);
  k.beta2 = (float)o->beta2;
  k.fresh2 = (float)(1 - o->beta2);
  k.beta3 = (float)o->beta3;
  k.fresh3 = (float)(1 - o->beta3);
  k.alpha = (float)o->alpha;
  k.eps = (float)o->eps;
  k.decay = (float)o->decay;
  k.keep = (float)(1 - lr * o->decay);
  k.lr = (float)lr;
  k.step1 = (float)(-lr / correction1);
  k.root = (float)correction2;
  k.correction1 = (float)correction1;
  k.first = step == 1;
  return k;
}

AC_HOSTDEV static inline void aci_bw_adam(const aci_bw_factors *k, float *p, float g, float *m,
                                          float *v) {
  *m = m_fma(k->fresh1, g, *m * k->beta1);
  *v = *v * k->beta2 + k->fresh2 * g * g;
  const float denom = m_sqrt(*v) / k->root + k->eps;
  *p = *p * k->keep + k->step1 * *m / denom;
}
AC_HOSTDEV static inline void aci_bw_momentum(const aci_bw_factors *k, float *p, float g,
                                              float *m) {
  const float gi = m_fma(k->decay, *p, g);
  *m = k->first ? gi : *m * k->beta1 + gi;
  *p = m_fma(-k->lr, *m, *p);
}
AC_HOSTDEV static inline void aci_bw_lion(const aci_bw_factors *k, float *p, float g, float *m) {
  const float u = *m * k->beta1 + g * k->fresh1;
  const float s = u > 0 ? 1.0f : u < 0 ? -1.0f : u; /* a NaN stays one */
  *p = m_fma(-k->lr, s, *p * k->keep);
  *m = m_fma(k->fresh2, g, *m * k->beta2);
}
AC_HOSTDEV static inline void aci_bw_squares(const aci_bw_factors *k, float *p, float g, float *v) {
  const float gi = m_fma(k->decay, *p, g);
  *v = *v * k->beta1 + k->fresh1 * gi * gi;
  *p = *p - k->lr * gi / (m_sqrt(*v) + k->eps);
}
AC_HOSTDEV static inline void aci_bw_ademamix(const aci_bw_factors *k, float *p, float g, float *m,
                                              float *v, float *slow) {
  *m = m_fma(k->fresh1, g, *m * k->beta1);
  *slow = m_fma(k->fresh3, g, *slow * k->beta3);
  *v = *v * k->beta2 + k->fresh2 * g * g;
  const float u = (*m / k->correction1 + k->alpha * *slow) / (m_sqrt(*v) / k->root + k->eps);
  *p = m_fma(-k->lr, u, *p * k->keep);
}

/* A value in f32 to one of its two neighbours in bf16, the nearer the more often, by 16 random
 * bits: as if they were added below. */
AC_HOSTDEV static inline uint32_t aci_bw_round(uint32_t bits, uint32_t word) {
  return (bits & 0x7f800000u) == 0x7f800000u ? bits /* infinities and NaN stay */
                                             : (bits + (word & 0xffffu)) & 0xffff0000u;
}

#endif
