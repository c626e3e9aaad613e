/* Attention in plain ops: see plain.h. */
#include "ops/attention/plain.h"

#include <math.h>

/* Key or value heads repeated so that there is one per query head. */
static ac_tensor *repeat_heads(ac_expr *x, ac_tensor *t, int64_t hq) {
  if (t == NULL || t->shape[1] == hq) return t;
  int64_t b = t->shape[0], h = t->shape[1], n = t->shape[2], d = t->shape[3];
  int64_t wide[5] = {b, h, h > 0 ? hq / h : 0, n, d}, flat[4] = {b, hq, n, d};
  return x_reshape(x, x_expand(x, x_unsqueeze(x, t, 2), wide, 5), flat, 4);
}

ac_tensor *aci_plain_attention(ac_expr *x, ac_tensor *q, ac_tensor *k, ac_tensor *v,
                               ac_tensor *mask, double dropout_p, bool causal, double scale,
                               ac_generator *gen, ac_tensor *slopes) {
  const ac_dtype dt = (ac_dtype)q->dtype, wide = dt == AC_F64 ? AC_F64 : AC_F32;
  /* finite, so that a row with no key left has a softmax to drop */
  const ac_operand zero = F(0), low = F(-1e30);
  if (dt != wide) {
    q = x_cast(x, q, wide);
    k = x_cast(x, k, wide);
    v = x_cast(x, v, wide);
  }
  if (x->st != AC_OK) return NULL;
  k = repeat_heads(x, k, q->shape[1]);
  v = repeat_heads(x, v, q->shape[1]);
  ac_tensor *s = x_mul(x, T(x_matmul(x, q, x_transpose(x, k, -2, -1))), F(scale)), *hidden = NULL;
  if (x->st != AC_OK) return NULL;
  if (mask != NULL && mask->dtype == AC_BOOL) {
    hidden = x_eq(x, T(mask), ac_operand_int(0));
  } else if (mask != NULL) {
    if (mask->dtype != wide) mask = x_cast(x, mask, wide);
    hidden = x_eq(x, T(mask), F(-(double)INFINITY));
    s = x_add(x, T(s), T(x_masked_fill(x, mask, hidden, zero)),
              (ac_scalar){.kind = AC_SCALAR_INT, .i = 1});
  }
  if (slopes != NULL && s != NULL) {
    const int64_t per_head[4] = {1, slopes->numel, 1, 1};
    if (slopes->dtype != wide) slopes = x_cast(x, slopes, wide);
    ac_tensor *bias = x_mul(x, T(x_reshape(x, slopes, per_head, 4)), T(x_distance(x, s, causal)));
    s = x_sub(x, T(s), T(bias), (ac_scalar){.kind = AC_SCALAR_INT, .i = 1});
  }
  if (hidden != NULL) s = x_masked_fill(x, s, hidden, low);
  ac_tensor *causal_mask = causal && s != NULL ? x_causal_mask(x, s) : NULL;
  if (causal_mask != NULL) s = x_masked_fill(x, s, causal_mask, low);
  ac_tensor *p = x_softmax(x, s, -1, NULL);
  if (hidden != NULL) p = x_masked_fill(x, p, hidden, zero);
  if (causal_mask != NULL) p = x_masked_fill(x, p, causal_mask, zero);
  if (dropout_p > 0) p = x_random_mask(x, p, dropout_p, gen);
  ac_tensor *y = x_matmul(x, p, v);
  return dt != wide ? x_cast(x, y, dt) : y;
}
