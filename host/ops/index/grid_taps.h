/* A template of grid_sample_kernel.c and grid_sample.cu, which define T, SFX, GRID_FLOOR, GRID_MOD
 * and GRID_ROUND before each #include: the elements of x that a position of the grid looks at. The
 * end of this file undefines them.
 *
 * Single precision computes coordinates in single precision, as PyTorch does: at the edges between
 * elements the rounding decides. */
#include "base/cat.h"

/* One dim: positions at[k] in it (-1: outside), weights u[k], and their slopes du[k] by the grid's
 * coordinate. */
typedef struct ACI_CAT(aci_grid_axis_, SFX) {
  int64_t at[4];
  T u[4], du[4];
} ACI_CAT(aci_grid_axis_, SFX);

/* c brought back into 0 .. n - 1 by the padding. slope is multiplied by that of the result. */
AC_HOSTDEV static inline T ACI_CAT(aci_grid_inside_, SFX)(const aci_grid *g, int64_t n, T c,
                                                          T *slope) {
  if (g->padding == ACI_GRID_ZEROS) return c;
  if (g->padding == ACI_GRID_REFLECTION) {
    const T low = g->corners ? (T)0 : (T)-0.5, span = (T)(g->corners ? n - 1 : n);
    if (span == 0) {
      *slope = 0;
      return 0;
    }
    T a = c - low;
    if (a < 0) a = -a, *slope = -*slope;
    const T extra = GRID_MOD(a, span), flips = GRID_FLOOR(a / span);
    const bool odd = GRID_MOD(flips, (T)2) != 0;
    c = odd ? span - extra + low : extra + low;
    if (odd) *slope = -*slope;
  }
  if (!(c > 0)) {
    *slope = 0;
    return 0;
  }
  if (c >= (T)(n - 1)) {
    *slope = 0;
    return (T)(n - 1);
  }
  return c;
}

AC_HOSTDEV static inline int64_t ACI_CAT(aci_grid_position_, SFX)(T c, int64_t n) {
  return c >= 0 && c <= (T)(n - 1) ? (int64_t)c : -1; /* NaN and far coordinates are outside */
}

AC_HOSTDEV static inline void ACI_CAT(aci_grid_axis_of_, SFX)(const aci_grid *g, int d, T v,
                                                              ACI_CAT(aci_grid_axis_, SFX) * t) {
  const int64_t n = g->in[d];
  T slope = g->corners ? (T)(n - 1) / 2 : (T)n / 2;
  T c = g->corners ? (v + 1) / 2 * (T)(n - 1) : ((v + 1) * (T)n - 1) / 2;
  if (g->mode == ACI_GRID_BICUBIC) {
    /* the cubic convolution kernel with a = -0.75 at 4 distances */
    const T a = (T)-0.75, low = GRID_FLOOR(c), f = c - low;
    for (int k = 0; k < 4; k++) {
      T ignored = 1;
      const T x = k == 0 ? f + 1 : k == 1 ? f : k == 2 ? 1 - f : 2 - f;
      const T sign = k < 2 ? slope : -slope;
      const bool near_ = k == 1 || k == 2;
      t->u[k] =
          near_ ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
      t->du[k] =
          sign * (near_ ? (3 * (a + 2) * x - 2 * (a + 3)) * x : (3 * a * x - 10 * a) * x + 8 * a);
      t->at[k] = ACI_CAT(aci_grid_position_,
                         SFX)(ACI_CAT(aci_grid_inside_, SFX)(g, n, low + (T)(k - 1), &ignored), n);
    }
    return;
  }
  c = ACI_CAT(aci_grid_inside_, SFX)(g, n, c, &slope);
  if (g->mode == ACI_GRID_NEAREST) {
    t->at[0] = ACI_CAT(aci_grid_position_, SFX)(GRID_ROUND(c), n);
    t->u[0] = 1;
    t->du[0] = 0;
    return;
  }
  const T low = GRID_FLOOR(c);
  t->at[0] = ACI_CAT(aci_grid_position_, SFX)(low, n);
  t->at[1] = ACI_CAT(aci_grid_position_, SFX)(low + 1, n);
  t->u[1] = c - low;
  t->u[0] = low + 1 - c;
  t->du[0] = -slope;
  t->du[1] = slope;
}

/* Position p of a grid with these coordinates: element off[k * step] of a plane of x (-1: outside)
 * weighs w[k * step]. slope, unless NULL: dw by coordinate d, at slope[d * wide + k * step].
 * Elements outside weigh 0. */
AC_HOSTDEV static inline void ACI_CAT(aci_grid_taps_, SFX)(const aci_grid *g, const T *coordinate,
                                                           int32_t *off, T *w, T *slope,
                                                           int64_t step, int64_t wide) {
  ACI_CAT(aci_grid_axis_, SFX) t[ACI_GRID_DIMS];
  const int width = aci_grid_width(g->mode), deep = g->space == 3 ? width : 1;
  for (int d = 0; d < g->space; d++) ACI_CAT(aci_grid_axis_of_, SFX)(g, d, coordinate[d], &t[d]);
  if (g->space == 2) {
    t[2].at[0] = 0;
    t[2].u[0] = 1;
    t[2].du[0] = 0;
  }
  int64_t at = 0;
  for (int k2 = 0; k2 < deep; k2++)
    for (int k1 = 0; k1 < width; k1++)
      for (int k0 = 0; k0 < width; k0++, at += step) {
        const bool in = t[0].at[k0] >= 0 && t[1].at[k1] >= 0 && t[2].at[k2] >= 0;
        off[at] =
            in ? (int32_t)((t[2].at[k2] * g->in[1] + t[1].at[k1]) * g->in[0] + t[0].at[k0]) : -1;
        w[at] = in ? t[2].u[k2] * t[1].u[k1] * t[0].u[k0] : 0;
        if (slope == NULL) continue;
        slope[at] = in ? t[2].u[k2] * t[1].u[k1] * t[0].du[k0] : 0;
        slope[at + wide] = in ? t[2].u[k2] * t[1].du[k1] * t[0].u[k0] : 0;
        slope[at + 2 * wide] = in ? t[2].du[k2] * t[1].u[k1] * t[0].u[k0] : 0;
      }
}

#undef T
#undef SFX
#undef GRID_FLOOR
#undef GRID_MOD
#undef GRID_ROUND
