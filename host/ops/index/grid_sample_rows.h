/* A template of grid_sample_kernel.c, which defines T and SFX before each #include. The end of this
 * file undefines them. */
#include "base/cat.h"

/* y[i] = sum over k of w[k][i] plane[off[k][i]]. Elements outside have off -1 and weight 0. */
AC_ISA_FN(ACI_CAT(sample_, SFX),
          (T *restrict y, const T *restrict plane, const int32_t *restrict off, const T *restrict w,
           int taps, int64_t n),
          (y, plane, off, w, taps, n)) {
  for (int64_t i = 0; i < n; i++) y[i] = 0;
  for (int k = 0; k < taps; k++, off += POSITIONS, w += POSITIONS)
    for (int64_t i = 0; i < n; i++) y[i] += off[i] < 0 ? 0 : w[i] * plane[off[i]];
}
/* The same if every element is in the plane. */
AC_ISA_FN(ACI_CAT(sample_inside_, SFX),
          (T *restrict y, const T *restrict plane, const int32_t *restrict off, const T *restrict w,
           int taps, int64_t n),
          (y, plane, off, w, taps, n)) {
  if (taps == 4) {
    const int32_t *o1 = off + POSITIONS, *o2 = o1 + POSITIONS, *o3 = o2 + POSITIONS;
    const T *w1 = w + POSITIONS, *w2 = w1 + POSITIONS, *w3 = w2 + POSITIONS;
    for (int64_t i = 0; i < n; i++)
      y[i] =
          w[i] * plane[off[i]] + w1[i] * plane[o1[i]] + w2[i] * plane[o2[i]] + w3[i] * plane[o3[i]];
    return;
  }
  for (int64_t i = 0; i < n; i++) y[i] = 0;
  for (int k = 0; k < taps; k++, off += POSITIONS, w += POSITIONS)
    for (int64_t i = 0; i < n; i++) y[i] += w[i] * plane[off[i]];
}

/* Elements and weights of n positions from p on. False: some are outside. */
static bool ACI_CAT(taps_, SFX)(const grid_job *j, const grid_scratch *s, int64_t image, int64_t p,
                                int64_t n, bool slopes) {
  const aci_grid *g = j->g;
  const T *c = (const T *)(void *)s->coordinates;
  bool inside = true;
  aci_elems_load(j->grid, j->ct, (image * g->positions + p) * g->space, n * g->space,
                 s->coordinates);
  for (int64_t i = 0; i < n; i++) ACI_CAT(aci_grid_taps_, SFX)
  (g, c + i * g->space, s->off + i, (T *)(void *)s->w + i,
   slopes ? (T *)(void *)s->slope + i : NULL, POSITIONS, TAPS * POSITIONS);
  for (int k = 0; k < g->taps; k++)
    for (int64_t i = 0; i < n; i++) inside = inside && s->off[k * POSITIONS + i] >= 0;
  return inside;
}

static void ACI_CAT(forward_, SFX)(const grid_job *j, const grid_scratch *s, int64_t image,
                                   int64_t p) {
  const aci_grid *g = j->g;
  const int64_t n = g->positions - p < POSITIONS ? g->positions - p : POSITIONS;
  const bool inside = ACI_CAT(taps_, SFX)(j, s, image, p, n, false);
  for (int64_t c = 0; c < g->channels; c++) {
    const int64_t plane = image * g->channels + c, at = plane * g->positions + p;
    const T *x = (const T *)(const void *)j->x + plane * g->plane;
    T *y = j->plain ? (T *)aci_data(j->out) + at : (T *)(void *)s->row;
    if (inside) ACI_CAT(sample_inside_, SFX)(y, x, s->off, (T *)(void *)s->w, g->taps, n);
    else ACI_CAT(sample_, SFX)(y, x, s->off, (T *)(void *)s->w, g->taps, n);
    if (!j->plain) aci_elems_store(j->out, j->ct, at, n, y);
  }
}

/* dx of up to CHANNELS channels: positions in their order, so that sums do not depend on threads. */
static void ACI_CAT(input_, SFX)(const grid_job *j, const grid_scratch *s, int64_t image,
                                 int64_t c0) {
  const aci_grid *g = j->g;
  const int64_t many = g->channels - c0 < CHANNELS ? g->channels - c0 : CHANNELS;
  const int64_t first = image * g->channels + c0;
  T *dx = j->plain ? (T *)aci_data(j->out) + first * g->plane : (T *)(void *)s->planes;
  T *dy = (T *)(void *)s->row;
  memset(dx, 0, (size_t)(many * g->plane) * sizeof(T));
  for (int64_t p = 0; p < g->positions; p += POSITIONS) {
    const int64_t n = g->positions - p < POSITIONS ? g->positions - p : POSITIONS;
    ACI_CAT(taps_, SFX)(j, s, image, p, n, false);
    for (int64_t c = 0; c < many; c++) {
      T *plane = dx + c * g->plane;
      aci_elems_load(j->dy, j->ct, (first + c) * g->positions + p, n, dy);
      for (int k = 0; k < g->taps; k++) {
        const int32_t *off = s->off + k * POSITIONS;
        const T *w = (const T *)(void *)s->w + k * POSITIONS;
        for (int64_t i = 0; i < n; i++)
          if (off[i] >= 0) plane[off[i]] += w[i] * dy[i];
      }
    }
  }
  if (!j->plain) aci_elems_store(j->out, j->ct, first * g->plane, many * g->plane, dx);
}

static void ACI_CAT(grid_, SFX)(const grid_job *j, const grid_scratch *s, int64_t image,
                                int64_t p) {
  const aci_grid *g = j->g;
  const int64_t n = g->positions - p < POSITIONS ? g->positions - p : POSITIONS;
  T *dy = (T *)(void *)s->row, *part = (T *)(void *)s->other;
  T *sum = (T *)(void *)s->coordinates; /* which the taps have used */
  ACI_CAT(taps_, SFX)(j, s, image, p, n, true);
  memset(sum, 0, (size_t)(n * g->space) * sizeof(T));
  for (int64_t c = 0; c < g->channels; c++) {
    const int64_t plane = image * g->channels + c;
    const T *x = (const T *)(const void *)j->x + plane * g->plane;
    aci_elems_load(j->dy, j->ct, plane * g->positions + p, n, dy);
    for (int d = 0; d < g->space; d++) {
      ACI_CAT(sample_, SFX)
      (part, x, s->off, (T *)(void *)s->slope + d * TAPS * POSITIONS, g->taps, n);
      for (int64_t i = 0; i < n; i++) sum[i * g->space + d] += dy[i] * part[i];
    }
  }
  aci_elems_store(j->out, j->ct, (image * g->positions + p) * g->space, n * g->space, sum);
}

#undef T
#undef SFX
