/* A template of linear_cross_entropy_tile.c, which defines T and sfx before each #include. The
 * end of this file undefines them. */
#include "base/cat.h"

AC_ISA_FN(ACI_CAT(prob_, sfx), (const T *x, T shift, T scale, T less, int64_t n, T *y),
          (x, shift, scale, less, n, y)) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = m_exp(x[i] - shift) * scale - less;
}
AC_ISA_FN(ACI_CAT(less_, sfx), (T * y, T a, const T *w, int64_t n), (y, a, w, n)) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] -= a * w[i];
}
AC_ISA_FN(ACI_CAT(times_, sfx), (T * y, const T *x, const T *w, int64_t n), (y, x, w, n)) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = x[i] * w[i];
}
static void ACI_CAT(row_, sfx)(const aci_lce *j, const T *x, int64_t id, aci_lce_state *s,
                               char *kept, double *kept_shift) {
  const int64_t n = j->n_cols, size = (int64_t)aci_dsize(j->product);
  const T *w = j->y.w == NULL ? NULL : (const T *)j->y.w + j->j0;
  T buf[CHUNK];
  const double m = (double)ACI_CAT(aci_row_max_, sfx)(x, n);
  if (!(m <= s->max)) {
    s->sum *= s->sum == 0 ? 1 : exp(s->max - m);
    s->max = m;
  }
  const T shift =
      s->max == -INFINITY ? 0 : (T)s->max; /* nothing but -inf so far, which adds nothing */
  for (int64_t c = 0; c < n; c += CHUNK) {
    const int64_t len = aci_lce_min(CHUNK, n - c);
    s->sum += ACI_CAT(aci_row_exp_, sfx)(x + c, shift, len, buf);
    if (kept != NULL) aci_store(j->y.ct, buf, j->product, kept + c * size, 1, len);
  }
  if (kept != NULL) *kept_shift = s->max == -INFINITY ? s->max : (double)shift;
  if (id >= j->j0 && id < j->j0 + n) s->at_target = (double)x[id - j->j0];
  if (j->smooth == 0) return;
  for (int64_t c = 0; c < n; c += CHUNK) {
    const int64_t len = aci_lce_min(CHUNK, n - c);
    if (w != NULL) ACI_CAT(times_, sfx)(buf, x + c, w + c, len);
    s->weighted += ACI_CAT(aci_sum_, sfx)(w != NULL ? buf : x + c, len);
  }
}
AC_ISA_FN(ACI_CAT(scaled_, sfx), (T * y, T scale, T less, int64_t n), (y, scale, less, n)) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = y[i] * scale - less;
}
static void ACI_CAT(row_back_, sfx)(const aci_lce *j, T *x, int64_t id, const aci_lce_back *r,
                                    const char *kept, double kept_scale) {
  const int64_t n = j->n_cols, size = (int64_t)aci_dsize(j->product);
  const T *w = j->y.w == NULL ? NULL : (const T *)j->y.w + j->j0;
  const bool stays =
      j->product == j->acc; /* otherwise stored values are shorter and never overtake */
  T buf[CHUNK];
  for (int64_t c = 0; c < n; c += CHUNK) {
    const int64_t len = aci_lce_min(CHUNK, n - c), at = id - j->j0 - c;
    T *y = stays ? x + c : buf;
    const T less = w == NULL ? (T)r->each : 0;
    if (kept == NULL) {
      ACI_CAT(prob_, sfx)(x + c, (T)r->shift, (T)r->scale, less, len, y);
    } else {
      aci_load(j->y.ct, y, j->product, kept + c * size, 1, len);
      ACI_CAT(scaled_, sfx)(y, (T)kept_scale, less, len);
    }
    if (w != NULL && r->each != 0) ACI_CAT(less_, sfx)(y, (T)r->each, w + c, len);
    if (at >= 0 && at < len) y[at] -= (T)r->at_target;
    if (!stays) aci_store(j->y.ct, y, j->product, (uint16_t *)(void *)x + c, 1, len);
  }
}

#undef T
#undef sfx
