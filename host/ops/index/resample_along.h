/* A template of resample.c, which defines T and sfx before each #include. The end of this file
 * undefines them. */
#include "base/cat.h"

AC_ISA_FN(ACI_CAT(along_, sfx),
          (T *restrict y, const T *restrict x, const aci_taps *t, int per_row),
          (y, x, t, per_row)) {
  const int64_t *first = t->first, *c = t->col;
  const double *w = t->weight;
  switch (per_row) {
    case 1:
      for (int64_t o = 0; o < t->n_out; o++) y[o] = (T)w[o] * x[c[o]];
      return;
    case 2:
      for (int64_t o = 0; o < t->n_out; o++)
        y[o] = (T)w[2 * o] * x[c[2 * o]] + (T)w[2 * o + 1] * x[c[2 * o + 1]];
      return;
    default:
      for (int64_t o = 0; o < t->n_out; o++) {
        T sum = 0;
        for (int64_t k = first[o]; k < first[o + 1]; k++) sum += (T)w[k] * x[c[k]];
        y[o] = sum;
      }
  }
}

#undef T
#undef sfx
