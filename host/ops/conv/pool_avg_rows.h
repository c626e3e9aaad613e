/* A template of pool_avg.c, which defines SFX, T and SUM before each #include. The end of this
 * file undefines them. */
#include "base/cat.h"

AC_ISA_FN(ACI_CAT(add_, SFX), (T *restrict a, const T *restrict x, int64_t step, int64_t n),
          (a, x, step, n)) {
  if (step == 1)
    for (int64_t i = 0; i < n; i++) a[i] += x[i];
  else if (step == 2)
    for (int64_t i = 0; i < n; i++) a[i] += x[2 * i];
  else
    for (int64_t i = 0; i < n; i++) a[i] += x[i * step];
}
AC_ISA_FN(ACI_CAT(spread_, SFX), (T *restrict d, const T *restrict a, int64_t step, int64_t n),
          (d, a, step, n)) {
  if (step == 1)
    for (int64_t i = 0; i < n; i++) d[i] += a[i];
  else
    for (int64_t i = 0; i < n; i++) d[i * step] += a[i];
}
AC_ISA_FN(ACI_CAT(divide_, SFX),
          (T *restrict a, const double *restrict count, double by, int64_t n), (a, count, by, n)) {
  for (int64_t i = 0; i < n; i++) a[i] /= (T)(by * count[i]);
}
/* y[i] = the mean of window i of row o */
static void ACI_CAT(mean_, SFX)(const avg_pool_job *j, const T *plane, int64_t o, T *y, T *sums) {
  const aci_pool *p = j->p;
  const int64_t width = p->in[1];
  int64_t h0, h1, w0, w1;
  aci_pool_span(p, 0, o, &h0, &h1);
  if (p->adaptive && p->out[1] == 1) {
    y[0] = (T)(SUM(plane + h0 * width, (h1 - h0) * width) / (double)((h1 - h0) * width));
    return;
  }
  if (p->adaptive) {
    memset(sums, 0, (size_t)width * sizeof(T));
    for (int64_t h = h0; h < h1; h++) ACI_CAT(add_, SFX)(sums, plane + h * width, 1, width);
    for (int64_t i = 0; i < p->out[1]; i++) {
      T sum = 0;
      aci_pool_span(p, 1, i, &w0, &w1);
      for (int64_t w = w0; w < w1; w++) sum += sums[w];
      y[i] = sum;
    }
  } else {
    memset(y, 0, (size_t)p->out[1] * sizeof(T));
    for (int64_t h = h0; h < h1; h++)
      for (int64_t q = 0; q < p->k[1]; q++)
        if (j->hi[q] > j->lo[q]) ACI_CAT(add_, SFX)
    (y + j->lo[q], plane + h * width + j->lo[q] * p->stride[1] - p->pad[1] + q, p->stride[1],
     j->hi[q] - j->lo[q]);
  }
  ACI_CAT(divide_, SFX)
  (y, j->count, p->divisor != 0 ? (double)p->divisor : (double)aci_pool_extent(p, 0, o), p->out[1]);
}
/* dx += dy of row o, which is divided in place, over its windows */
static void ACI_CAT(back_, SFX)(const avg_pool_job *j, T *dx, int64_t o, T *dy, T *sums) {
  const aci_pool *p = j->p;
  const int64_t width = p->in[1];
  int64_t h0, h1, w0, w1;
  aci_pool_span(p, 0, o, &h0, &h1);
  ACI_CAT(divide_, SFX)
  (dy, j->count, p->divisor != 0 ? (double)p->divisor : (double)aci_pool_extent(p, 0, o),
   p->out[1]);
  if (!p->adaptive) {
    for (int64_t h = h0; h < h1; h++)
      for (int64_t q = 0; q < p->k[1]; q++)
        if (j->hi[q] > j->lo[q]) ACI_CAT(spread_, SFX)
    (dx + h * width + j->lo[q] * p->stride[1] - p->pad[1] + q, dy + j->lo[q], p->stride[1],
     j->hi[q] - j->lo[q]);
    return;
  }
  memset(sums, 0, (size_t)width * sizeof(T));
  for (int64_t i = 0; i < p->out[1]; i++) {
    aci_pool_span(p, 1, i, &w0, &w1);
    for (int64_t w = w0; w < w1; w++) sums[w] += dy[i];
  }
  for (int64_t h = h0; h < h1; h++) ACI_CAT(add_, SFX)(dx + h * width, sums, 1, width);
}

#undef SFX
#undef T
#undef SUM
