/* Tiles of Winograd's transforms: see conv_winograd.h. */
#include "device/cpu/kernels/conv_winograd.h"

#include <string.h>

#include "base/base_impl.h"
#include "device/cpu/onednn.h"

enum {
  MIN_CHANNELS = 32,
  MAX_CHANNELS = 2048,
  MAX_WEIGHTS = 1 << 20, /* of one tap: sixteen times as many floats stay in scratch */
  MIN_TILES = 128,
  MAX_WIDE = 512 /* wider, one row of tiles leaves the cache */
};
static const double MIN_FLOPS =
    100e6; /* of the plain sum. Below, the weights' transform costs more than it gains */

static bool is_on(void) {
  static _Atomic int on = -1;
  if (on < 0) on = aci_params_flag("ACCEL_WINOGRAD", true);
  return on;
}

bool aci_conv_wants_winograd(const aci_conv *c) {
  if (c->type != ACI_GEMM_F32 || c->groups != 1 || c->in[0] != 1 || c->k[0] != 1 ||
      c->out[0] != 1 || c->pad[0] != 0)
    return false;
  double flops = 2.0 * 9 * (double)c->n * (double)c->ci * (double)c->co, tiles = (double)c->n;
  for (int d = 1; d < ACI_CONV_DIMS; d++) {
    if (c->k[d] != 3 || c->stride[d] != 1 || c->dil[d] != 1 || c->pad[d] > 2) return false;
    if (c->out[d] < 1 || c->in[d] < 1 || c->out[d] != c->in[d] + 2 * c->pad[d] - 2) return false;
    flops *= (double)c->out[d];
    tiles *= (double)(c->out[d] + 1) / 2;
  }
  const int64_t wide = aci_conv_max(c->in[2], c->out[2]), chans = aci_conv_max(c->ci, c->co);
  return aci_conv_min(c->ci, c->co) >= MIN_CHANNELS && chans <= MAX_CHANNELS &&
         c->ci * c->co <= MAX_WEIGHTS && wide <= MAX_WIDE && tiles >= MIN_TILES &&
         flops >= MIN_FLOPS && aci_cpu_isa() != ACI_ISA_BASE && !aci_onednn_forced() && is_on();
}

void aci_wino_set(aci_wino *w, const aci_conv *c, bool backward) {
  w->n = c->n;
  w->chans = backward ? c->co : c->ci;
  for (int i = 0; i < 2; i++) {
    w->in[i] = backward ? c->out[i + 1] : c->in[i + 1];
    w->out[i] = backward ? c->in[i + 1] : c->out[i + 1];
    w->pad[i] = backward ? 2 - c->pad[i + 1] : c->pad[i + 1];
    w->tiles[i] = aci_conv_ceil(w->out[i], 2);
  }
}

void aci_wino_finish(aci_wino *w) {
  /* one row of tiles more per image and at the end, and the last tile's reads beyond */
  w->sequence =
      aci_wino_up16((w->block_rows + w->block_rows / w->tiles[0] + 3) * (w->tiles[1] + 1) + 4) + 16;
  w->spot =
      /* a power of two would put all spots into one set of L1 */
      aci_wino_up16(w->depth * w->cols) + 16;
}

int64_t aci_wino_size(const aci_wino *w) { return (4 + 8 + ACI_WINO_SPOTS) * w->sequence; }

void aci_wino_position(const aci_wino *w, float *p, aci_wino_work *s) {
  s->lines = p;
  s->across = s->lines + 4 * w->sequence;
  s->flat = s->across + 8 * w->sequence;
}

void aci_wino_open(const aci_wino *w, aci_wino_work *s) {
  memset(s->lines, 0, (size_t)(4 * w->sequence) * sizeof *s->lines);
}

/* The source rows of a block lie in one sequence per parity of their position in a tile: row of
 * tiles i reads its rows i and i + 1 of both. Between images one more row of tiles is counted, and
 * in each row one more tile, so that the distance between a tile's reads is constant. The results
 * of these extra tiles are not put into panels. */
static int64_t sequence_row(const aci_wino *w, int64_t g0, int64_t g) {
  return g - g0 + g / w->tiles[0] - g0 / w->tiles[0];
}

static inline AC_INLINE void copy_lines(const aci_wino *w, int64_t g0, int64_t g1, int64_t chan,
                                        aci_wino_work *s, int64_t width) {
  const int64_t length = 2 * (w->tiles[1] + 1);
  for (int64_t g = g0, m; g < g1; g += m) {
    const int64_t image = g / w->tiles[0], i0 = g - image * w->tiles[0];
    m = aci_conv_min(w->tiles[0] - i0, g1 - g);
    const int64_t h0 = 2 * i0 - w->pad[0], end = aci_conv_min(2 * m + 2, w->in[0] - h0);
    const float *plane = w->src + (image * w->chans + chan) * w->in[0] * width;
    float *to = s->lines + sequence_row(w, g0, g) * length + w->pad[1];
    for (int64_t r = aci_conv_max(-h0, 0); r < end; r++)
      memcpy(to + r % 2 * w->sequence * 2 + r / 2 * length, plane + (h0 + r) * width,
             (size_t)width * sizeof *to);
  }
}

/* One channel's source rows of the rows of tiles [g0, g1), counted over all images. The padding is
 * never written. */
AC_ISA_FN(take_lines, (const aci_wino *w, int64_t g0, int64_t g1, int64_t chan, aci_wino_work *s),
          (w, g0, g1, chan, s)) {
  const int64_t width = w->in[1];
  if (width == 32) copy_lines(w, g0, g1, chan, s, 32);
  else if (width == 16) copy_lines(w, g0, g1, chan, s, 16);
  else if (width == 8) copy_lines(w, g0, g1, chan, s, 8);
  else if (width == 4) copy_lines(w, g0, g1, chan, s, 4);
  else copy_lines(w, g0, g1, chan, s, width);
}

AC_ISA_FN(transform, (const aci_wino *w, int64_t n, aci_wino_work *s), (w, n, s)) {
  const int64_t down = w->tiles[1] + 1, size = w->sequence;
  for (int odd = 0; odd < 2; odd++) {
    const float *x = s->lines + odd * size * 2;
    float *z = s->across + odd * 4 * size;
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n + down; i++) {
      z[i] = x[2 * i] - x[2 * i + 2];
      z[size + i] = x[2 * i + 1] + x[2 * i + 2];
      z[2 * size + i] = x[2 * i + 2] - x[2 * i + 1];
      z[3 * size + i] = x[2 * i + 1] - x[2 * i + 3];
    }
  }
  for (int k = 0; k < 4; k++) {
    const float *even = s->across + k * size, *odd = even + 4 * size;
    float *y = s->flat + k * size;
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {
      y[i] = even[i] - even[i + down];
      y[4 * size + i] = odd[i] + even[i + down];
      y[8 * size + i] = even[i + down] - odd[i];
      y[12 * size + i] = odd[i] - odd[i + down];
    }
  }
}

static inline AC_INLINE void lay_rows(const aci_wino *w, int64_t g0, int64_t g1, int64_t row,
                                      const aci_wino_work *s, int64_t tw, bool fits) {
  const int64_t wide = w->panel;
  for (int64_t g = g0; g < g1; g++) {
    const float *from = s->flat + sequence_row(w, g0, g) * (tw + 1);
    for (int64_t at = (g - g0) * tw, left = tw, n; left > 0; at += n, from += n, left -= n) {
      const int64_t first = at / wide * wide, width = aci_conv_min(wide, w->cols - first);
      float *to = s->panels + first * w->depth + row * width + at - first;
      n = fits ? tw : aci_conv_min(left, width - (at - first));
      for (int k = 0; k < ACI_WINO_SPOTS; k++)
        memcpy(to + k * w->spot, from + k * w->sequence, (size_t)n * sizeof *to);
    }
  }
}

/* s->flat as row `row` of the panels. */
AC_ISA_FN(lay, (const aci_wino *w, int64_t g0, int64_t g1, int64_t row, const aci_wino_work *s),
          (w, g0, g1, row, s)) {
  const int64_t tw = w->tiles[1];
  if (w->panel % tw != 0) lay_rows(w, g0, g1, row, s, tw, false);
  else if (tw == 16) lay_rows(w, g0, g1, row, s, 16, true);
  else if (tw == 8) lay_rows(w, g0, g1, row, s, 8, true);
  else if (tw == 4) lay_rows(w, g0, g1, row, s, 4, true);
  else if (tw == 2) lay_rows(w, g0, g1, row, s, 2, true);
  else lay_rows(w, g0, g1, row, s, tw, true);
}

void aci_wino_take(const aci_wino *w, int64_t g0, int64_t g1, int64_t chan, int64_t row,
                   aci_wino_work *s) {
  take_lines(w, g0, g1, chan, s);
  transform(w, (sequence_row(w, g0, g1 - 1) + 1) * (w->tiles[1] + 1), s);
  lay(w, g0, g1, row, s);
}
