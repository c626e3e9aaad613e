/* Attention in plain ops, with the matrix of all pairs in memory. Used by second derivatives,
 * gradients of an additive mask and values whose width differs from the keys'. Same results as
 * flash_attention, dropout included. */
#ifndef ACI_OPS_PLAIN_H
#define ACI_OPS_PLAIN_H
#include "ops/core/op.h"

/* query (b, hq, tq, d), key (b, hkv, tk, d), value (b, hkv, tk, dv) -> (b, hq, tq, dv). mask,
 * slopes (hq, of ALiBi) NULL: none. gen NULL: the context's. */
ac_tensor *aci_plain_attention(ac_expr *x, ac_tensor *q, ac_tensor *k, ac_tensor *v,
                               ac_tensor *mask, double dropout_p, bool causal, double scale,
                               ac_generator *gen, ac_tensor *slopes);

#endif
