/* A template of flash_tile.c, which defines S and T before each #include. The end of this file
 * undefines them. */
#include "base/cat.h"

static inline AC_INLINE void ACI_CAT(max_, S)(const int nr, T *s, int64_t rows, T c, int64_t diag,
                                              T *m_io) {
  T m[ACI_GEMM_NR_MAX];
  for (int j = 0; j < nr; j++) m[j] = m_io[j];
  int64_t full = rows <= diag + 1 ? rows : diag + 1 > 0 ? diag + 1 : 0;
  for (int64_t r = 0; r < full; r++, s += nr)
    for (int j = 0; j < nr; j++) {
      T t = s[j] * c;
      s[j] = t;
      m[j] = t > m[j] ? t : m[j];
    }
  for (int64_t r = full; r < rows; r++, s += nr) {
    int first = r - diag < nr ? (int)(r - diag) : nr;
    for (int j = 0; j < nr; j++) {
      T t = j < first ? (T)-INFINITY : s[j] * c;
      s[j] = t;
      m[j] = t > m[j] ? t : m[j];
    }
  }
  for (int j = 0; j < nr; j++) m_io[j] = m[j];
}
TILE_FN(ACI_CAT(max_, S), T, (T * s, int64_t rows, T c, int64_t diag, T *m),
        (nr, s, rows, c, diag, m))

static inline AC_INLINE void ACI_CAT(exp_, S)(const int nr, T *s, int64_t rows, const T *m_in,
                                              T *l_io, const aci_drop *drop) {
  T m[ACI_GEMM_NR_MAX], l[ACI_GEMM_NR_MAX];
  for (int j = 0; j < nr; j++) m[j] = m_in[j] == (T)-INFINITY ? 0 : m_in[j];
  for (int j = 0; j < nr; j++) l[j] = 0;
  if (drop == NULL) {
    for (int64_t r = 0; r < rows; r++, s += nr)
      for (int j = 0; j < nr; j++) {
        T p = ACI_CAT(exp2_, S)(s[j] - m[j]);
        s[j] = p;
        l[j] += p;
      }
  } else {
    const uint32_t *words = drop->words, below = drop->below;
    T by = (T)drop->by;
    for (int64_t r = 0; r < rows; r++, s += nr, words += nr)
      for (int j = 0; j < nr; j++) {
        T p = ACI_CAT(exp2_, S)(s[j] - m[j]);
        s[j] = words[j] >= below ? p * by : 0;
        l[j] += p;
      }
  }
  for (int j = 0; j < nr; j++) l_io[j] += l[j];
}
TILE_FN(ACI_CAT(exp_, S), T, (T * s, int64_t rows, const T *m, T *l, const aci_drop *drop),
        (nr, s, rows, m, l, drop))

static inline AC_INLINE void ACI_CAT(grad_, S)(const int nr, T *restrict s, T *restrict dp,
                                               int64_t rows, int cols, T c, int64_t diag,
                                               const T *lse2, const T *delta,
                                               const aci_drop *drop) {
  for (int64_t r = 0; r < rows; r++, s += nr, dp += nr) {
    int64_t seen = r + diag + 1;
    int n = seen >= cols ? cols : seen > 0 ? (int)seen : 0;
    T lse = lse2[r], dl = delta[r];
    if (drop == NULL) {
      for (int j = 0; j < nr; j++) {
        T p = ACI_CAT(exp2_, S)(m_fma(s[j], c, -lse));
        p = j < n ? p : 0;
        s[j] = p;
        dp[j] = p * (dp[j] - dl);
      }
    } else {
      const uint32_t *words = drop->words + r * nr, below = drop->below;
      T by = (T)drop->by;
      for (int j = 0; j < nr; j++) {
        T p = ACI_CAT(exp2_, S)(m_fma(s[j], c, -lse)), k = words[j] >= below ? by : 0;
        p = j < n ? p : 0;
        s[j] = p * k;
        dp[j] = p * (dp[j] * k - dl);
      }
    }
  }
}
TILE_FN(ACI_CAT(grad_, S), T,
        (T * s, T *dp, int64_t rows, int cols, T c, int64_t diag, const T *lse2, const T *delta,
         const aci_drop *drop),
        (nr, s, dp, rows, cols, c, diag, lse2, delta, drop))

static inline AC_INLINE void ACI_CAT(bias_, S)(const int nr, T *s, int64_t rows, T c, T slope,
                                               int64_t distance, int64_t down) {
  for (int64_t r = 0; r < rows; r++, s += nr) {
    T d = (T)(distance + r * down), by = (T)-down; /* columns are the other kind */
    for (int j = 0; j < nr; j++) {
      T at = d + by * (T)j;
      s[j] = m_fma(-slope, at < 0 ? -at : at, s[j] * c);
    }
  }
}
TILE_FN(ACI_CAT(bias_, S), T, (T * s, int64_t rows, T c, T slope, int64_t distance, int64_t down),
        (nr, s, rows, c, slope, distance, down))
void ACI_CAT(aci_tile_alibi_, S)(const aci_tile *t, T *s, T c) {
  const aci_flash *f = t->f;
  const int64_t shift = f->causal ? 0 : f->tk - f->tq;
  const int64_t query = (t->keys_are_rows ? t->col0 : t->row0) + shift,
                key = t->keys_are_rows ? t->row0 : t->col0;
  ACI_CAT(aci_tile_bias_, S)
  (s, t->rows, c, (T)(f->alibi[t->h] * ACI_LOG2E_64), query - key, t->keys_are_rows ? -1 : 1);
}

static inline AC_INLINE void ACI_CAT(scale_, S)(const int nr, T *restrict x, int64_t rows,
                                                const T *restrict by) {
  for (int64_t r = 0; r < rows; r++, x += nr)
    for (int j = 0; j < nr; j++) x[j] *= by[j];
}
TILE_FN(ACI_CAT(scale_, S), T, (T * x, int64_t rows, const T *by), (nr, x, rows, by))

static inline AC_INLINE void ACI_CAT(lse_, S)(const int nr, const T *m, const T *l,
                                              T *restrict inverse, T *restrict lse) {
  for (int j = 0; j < nr; j++) {
    inverse[j] = l[j] == 0 ? 0 : 1 / l[j];
    lse[j] = l[j] == 0 ? (T)-INFINITY : m_fma(m[j], (T)ACI_LN2_64, m_log(l[j]));
  }
}
TILE_FN(ACI_CAT(lse_, S), T, (const T *m, const T *l, T *inverse, T *lse), (nr, m, l, inverse, lse))

#undef S
#undef T
