/* A template of conv_tile.c, which defines NAME, S, D, PUT and RAW before each #include. The end
 * of this file undefines them. One residue of a depth slice: row r of it is source row
 * first + r * by, with zeros outside. S: source values, D: staged. */
#include "base/cat.h"

AC_ISA_FN(NAME,
          (const aci_conv_tile *t, const char *plane, int64_t first, int64_t by, int64_t n_rows,
           const phase *p, char *d),
          (t, plane, first, by, n_rows, p, d)) {
  const aci_conv_axis *x = &t->w->a[2];
  const int64_t n = t->row_len, step = x->step, es = (int64_t)sizeof(D);
  for (int64_t r = 0; r < n_rows; r++, d += n * es) {
    const int64_t row = first + r * by;
    if (row < 0 || row >= t->w->a[1].src) {
      zero_over(d, n * es);
      continue;
    }
    const S *s = (const S *)(const void *)plane + row * x->src + p->x0;
    D *o = (D *)(void *)d;
    zero_over(d, p->lo * es);
    if (step == 1 && RAW)
      copy_exact(d + p->lo * es, (const char *)(s + p->lo), (p->hi - p->lo) * es);
    else if (step == 1)
      for (int64_t i = p->lo; i < p->hi; i++) o[i] = PUT(s[i]);
    else if (step == 2)
      for (int64_t i = p->lo; i < p->hi; i++) o[i] = PUT(s[2 * i]);
    else
      for (int64_t i = p->lo; i < p->hi; i++) o[i] = PUT(s[i * step]);
    zero_over(d + p->hi * es, (n - p->hi) * es);
  }
}

#undef NAME
#undef S
#undef D
#undef PUT
#undef RAW
