/* Tiles of positions, their stage, and the matrix rows made of it: see conv_impl.h. Called by
 * conv.c and conv_weight.c. */
#include <string.h>

#include "base/vmath.h"
#include "device/cpu/isa.h"
#include "device/cpu/kernels/conv_impl.h"

void aci_conv_walk_finish(aci_conv_walk *w, aci_gemm_type staged) {
  w->taps = w->positions = 1;
  bool plain = true;
  for (int d = 0; d < ACI_CONV_DIMS; d++) {
    const aci_conv_axis *a = &w->a[d];
    w->taps *= a->taps;
    w->positions *= a->q;
    plain = plain && a->taps == 1 && a->step == 1 && a->off == 0 && a->q == a->src &&
            a->q == a->dst && a->by == 1;
  }
  w->stage_bytes = aci_gemm_type_bytes(staged);
  w->direct = plain && staged == w->type;
}

/* ---- tiles ---- */
static bool row_parts(const aci_conv_walk *w, int64_t cols) {
  return !w->direct && w->a[2].q > cols;
}

int64_t aci_conv_tiles(const aci_conv_walk *w, int64_t cols) {
  if (row_parts(w, cols)) return w->n * (w->positions / w->a[2].q) * aci_conv_ceil(w->a[2].q, cols);
  return aci_conv_ceil(w->n * w->positions, cols);
}

/* Least of i * doff over the taps of an axis, and the span from it to the greatest. */
static int64_t least(const aci_conv_axis *a) {
  return a->doff < 0 && a->taps > 0 ? (a->taps - 1) * a->doff : 0;
}
static int64_t spread(const aci_conv_axis *a) {
  return a->taps > 1 ? (a->taps - 1) * (a->doff < 0 ? -a->doff : a->doff) : 0;
}

/* Staged rows that n consecutive positions of an axis read, and the distance between the rows of
 * neighbours. */
static int64_t staged(const aci_conv_axis *a, int64_t n) {
  return a->taps > 1 ? (n - 1) * a->step + spread(a) + 1 : n;
}
static int64_t apart(const aci_conv_axis *a) { return a->taps > 1 ? a->step : 1; }
/* Residues of a row that taps read. */
static int64_t residues(const aci_conv_axis *x) {
  return x->taps > 1 ? aci_conv_min(x->step, spread(x) + 1) : 1;
}

static void direct_runs(aci_conv_tile *t, int64_t first, int64_t n) {
  const int64_t positions = t->w->positions;
  for (int64_t col = 0; col < n;) {
    aci_conv_run *r = &t->run[t->n_runs++];
    r->image = (first + col) / positions;
    r->position = (first + col) % positions;
    r->col = (int32_t)col;
    r->len = (int32_t)aci_conv_min(positions - r->position, n - col);
    r->stage = r->image * t->w->channels * positions + r->position;
    col += r->len;
  }
}

/* Runs, the slabs of neighbouring rows that they lie in, and the layout of their stage. */
static void staged_runs(aci_conv_tile *t, int64_t first, int64_t n) {
  const aci_conv_walk *w = t->w;
  const aci_conv_axis *h = &w->a[1], *x = &w->a[2];
  const int64_t plane = h->q * x->q;
  int64_t most = 0;
  for (int d = 0; d < ACI_CONV_DIMS; d++) t->low[d] = least(&w->a[d]);
  int64_t image = first / w->positions, depth = first % w->positions / plane,
          row = first % plane / x->q, at = first % x->q;
  aci_conv_slab *s = NULL;
  for (int64_t col = 0; col < n;) {
    if (s == NULL || s->image != image || s->depth != depth) {
      s = &t->slab[t->n_slabs++];
      *s = (aci_conv_slab){image, depth, row, 0};
    }
    s->n_rows = row - s->row + 1;
    most = aci_conv_max(most, s->n_rows);
    aci_conv_run *r = &t->run[t->n_runs++];
    *r = (aci_conv_run){(int32_t)col, (int32_t)aci_conv_min(t->col0 + t->n_at - at, n - col),
                        at - t->col0, image, (depth * h->q + row) * x->q + at};
    col += r->len;
    at = t->col0;
    if (++row == h->q) {
      row = 0;
      if (++depth == w->a[0].q) {
        depth = 0;
        image++;
      }
    }
  }
  t->row_len = t->n_at + (x->taps > 1 ? spread(x) / x->step : 0);
  t->rows = staged(h, most);
  t->slice_len = t->rows * t->row_len * residues(x);
  t->slab_len = aci_conv_max(w->a[0].taps, 1) * t->slice_len;
  for (int i = 0, slab = 0, in_slab = 0; i < t->n_runs; i++, in_slab++) {
    if (in_slab == t->slab[slab].n_rows) {
      slab++;
      in_slab = 0;
    }
    t->run[i].stage += slab * t->slab_len + in_slab * apart(h) * t->row_len;
  }
}

void aci_conv_tile_panels(aci_conv_tile *t, int nr) {
  t->n_panels = (int)aci_conv_ceil(t->n_cols, nr);
  t->tail = t->n_cols - (t->n_panels - 1) * nr <= nr / 2 ? nr / 2 : nr;
}

/* The copies that make one row of the matrix: runs, joined if they follow each other in the stage,
 * cut into panels. */
static void cut_pieces(aci_conv_tile *t, int nr, int64_t panel_bytes) {
  const int64_t es = t->w->stage_bytes;
  const int width = nr > 0 ? nr : t->n_cols, whole = t->n_cols / width;
  int64_t panel = 0, lane = 0;
  t->width = width;
  t->n_pieces = t->n_whole = 0;
  aci_conv_tile_panels(t, width);
  for (int i = 0; i < t->n_runs;) {
    int64_t src = t->run[i].stage, left = t->run[i].len;
    for (i++; i < t->n_runs && t->run[i].stage == src + left; i++) left += t->run[i].len;
    while (left > 0) {
      const int64_t n = aci_conv_min(left, width - lane);
      t->piece[t->n_pieces++] =
          (aci_conv_piece){src * es, (int32_t)(panel * panel_bytes + lane * es), (int32_t)(n * es)};
      if (panel < whole) t->n_whole = t->n_pieces;
      src += n;
      left -= n;
      lane += n;
      if (lane == width) {
        lane = 0;
        panel++;
      }
    }
  }
}

void aci_conv_tile_make(const aci_conv_walk *w, int64_t cols, int64_t index, int nr,
                        int64_t panel_bytes, aci_conv_tile *t) {
  const int64_t width = w->a[2].q;
  int64_t first, n;
  t->w = w;
  t->n_runs = t->n_slabs = 0;
  t->col0 = 0;
  t->n_at = width;
  if (row_parts(w, cols)) { /* equal parts of a row */
    int64_t parts = aci_conv_ceil(width, cols), part_width = aci_conv_ceil(width, parts),
            part = index % parts;
    t->col0 = part * part_width;
    n = t->n_at = aci_conv_min(part_width, width - t->col0);
    first = index / parts * width + t->col0;
  } else {
    first = index * cols;
    n = aci_conv_min(cols, w->n * w->positions - first);
  }
  t->n_cols = (int)n;
  if (w->direct) direct_runs(t, first, n);
  else staged_runs(t, first, n);
  cut_pieces(t, nr, panel_bytes);
}

int64_t aci_conv_stage_bytes(const aci_conv_walk *w, int64_t cols) {
  const aci_conv_axis *h = &w->a[1], *x = &w->a[2];
  if (w->direct) return 0;
  int64_t n_at = row_parts(w, cols) ? aci_conv_ceil(x->q, aci_conv_ceil(x->q, cols)) : x->q;
  int64_t rows = aci_conv_min(h->q, aci_conv_ceil(cols, n_at) + 1);
  int64_t slabs = rows < h->q ? 2 : aci_conv_ceil(cols, h->q * x->q) + 1;
  int64_t row_len = (n_at + (x->taps > 1 ? spread(x) / x->step : 0)) * residues(x);
  int64_t len = slabs * aci_conv_max(w->a[0].taps, 1) * staged(h, rows) * row_len;
  return (len * w->stage_bytes + 2 * ACI_CONV_SLACK + 63) / 64 * 64;
}

int64_t aci_conv_tap(const aci_conv_tile *t, int64_t tap) {
  const aci_conv_axis *a = t->w->a;
  if (t->w->direct) return 0;
  int64_t x = tap % a[2].taps, h = tap / a[2].taps % a[1].taps, d = tap / a[2].taps / a[1].taps;
  int64_t at = d * t->slice_len;
  if (a[1].taps > 1) at += (h * a[1].doff - t->low[1]) * t->row_len;
  if (a[2].taps > 1) {
    int64_t m = x * a[2].doff - t->low[2];
    at += m % a[2].step * t->rows * t->row_len + m / a[2].step;
  }
  return at * t->w->stage_bytes;
}

/* ---- copies, without calls for short ones ---- */
typedef char v64 __attribute__((vector_size(64), aligned(1), may_alias));
typedef char v16 __attribute__((vector_size(16), aligned(1), may_alias));
#define OPAQUE(i) __asm__("" : "+r"(i)) /* or the compiler makes a call of the loop */

/* n bytes in blocks of 64, of which the last may run over. */
static inline AC_INLINE void copy_over(char *restrict d, const char *restrict s, int64_t n) {
  for (int64_t i = 0; i < n; i += 64) {
    OPAQUE(i);
    *(v64 *)(void *)(d + i) = *(const v64 *)(const void *)(s + i);
  }
}
static inline AC_INLINE void zero_over(char *d, int64_t n) {
  for (int64_t i = 0; i < n; i += 64) {
    OPAQUE(i);
    *(v64 *)(void *)(d + i) = (v64){0};
  }
}
/* Exactly n bytes: blocks that overlap. */
static inline AC_INLINE void copy_exact(char *restrict d, const char *restrict s, int64_t n) {
  if (n >= 64) {
    copy_over(d, s, n - 63);
    *(v64 *)(void *)(d + n - 64) = *(const v64 *)(const void *)(s + n - 64);
  } else if (n >= 16) {
    for (int64_t i = 0; i + 16 < n; i += 16) {
      OPAQUE(i);
      *(v16 *)(void *)(d + i) = *(const v16 *)(const void *)(s + i);
    }
    *(v16 *)(void *)(d + n - 16) = *(const v16 *)(const void *)(s + n - 16);
  } else {
    for (int64_t i = 0; i < n; i += 2) {
      OPAQUE(i);
      memcpy(d + i, s + i, 2);
    }
  }
}

/* ---- stage ---- */
/* Sources of the values of one residue: values of [lo, hi) come from source positions x0 + i *
 * step, the others are 0. */
typedef struct phase {
  int64_t x0, lo, hi;
} phase;

static phase phase_of(const aci_conv_tile *t, int64_t i) {
  const aci_conv_axis *x = &t->w->a[2];
  const int64_t n = t->row_len, x0 = t->col0 * x->step + x->off + t->low[2] + i;
  phase p = {x0, 0, 0};
  if (x0 < 0) p.lo = aci_conv_min(aci_conv_ceil(-x0, x->step), n);
  if (x0 < x->src) p.hi = aci_conv_min((x->src - 1 - x0) / x->step + 1, n);
  if (p.lo > p.hi) p.lo = p.hi;
  return p;
}

#define SAME(x) (x)
#define NAME stage_raw16
#define S uint16_t
#define D uint16_t
#define PUT SAME
#define RAW true
#include "device/cpu/kernels/conv_stage.h"

#define NAME stage_f32
#define S float
#define D float
#define PUT SAME
#define RAW true
#include "device/cpu/kernels/conv_stage.h"

#define NAME stage_f64
#define S double
#define D double
#define PUT SAME
#define RAW true
#include "device/cpu/kernels/conv_stage.h"

#define NAME stage_bf16
#define S uint16_t
#define D float
#define PUT aci_bf16_to_f32
#define RAW false
#include "device/cpu/kernels/conv_stage.h"

#define NAME stage_f16
#define S uint16_t
#define D float
#define PUT aci_f16_to_f32
#define RAW false
#include "device/cpu/kernels/conv_stage.h"

static void stage_rows(const aci_conv_tile *t, const char *plane, int64_t first, int64_t by,
                       int64_t n_rows, const phase *p, char *d) {
  switch (t->w->type) {
    case ACI_GEMM_F64: stage_f64(t, plane, first, by, n_rows, p, d); break;
    case ACI_GEMM_F32: stage_f32(t, plane, first, by, n_rows, p, d); break;
    case ACI_GEMM_F16: stage_f16(t, plane, first, by, n_rows, p, d); break;
    default:
      if (t->w->stage_bytes == 2) stage_raw16(t, plane, first, by, n_rows, p, d);
      else stage_bf16(t, plane, first, by, n_rows, p, d);
  }
}

/* In the order of the stage's memory, since rows overrun into the next one. */
void aci_conv_stage(const aci_conv_tile *t, int64_t channel, char *stage) {
  const aci_conv_walk *w = t->w;
  const aci_conv_axis *a = w->a;
  const int64_t es = aci_gemm_type_bytes(w->type), slice = a[1].src * a[2].src,
                by = a[1].taps > 1 ? 1 : a[1].step;
  if (w->direct) return;
  for (int s = 0; s < t->n_slabs; s++) {
    const aci_conv_slab *slab = &t->slab[s];
    const int64_t first = slab->row * a[1].step + a[1].off + (a[1].taps > 1 ? t->low[1] : 0);
    const int64_t n_rows = staged(&a[1], slab->n_rows);
    for (int64_t k = 0; k < a[0].taps; k++) {
      const int64_t depth = slab->depth * a[0].step + a[0].off + k * a[0].doff;
      const bool inside = depth >= 0 && depth < a[0].src;
      const char *from =
          (const char *)w->src +
          ((slab->image * w->channels + channel) * a[0].src + (inside ? depth : 0)) * slice * es;
      char *d = stage + (s * t->slab_len + k * t->slice_len) * w->stage_bytes;
      for (int64_t i = 0; i < residues(&a[2]); i++, d += t->rows * t->row_len * w->stage_bytes) {
        const phase p = phase_of(t, i);
        stage_rows(t, from, inside ? first : -1, inside ? by : 0, n_rows, &p, d);
      }
    }
  }
}

/* ---- rows of the matrix ---- */
AC_ISA_FN(copy_pieces, (char *restrict dst, const char *stage, const aci_conv_piece *piece, int n),
          (dst, stage, piece, n)) {
  for (int i = 0; i < n; i++) {
    char *d = dst + piece[i].dst;
    const char *s = stage + piece[i].src;
    *(v64 *)(void *)d = *(const v64 *)(const void *)s;
    if (piece[i].bytes > 64) copy_over(d + 64, s + 64, piece[i].bytes - 64);
  }
}
AC_ISA_FN(copy_pieces_exact,
          (char *restrict dst, const char *stage, const aci_conv_piece *piece, int n),
          (dst, stage, piece, n)) {
  for (int i = 0; i < n; i++) copy_exact(dst + piece[i].dst, stage + piece[i].src, piece[i].bytes);
}

void aci_conv_row(const aci_conv_tile *t, const char *stage, int64_t channel, int64_t tap,
                  char *dst, int64_t k) {
  const int64_t es = t->w->stage_bytes;
  const aci_conv_piece *last = t->piece + t->n_whole;
  char *whole = dst + k * t->width * es;
  if (t->w->direct) {
    stage = (const char *)t->w->src + channel * t->w->positions * es;
    copy_pieces_exact(whole, stage, t->piece, t->n_whole);
  } else {
    stage += tap;
    copy_pieces(whole, stage, t->piece, t->n_whole);
  }
  if (t->n_pieces > t->n_whole)
    copy_pieces_exact(dst + k * t->tail * es, stage, last, t->n_pieces - t->n_whole);
}
