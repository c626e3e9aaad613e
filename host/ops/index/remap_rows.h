/* A template of remap.c, which defines T and bits before each #include. The end of this file
 * undefines them. */
#include "base/cat.h"

AC_ISA_FN(ACI_CAT(reverse_, bits), (T *restrict y, const T *restrict x, int64_t n), (y, x, n)) {
  for (int64_t i = 0; i < n; i++) y[i] = x[-i];
}
AC_ISA_FN(ACI_CAT(twice_, bits), (T *restrict y, const T *restrict x, int64_t n), (y, x, n)) {
  for (int64_t i = 0; i < n; i++) y[2 * i] = y[2 * i + 1] = x[i];
}
/* Positions [lo, hi) of a row into y. */
static void ACI_CAT(repeat_, bits)(const aci_dim_map *d, T *y, const T *x, int64_t lo, int64_t hi) {
  const int64_t k = d->repeat, s = d->stride;
  int64_t i = lo / k, left = (i + 1) * k - lo;
  while (lo < hi && left < k) {
    *y++ = x[i * s];
    lo++;
    if (--left == 0) i++, left = k;
  }
  int64_t whole = (hi - lo) / k;
  if (k == 2 && s == 1) {
    ACI_CAT(twice_, bits)(y, x + i, whole);
    y += 2 * whole;
  } else {
    for (int64_t q = 0; q < whole; q++) {
      const T v = x[(i + q) * s];
      for (int64_t p = 0; p < k; p++) *y++ = v;
    }
  }
  lo += whole * k;
  for (; lo < hi; lo++) *y++ = x[(i + whole) * s];
}
static void ACI_CAT(row_, bits)(const remap_job *j, const aci_dim_map *d, void *out, const void *in,
                                int64_t lo, int64_t hi) {
  T *y = out;
  const T *x = in;
  if (d->repeat > 0) {
    ACI_CAT(repeat_, bits)(d, y, x, lo, hi);
    return;
  }
  for (int64_t r = find_run(d, lo); lo < hi; r++) {
    const aci_run *k = &d->run[r];
    int64_t end = r + 1 < d->n_runs && d->run[r + 1].at < hi ? d->run[r + 1].at : hi, n = end - lo;
    const int64_t step = k->step * d->stride;
    if (k->from < 0) {
      for (int64_t i = 0; i < n; i++) y[i] = j->fill.bits;
    } else {
      const T *s = x + (k->from + (lo - k->at) * k->step) * d->stride;
      if (step == 1) memcpy(y, s, (size_t)n * sizeof *y);
      else if (step == -1) ACI_CAT(reverse_, bits)(y, s, n);
      else
        for (int64_t i = 0; i < n; i++) y[i] = s[i * step];
    }
    y += n;
    lo = end;
  }
}

#undef T
#undef bits
