/* A template of ctc_loss_rows.c, which defines T and SFX before each #include. The end of this file
 * undefines them. Rows of states have two more elements in front (or after them, going backwards),
 * which are -infinity. */
#include "base/cat.h"

static inline AC_INLINE T ACI_CAT(join2_, SFX)(T a, T b) {
  const T m = a > b ? a : b;
  const T low = m == -(T)INFINITY ? (T)0 : m; /* no path: log(0), not NaN */
  return low + m_log(m_exp(a - low) + m_exp(b - low));
}
static inline AC_INLINE T ACI_CAT(join3_, SFX)(T a, T b, T c) {
  const T ab = a > b ? a : b, m = ab > c ? ab : c;
  const T low = m == -(T)INFINITY ? (T)0 : m;
  return low + m_log(m_exp(a - low) + m_exp(b - low) + m_exp(c - low));
}

/* y[s] = log probability of the paths to s: from s, s - 1 and if skip[s] s - 2 of x. */
AC_ISA_FN(ACI_CAT(step_, SFX),
          (T *restrict y, const T *restrict x, const T *restrict lp, const int32_t *restrict cls,
           const uint8_t *restrict skip, int64_t n),
          (y, x, lp, cls, skip, n)) {
  for (int64_t s = 0; s < n; s++) {
    const T far = skip[s] ? x[s - 2] : -(T)INFINITY;
    y[s] = ACI_CAT(join3_, SFX)(x[s], x[s - 1], far) + lp[cls[s]];
  }
}
/* The same backwards: to the end, from s through s, s + 1 and if skip[s + 2] s + 2. */
AC_ISA_FN(ACI_CAT(back_step_, SFX),
          (T *restrict y, const T *restrict x, const T *restrict lp, const int32_t *restrict cls,
           const uint8_t *restrict skip, int64_t n),
          (y, x, lp, cls, skip, n)) {
  for (int64_t s = 0; s < n; s++) {
    const T far = s + 2 < n && skip[s + 2] ? x[s + 2] : -(T)INFINITY;
    y[s] = ACI_CAT(join3_, SFX)(x[s], x[s + 1], far) + lp[cls[s]];
  }
}
/* p[s] = probability of state s at a time among all alignments. */
AC_ISA_FN(ACI_CAT(posterior_, SFX),
          (T *restrict p, const T *restrict alpha, const T *restrict beta, const T *restrict lp,
           const int32_t *restrict cls, T loss, int64_t n),
          (p, alpha, beta, lp, cls, loss, n)) {
  for (int64_t s = 0; s < n; s++) {
    const bool path = alpha[s] > -(T)INFINITY && beta[s] > -(T)INFINITY;
    p[s] = m_exp(path ? alpha[s] + beta[s] - lp[cls[s]] + loss : -(T)INFINITY);
  }
}

static void ACI_CAT(forward_, SFX)(const ctc_job *j, int64_t n, char *scratch) {
  const aci_ctc *c = &j->c;
  int32_t *cls = (int32_t *)(void *)scratch;
  uint8_t *skip = (uint8_t *)(cls + c->states);
  T *x = (T *)(void *)(scratch + j->table) + 2, *y = x + c->states + 2, *lp = y + c->states;
  T *alpha = (T *)aci_data(j->alpha) + n * c->times * c->states, *loss = (T *)aci_data(j->out) + n;
  const int64_t states = states_of(j, n, cls, skip), times = times_of(j, n);
  for (int64_t i = 0; i < c->times * c->states; i++) alpha[i] = -(T)INFINITY;
  *loss = states < 0 || times < 0 ? (T)NAN : states == 1 ? (T)0 : (T)INFINITY;
  if (states < 0 || times <= 0) return;
  for (int64_t s = -2; s < states; s++) x[s] = y[s] = -(T)INFINITY;
  for (int64_t t = 0; t < times; t++) {
    aci_elems_load(j->log_probs, j->ct, (t * c->rows + n) * c->classes, c->classes, lp);
    if (t == 0) {
      y[0] = lp[cls[0]];
      if (states > 1) y[1] = lp[cls[1]];
    } else {
      ACI_CAT(step_, SFX)(y, x, lp, cls, skip, states);
    }
    memcpy(alpha + t * c->states, y, (size_t)states * sizeof(T));
    T *other = x;
    x = y;
    y = other;
  }
  *loss = -ACI_CAT(join2_, SFX)(x[states - 1], states > 1 ? x[states - 2] : -(T)INFINITY);
}

static void ACI_CAT(backward_, SFX)(const ctc_job *j, int64_t n, char *scratch) {
  const aci_ctc *c = &j->c;
  int32_t *cls = (int32_t *)(void *)scratch;
  uint8_t *skip = (uint8_t *)(cls + c->states);
  T *x = (T *)(void *)(scratch + j->table), *y = x + c->states + 2, *p = y + c->states + 2,
    *lp = p + c->states + 2, *d = lp + c->classes, dloss, loss;
  const T *alpha = (const T *)aci_data(j->alpha) + n * c->times * c->states;
  const int64_t states = states_of(j, n, cls, skip), times = times_of(j, n);
  aci_elems_load(j->dloss, j->ct, n, 1, &dloss);
  aci_elems_load(j->loss, j->ct, n, 1, &loss);
  memset(d, 0, (size_t)c->classes * sizeof(T));
  const int64_t from = states < 0 || times < 0 || dloss == 0 ? 0 : times;
  for (int64_t t = from; t < c->times; t++)
    aci_elems_store(j->out, j->ct, (t * c->rows + n) * c->classes, c->classes, d);
  for (int64_t s = 0; s < states + 2; s++) x[s] = y[s] = -(T)INFINITY;
  for (int64_t t = from - 1; t >= 0; t--) {
    const int64_t at = (t * c->rows + n) * c->classes;
    aci_elems_load(j->log_probs, j->ct, at, c->classes, lp);
    if (t == from - 1) {
      y[states - 1] = lp[cls[states - 1]];
      if (states > 1) y[states - 2] = lp[cls[states - 2]];
    } else {
      ACI_CAT(back_step_, SFX)(y, x, lp, cls, skip, states);
    }
    ACI_CAT(posterior_, SFX)(p, alpha + t * c->states, y, lp, cls, loss, states);
    for (int64_t s = 0; s < states; s++) d[cls[s]] -= dloss * p[s];
    aci_elems_store(j->out, j->ct, at, c->classes, d);
    for (int64_t s = 0; s < states; s++) d[cls[s]] = 0;
    T *other = x;
    x = y;
    y = other;
  }
}

#undef T
#undef SFX
