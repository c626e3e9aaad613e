/* A template of minmax.c, which defines these before each #include: name of the functions, T the
 * type, I an index as wide as it, TAKE whether a is beyond b, and SAME whether both are the same.
 * The end of this file undefines them. */
#include "base/cat.h"

/* The largest (smallest) of n >= 1 elements. name_find: the first index of value, which is there.
 * beats: is a strictly beyond b? NaN is beyond everything. */
AC_ISA_FN(name, (const T *restrict x, int64_t n, T *restrict out), (x, n, out)) {
  ACI_LANES_RUN(T, m, n, x[0], ACI_CAT(TAKE, _X), ACI_CAT(TAKE, _JOIN));
  *out = m;
}
AC_ISA_FN(ACI_CAT(name, _find), (const T *restrict x, int64_t n, T value, int64_t *restrict at),
          (x, n, value, at)) {
  for (int64_t i = 0;; i += FIND) {
    const I m = (I)(n - i < FIND ? n - i : FIND);
    I lane[LANES];
    for (I k = 0; k < LANES; k++) lane[k] = FIND;
    I k = 0;
    for (; k + LANES <= m; k += LANES)
      for (I l = 0; l < LANES; l++) {
        I here = SAME(x[i + k + l], value) ? k : FIND;
        lane[l] = here < lane[l] ? here : lane[l];
      }
    I first = FIND;
    for (I l = 0; l < LANES; l++) {
      I here = lane[l] + l;
      first = here < first ? here : first;
    }
    for (; k < m && first >= FIND; k++) first = SAME(x[i + k], value) ? k : FIND;
    if (first < FIND) {
      *at = i + first;
      return;
    }
  }
}
static void ACI_CAT(name, _list)(const aci_reduce_plan *p, int64_t base, int64_t a, int64_t b,
                                 void *value, int64_t *at) {
  _Alignas(64) T buf[ACI_RED_BLOCK];
  const bool direct =
      p->source == NULL && aci_reduce_block(p, base, a, 1, buf) != (const void *)buf;
  const int64_t block = direct ? DIRECT : ACI_RED_BLOCK;
  T best = 0;
  for (int64_t i = a; i < b; i += block) {
    int64_t n = b - i < block ? b - i : block, k = 0;
    const T *x = aci_reduce_block(p, base, i, n, buf);
    T m;
    if (direct) aci_row_ahead(x, n * (int64_t)sizeof(T));
    name(x, n, &m);
    if (i > a && (!TAKE(m, best) || SAME(m, best))) continue;
    best = m;
    if (at == NULL) continue;
    ACI_CAT(name, _find)(x, n, m, &k);
    *at = i + k;
  }
  memcpy(value, &best, sizeof best);
}
static bool ACI_CAT(name, _beats)(const void *a, const void *b) {
  T x, y;
  memcpy(&x, a, sizeof x);
  memcpy(&y, b, sizeof y);
  return TAKE(x, y) && !SAME(x, y);
}

/* Kept dims outside in memory: best and position of a tile of outputs, row by row. Position: I is
 * as wide as T. */
AC_ISA_FN(ACI_CAT(name, _row),
          (const T *restrict x, T *restrict best, I *restrict at, I row, int64_t n),
          (x, best, at, row, n)) {
  _Pragma("GCC ivdep") for (int64_t k = 0; k < n; k++) {
    bool better = TAKE(x[k], best[k]) && !SAME(x[k], best[k]);
    best[k] = better ? x[k] : best[k];
    at[k] = better ? row : at[k];
  }
}
static void ACI_CAT(name, _tile)(const aci_reduce_plan *p, int64_t base, int64_t n, void *best,
                                 int64_t *at) {
  _Alignas(64) T buf[TILE];
  _Alignas(64) I position[TILE] = {0};
  for (int64_t r = 0; r < p->n_reduced; r++) {
    const char *src = p->ptr + (base + aci_reduce_offset(p, r)) * (int64_t)aci_dsize(p->dt);
    if (p->source != NULL)
      p->source(p->from, base + aci_reduce_offset(p, r), n, (float *)(r == 0 ? best : (void *)buf));
    else aci_load(p->ct, r == 0 ? best : buf, p->dt, src, 1, n);
    if (r > 0) ACI_CAT(name, _row)(buf, best, position, (I)r, n);
  }
  for (int64_t k = 0; k < n; k++) at[k] = position[k];
}

#undef name
#undef T
#undef I
#undef TAKE
#undef SAME
