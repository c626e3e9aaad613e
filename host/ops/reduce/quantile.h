/* Quantiles, for quantile and nanquantile. */
#ifndef ACI_OPS_QUANTILE_H
#define ACI_OPS_QUANTILE_H
#include "ops/core/op.h"

/* The composition of (x, q, dim?, keepdim, interpolation) -> y. skip: NaN is left out, otherwise a
 * line with NaN gives NaN. */
int aci_quantiles(ac_expr *x, const ac_value *a, bool skip, ac_tensor **out);

#endif
