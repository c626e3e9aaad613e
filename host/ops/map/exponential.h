/* The formulas of the exponential linear units: elu, selu and celu. */
#ifndef ACI_OPS_EXPONENTIAL_H
#define ACI_OPS_EXPONENTIAL_H
#ifdef __cplusplus
#include "base/vmath.h"
#else
#include "ops/map/map.h"
#endif

#define ACI_ELU(T, x, scale, alpha, rate) \
  ((x) > 0 ? (scale) * (x) : (scale) * (alpha)*m_expm1((x) * (T)(rate)))
#define ACI_ELU_SLOPE(T, dy, x, scale, alpha, rate) \
  ((x) > 0 ? (dy) * (scale) : (dy) * ((scale) * (alpha) * (rate)) * m_exp((x) * (rate)))

#endif
