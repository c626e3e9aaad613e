/* A template of pool_max.c, which defines NAME, T and I before each #include. The end of this
 * file undefines them. */
#include "base/cat.h"

AC_ISA_FN(ACI_CAT(NAME, _join), (T *restrict m, const T *restrict x, int64_t step, int64_t n),
          (m, x, step, n)) {
  if (step == 1)
    for (int64_t i = 0; i < n; i++) m[i] = WINS(x[i], m[i]) ? x[i] : m[i];
  else if (step == 2)
    for (int64_t i = 0; i < n; i++) m[i] = WINS(x[2 * i], m[i]) ? x[2 * i] : m[i];
  else
    for (int64_t i = 0; i < n; i++) m[i] = WINS(x[i * step], m[i]) ? x[i * step] : m[i];
}
/* A row of the input, sorted by residue of the stride, -infinity in the padding and after it. */
AC_ISA_FN(ACI_CAT(NAME, _sort), (const max_pool_job *j, const T *restrict x, T *restrict d),
          (j, x, d)) {
  const int64_t s = j->p->stride[1], n = j->p->in[1], len = j->sorted_len;
  for (int64_t r = 0; r < j->residues; r++, d += len) {
    const int64_t off = r - j->p->pad[1], lo = off >= 0 ? 0 : (-off + s - 1) / s;
    int64_t hi = off >= n ? 0 : (n - 1 - off) / s + 1;
    if (hi > len) hi = len;
    for (int64_t i = 0; i < lo && i < len; i++) d[i] = -(T)INFINITY;
    if (s == 1)
      for (int64_t i = lo; i < hi; i++) d[i] = x[i + off];
    else if (s == 2)
      for (int64_t i = lo; i < hi; i++) d[i] = x[2 * i + off];
    else
      for (int64_t i = lo; i < hi; i++) d[i] = x[i * s + off];
    for (int64_t i = hi > lo ? hi : lo; i < len; i++) d[i] = -(T)INFINITY;
  }
}
AC_ISA_FN(ACI_CAT(NAME, _find),
          (T *restrict m, I *restrict position, const T *restrict x, I at, I step, int64_t n),
          (m, position, x, at, step, n)) {
  for (int64_t b = 0; b < n; b += LANES, at += LANES * step)
    for (int l = 0; l < LANES; l++) {
      const T v = x[b + l];
      const bool wins = WINS(v, m[b + l]);
      position[b + l] = wins ? at + step * (I)l : position[b + l];
      m[b + l] = wins ? v : m[b + l];
    }
}
/* the rows of the windows first, then their columns */
static void ACI_CAT(NAME, _values)(const max_pool_job *j, const void *plane, int64_t o, void *mv,
                                   void *cv) {
  const aci_pool *p = j->p;
  const int64_t h0 = o * p->stride[0] - p->pad[0], s = p->stride[1], width = p->in[1];
  T *m = mv, *cols = cv;
  const T *row = NULL;
  for (int64_t k = 0; k < p->k[0]; k++) {
    const int64_t h = h0 + k * p->dil[0];
    if (h < 0 || h >= p->in[0]) continue;
    const T *x = (const T *)plane + h * width;
    if (row == NULL) {
      row = x;
    } else {
      if (row != cols) memcpy(cols, row, (size_t)width * sizeof(T));
      ACI_CAT(NAME, _join)(cols, x, 1, width);
      row = cols;
    }
  }
  for (int64_t i = 0; i < p->out[1]; i++) m[i] = -(T)INFINITY;
  for (int64_t q = 0; row != NULL && q < p->k[1]; q++)
    if (j->hi[q] > j->lo[q]) ACI_CAT(NAME, _join)
  (m + j->lo[q], row + j->lo[q] * s - p->pad[1] + q * p->dil[1], s, j->hi[q] - j->lo[q]);
}
static void ACI_CAT(NAME, _positions)(const max_pool_job *j, const void *plane, int64_t o, void *mv,
                                      void *pv, void *cv) {
  const aci_pool *p = j->p;
  const int64_t h0 = o * p->stride[0] - p->pad[0], s = p->stride[1], width = p->in[1];
  T *m = mv, *sorted = cv;
  I *position = pv;
  bool started = false;
  for (int64_t i = 0; i < j->padded; i++) m[i] = -(T)INFINITY, position[i] = -1;
  for (int64_t k = 0; k < p->k[0]; k++) {
    const int64_t h = h0 + k * p->dil[0];
    if (h < 0 || h >= p->in[0]) continue;
    for (int64_t i = 0; !started && i < p->out[1]; i++)
      if (j->first[i] < width) position[i] = (I)(h * width + j->first[i]);
    started = true;
    ACI_CAT(NAME, _sort)(j, (const T *)plane + h * width, sorted);
    for (int64_t q = 0; q < p->k[1]; q++) {
      const int64_t off = q * p->dil[1];
      ACI_CAT(NAME, _find)
      (m, position, sorted + off % s * j->sorted_len + off / s, (I)(h * width + off - p->pad[1]),
       (I)s, j->padded);
    }
  }
}
static void ACI_CAT(NAME, _adaptive)(const max_pool_job *j, const void *plane, int64_t o, void *mv,
                                     void *pv, void *cv) {
  const aci_pool *p = j->p;
  T *m = mv;
  I *position = pv;
  (void)cv;
  int64_t h0, h1, w0, w1;
  aci_pool_span(p, 0, o, &h0, &h1);
  for (int64_t i = 0; i < p->out[1]; i++) {
    aci_pool_span(p, 1, i, &w0, &w1);
    int64_t best = h0 * p->in[1] + w0;
    T top = -(T)INFINITY;
    for (int64_t h = h0; h < h1; h++)
      for (int64_t w = w0; w < w1; w++) {
        T v = ((const T *)plane)[h * p->in[1] + w];
        if (!WINS(v, top)) continue;
        top = v;
        best = h * p->in[1] + w;
      }
    m[i] = top;
    position[i] = (I)best;
  }
}
/* dx[position] += dy. m = t[position]. position -1: a dilated window with only padding at its taps */
static void ACI_CAT(NAME, _scatter)(void *dx, const void *dy, const void *position, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (((const I *)position)[i] >= 0) ((T *)dx)[((const I *)position)[i]] += ((const T *)dy)[i];
}
static void ACI_CAT(NAME, _pick)(void *m, const void *t, const void *position, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    ((T *)m)[i] = ((const I *)position)[i] >= 0 ? ((const T *)t)[((const I *)position)[i]] : 0;
}
static void ACI_CAT(NAME, _widen)(int64_t *d, const void *position, int64_t n) {
  for (int64_t i = 0; i < n; i++) d[i] = ((const I *)position)[i];
}

#undef NAME
#undef T
#undef I
