/* scaled_dot_product_attention: softmax(scale query key^T + mask) value, without a matrix of all pairs in
   memory.
   query (..., hq, tq, d), key (..., hkv, tk, d), value (..., hkv, tk, dv) -> y (..., hq, tq, dv), which lies
   in memory as (..., tq, hq, dv): y:transpose(-3, -2):flatten(-2) is a view. Leading dims broadcast. hkv = hq, or
   with enable_gqa a divisor of it.
   attn_mask broadcasts to (..., hq, tq, tk): bool (true: attend) or added to the scores. is_causal: query i
   sees keys 1 .. i.
   scale defaults to 1 / sqrt(d). Queries that may see no key give zeros.
   alibi_slopes (hq): attention with linear biases (Press et al. 2022): the scores of head h lose alibi_slopes[h] times
   the distance between query and key. With is_causal, query i is aligned with key i. Otherwise the last query is
   aligned with the last key, as in generation with a cache.
   Dtypes: floats, one for query, key and value. The weights are computed in f32 (f64 for f64).
   gradient: recomputes the weights (flash_attention). Plain ops run if a mask or slopes need a gradient, or if dv
   differs from d.
   example: accel.scaled_dot_product_attention(accel.zeros(1, 2), accel.zeros(2, 2), accel.tensor { { 1.0, 2.0 }, { 3.0, 4.0 } }) --> { { 2, 3 } } */
#include <math.h>

#include "ops/attention/plain.h"
#include "ops/core/ctx_impl.h"

enum { Q, K, V, MASK, DROPOUT, CAUSAL, SCALE, GQA, GENERATOR, ALIBI };

static ac_status check(const ac_value *a, ac_err *e) {
  const ac_tensor *q = a[Q].tensor, *k = a[K].tensor, *v = a[V].tensor;
  const ac_tensor *m = a[MASK].kind == AC_T_TENSOR ? a[MASK].tensor : NULL;
  char s[128], t[128], u[128];
  aci_shape_str(q->ndim, q->shape, s, sizeof s);
  aci_shape_str(k->ndim, k->shape, t, sizeof t);
  aci_shape_str(v->ndim, v->shape, u, sizeof u);
  if (!ac_dtype_is_float((ac_dtype)q->dtype) || q->dtype != k->dtype || q->dtype != v->dtype)
    return AC_FAIL(e, DTYPE, "query, key and value must be floats of one dtype, got %s, %s and %s",
                   ac_dtype_name((ac_dtype)q->dtype), ac_dtype_name((ac_dtype)k->dtype),
                   ac_dtype_name((ac_dtype)v->dtype));
  if (q->ndim < 2 || k->ndim < 2 || v->ndim < 2)
    return AC_FAIL(e, SHAPE, "query, key and value need at least 2 dims, got shapes %s, %s and %s",
                   s, t, u);
  if (q->shape[q->ndim - 1] != k->shape[k->ndim - 1])
    return AC_FAIL(e, SHAPE, "query %s and key %s differ in their last dim", s, t);
  if (k->shape[k->ndim - 2] != v->shape[v->ndim - 2])
    return AC_FAIL(e, SHAPE, "key %s and value %s differ in their number of positions", t, u);
  if (a[GQA].b) {
    int64_t h = q->ndim > 2 ? q->shape[q->ndim - 3] : 1,
            hk = k->ndim > 2 ? k->shape[k->ndim - 3] : 1;
    if (q->ndim < 3 || k->ndim != q->ndim || v->ndim != q->ndim || hk != v->shape[v->ndim - 3] ||
        hk == 0 || h % hk != 0)
      return AC_FAIL(
          e, SHAPE, "enable_gqa: query %s must have a multiple of the heads of key %s and value %s",
          s, t, u);
  }
  if (!(a[DROPOUT].f >= 0 && a[DROPOUT].f <= 1))
    return AC_FAIL(e, INVALID, "dropout_p must lie between 0 and 1, got %g", a[DROPOUT].f);
  if (m != NULL && a[CAUSAL].b)
    return AC_FAIL(e, INVALID, "is_causal and attn_mask exclude each other");
  if (m != NULL && m->dtype != AC_BOOL && !ac_dtype_is_float((ac_dtype)m->dtype))
    return AC_FAIL(e, DTYPE, "attn_mask must be bool or float, got %s",
                   ac_dtype_name((ac_dtype)m->dtype));
  return AC_OK;
}

static ac_status check_slopes(const ac_tensor *slopes, int64_t heads, ac_err *e) {
  char s[128];
  if (!ac_dtype_is_float((ac_dtype)slopes->dtype))
    return AC_FAIL(e, DTYPE, "alibi_slopes must be floats, got %s",
                   ac_dtype_name((ac_dtype)slopes->dtype));
  if (slopes->ndim != 1 || slopes->shape[0] != heads)
    return AC_FAIL(e, SHAPE, "alibi_slopes has shape %s, but there are %lld heads",
                   aci_shape_str(slopes->ndim, slopes->shape, s, sizeof s), (long long)heads);
  return AC_OK;
}

/* t as (b, h, n, d): lead broadcasts to the leading dims of all three. */
static ac_tensor *as4(ac_expr *x, ac_tensor *t, int n_lead, const int64_t *lead, int64_t b,
                      bool gqa) {
  int64_t s[AC_MAX_DIMS], heads = n_lead > 0 ? lead[n_lead - 1] : 1;
  bool same = t->ndim == n_lead + 2;
  if (gqa) heads = t->shape[t->ndim - 3];
  memcpy(s, lead, (size_t)n_lead * 8);
  if (n_lead > 0) s[n_lead - 1] = heads;
  s[n_lead] = t->shape[t->ndim - 2];
  s[n_lead + 1] = t->shape[t->ndim - 1];
  for (int d = 0; same && d < n_lead; d++) same = t->shape[d] == s[d];
  if (!same) t = x_expand(x, t, s, n_lead + 2);
  int64_t four[4] = {b, heads, s[n_lead], s[n_lead + 1]};
  if (n_lead != 2) t = x_reshape(x, t, four, 4);
  return t == NULL || t->stride[3] == 1 || t->shape[3] <= 1 ? t : x_clone(x, t);
}

/* The mask with four dims or fewer, which broadcast as they are. */
static ac_tensor *mask4(ac_expr *x, ac_tensor *m, int n_lead, const int64_t *lead,
                        const int64_t *four) {
  int64_t s[AC_MAX_DIMS];
  char a[128], b[128];
  int nd = n_lead + 2;
  memcpy(s, lead, (size_t)n_lead * 8);
  s[n_lead] = four[2];
  s[n_lead + 1] = four[3];
  bool fits = m->ndim <= nd;
  for (int d = 0; fits && d < m->ndim; d++)
    fits = m->shape[d] == 1 || m->shape[d] == s[nd - m->ndim + d];
  if (!fits) {
    x->st =
        AC_FAIL(x->e, SHAPE, "attn_mask of shape %s does not broadcast to %s",
                aci_shape_str(m->ndim, m->shape, a, sizeof a), aci_shape_str(nd, s, b, sizeof b));
    return NULL;
  }
  if (n_lead == 2 || m->ndim <= 2) return m;
  return x_reshape(x, x_expand(x, m, s, nd), four, 4);
}

/* Leading dims are broadcast and joined to (batch, heads), which flash_attention takes, and
 * restored at the end. With gqa the heads of key and value keep their smaller number. */
static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *q = a[Q].tensor, *k = a[K].tensor, *v = a[V].tensor,
            *m = a[MASK].kind == AC_T_TENSOR ? a[MASK].tensor : NULL,
            *slopes = a[ALIBI].kind == AC_T_TENSOR ? a[ALIBI].tensor : NULL;
  ac_generator *gen = a[GENERATOR].kind == AC_T_GENERATOR ? a[GENERATOR].generator : NULL;
  const bool gqa = a[GQA].b, dead = a[DROPOUT].f >= 1;
  const double p = dead ? 0 : a[DROPOUT].f;
  x->st = check(a, x->e);
  if (x->st != AC_OK) return 0;
  /* leading dims of the result */
  int n = 0;
  int64_t lead[AC_MAX_DIMS], b = 1;
  ac_tensor *ts[3] = {q, k, v};
  for (int i = 0; i < 3; i++) n = ts[i]->ndim - 2 > n ? ts[i]->ndim - 2 : n;
  for (int d = 0; d < n; d++) {
    lead[d] = 1;
    for (int i = 0; i < 3; i++) {
      int j = d - (n - (ts[i]->ndim - 2));
      if (j < 0 || (gqa && d == n - 1 && i > 0) || ts[i]->shape[j] == lead[d] ||
          ts[i]->shape[j] == 1)
        continue;
      if (lead[d] != 1) {
        char s[128], t[128];
        x->st = AC_FAIL(x->e, SHAPE, "leading dims of query %s and %s %s do not broadcast%s",
                        aci_shape_str(q->ndim, q->shape, s, sizeof s), i == 1 ? "key" : "value",
                        aci_shape_str(ts[i]->ndim, ts[i]->shape, t, sizeof t),
                        d == n - 1 ? " (fewer key heads need enable_gqa)" : "");
        return 0;
      }
      lead[d] = ts[i]->shape[j];
    }
    if (d < n - 1) b *= lead[d];
  }
  int64_t tq = q->shape[q->ndim - 2], tk = k->shape[k->ndim - 2], dk = q->shape[q->ndim - 1],
          dv = v->shape[v->ndim - 1];
  int64_t four[4] = {b, n > 0 ? lead[n - 1] : 1, tq, tk};
  if (slopes != NULL) x->st = check_slopes(slopes, four[1], x->e);
  if (x->st != AC_OK) return 0;
  double scale = a[SCALE].kind == AC_T_NONE ? 1 / sqrt((double)dk) : a[SCALE].f;
  q = as4(x, q, n, lead, b, false);
  k = as4(x, k, n, lead, b, gqa);
  v = as4(x, v, n, lead, b, gqa);
  if (m != NULL) m = mask4(x, m, n, lead, four);
  if (x->st != AC_OK) return 0;
  const bool bias_grad = x->ctx->grad_enabled && ((m != NULL && aci_requires_grad(m)) ||
                                                  (slopes != NULL && aci_requires_grad(slopes)));
  /* a device may come without a fused kernel */
  const bool flash = !aci_is_accelerator(q->device) ||
                     ac_op_find(x->ctx, "flash_attention")->kernel[q->device->kind] != NULL;
  ac_tensor *y;
  if (!flash || bias_grad || dv != dk || dk == 0 || tk == 0)
    y = aci_plain_attention(x, q, k, v, m, p, a[CAUSAL].b, scale, gen, slopes);
  else y = x_flash_attention(x, q, k, v, m, p, a[CAUSAL].b, scale, gen, slopes, NULL);
  if (dead) y = x_mul(x, T(y), F(0));
  int64_t s[AC_MAX_DIMS];
  memcpy(s, lead, (size_t)n * 8);
  s[n] = tq;
  s[n + 1] = dv;
  out[0] = n != 2 && y != NULL ? x_reshape(x, y, s, n + 2) : y;
  return 1;
}

AC_OP(
    scaled_dot_product_attention,
    .sig =
        "scaled_dot_product_attention(query: tensor, key: tensor, value: tensor, attn_mask: tensor?, "
        "dropout_p: float = 0, "
        "is_causal: bool = false, scale: float?, enable_gqa: bool = false, generator: generator?, "
        "alibi_slopes: tensor?) -> tensor",
    .composed = composed, .autocast = AC_CAST_LOWER);
