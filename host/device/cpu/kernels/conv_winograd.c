/* Convolutions of 3 x 3 taps with stride 1 in f32 by Winograd's minimal filtering F(2 x 2, 3 x 3):
 * 16 multiplications for the 36 of four results (Lavin and Gray, "Fast Algorithms for Convolutional
 * Neural Networks", 2015, section 4.1). Called by conv.c.
 *
 * A result tile of 2 x 2 is A' [(G g G') . (B' d B)] A of its 4 x 4 source tile d and the taps g.
 * The sums over channels are, for each of the 16 positions, one product of (result channel,
 * channel) and (channel, tile). A task is a block of whole rows of tiles, possibly of several
 * images: its tiles are transformed channel by channel into panels, multiplied by the weights'
 * panels, and transformed back while the products are in cache. Blocks follow from the shape alone.
 * The transforms of tiles only add, and the transforms of weights halve. For values of similar size
 * the errors equal those of a plain sum, but they are relative to the largest value of a tile.
 * Infinities, and sums of four that overflow, become NaN in the whole tile. */
#include <stdatomic.h>
#include <string.h>

#include "device/cpu/kernels/conv_winograd.h"

enum {
  SPOTS = ACI_WINO_SPOTS,
  MOST_TILES = 256, /* of a block of rows that are not wider */
  PANELS_BYTES = 512 << 10
};

typedef struct winograd_job {
  aci_wino t;
  const float *weight, *bias;
  float *dst;
  int64_t rows;          /* result channels */
  int64_t w_row, w_chan; /* of the weights, in values */
  bool flipped;          /* taps in descending order */
  const aci_gemm_kernel *kn;
  float *u; /* the weights' panels: (rows / mr, spot, chans, mr) */
  _Atomic bool oom;
} winograd_job;

typedef struct work {
  aci_wino_work t;
  float *products; /* (spot, mr, cols) */
  float *results;  /* (2, 2, cols): of one channel, by row and column in the tile */
} work;

/* ---- weights ---- */
AC_ISA_FN(weights, (const winograd_job *j, int64_t panel, float *u), (j, panel, u)) {
  enum { W = 16 }; /* at least mr */
  const int64_t mr = j->kn->mr, r0 = panel * mr, n = aci_conv_min(mr, j->rows - r0);
  float t[9][W], h[4][3][W];
  memset(t, 0, sizeof t);
  for (int64_t c = 0; c < j->t.chans; c++) {
    for (int64_t r = 0; r < n; r++) {
      const float *g = j->weight + (r0 + r) * j->w_row + c * j->w_chan;
      for (int i = 0; i < 9; i++) t[i][r] = g[j->flipped ? 8 - i : i];
    }
    for (int k = 0; k < 3; k++)
      for (int r = 0; r < W; r++) {
        h[0][k][r] = t[k][r];
        h[1][k][r] = (t[k][r] + t[3 + k][r] + t[6 + k][r]) * 0.5F;
        h[2][k][r] = (t[k][r] - t[3 + k][r] + t[6 + k][r]) * 0.5F;
        h[3][k][r] = t[6 + k][r];
      }
    for (int i = 0; i < 4; i++) {
      float v[4][W];
      for (int r = 0; r < W; r++) {
        v[0][r] = h[i][0][r];
        v[1][r] = (h[i][0][r] + h[i][1][r] + h[i][2][r]) * 0.5F;
        v[2][r] = (h[i][0][r] - h[i][1][r] + h[i][2][r]) * 0.5F;
        v[3][r] = h[i][2][r];
      }
      for (int k = 0; k < 4; k++)
        memcpy(u + ((i * 4 + k) * j->t.chans + c) * mr, v[k], (size_t)mr * sizeof(float));
    }
  }
}

static void weights_piece(void *arg, int64_t begin, int64_t end) {
  const winograd_job *j = arg;
  for (int64_t p = begin; p < end; p++) weights(j, p, j->u + p * SPOTS * j->t.chans * j->kn->mr);
}

/* ---- results ---- */

/* Result channel `row` from its products m. */
AC_ISA_FN(result,
          (const winograd_job *j, int64_t g0, int64_t g1, int64_t row, const float *m, work *s),
          (j, g0, g1, row, m, s)) {
  const int64_t tw = j->t.tiles[1], spot = j->kn->mr * j->t.cols;
  const float bias = j->bias == NULL ? 0 : j->bias[row];
  float *restrict y00 = s->results, *restrict y01 = y00 + j->t.cols;
  float *restrict y10 = y01 + j->t.cols, *restrict y11 = y10 + j->t.cols;
  _Pragma("GCC ivdep") for (int64_t i = 0; i < j->t.cols; i++) {
    float a[4], b[4];
    for (int k = 0; k < 4; k++) {
      const float m0 = m[k * spot + i], m1 = m[(4 + k) * spot + i], m2 = m[(8 + k) * spot + i],
                  m3 = m[(12 + k) * spot + i];
      a[k] = m0 + m1 + m2;
      b[k] = m1 - m2 - m3;
    }
    y00[i] = a[0] + a[1] + a[2] + bias;
    y01[i] = a[1] - a[2] - a[3] + bias;
    y10[i] = b[0] + b[1] + b[2] + bias;
    y11[i] = b[1] - b[2] - b[3] + bias;
  }
  for (int64_t g = g0; g < g1; g++) {
    const int64_t i = g % j->t.tiles[0], at = (g - g0) * tw;
    float *to = j->dst + ((g / j->t.tiles[0] * j->rows + row) * j->t.out[0] + 2 * i) * j->t.out[1];
    for (int a = 0; a < 2 && 2 * i + a < j->t.out[0]; a++, to += j->t.out[1]) {
      const float *restrict even = s->results + 2 * a * j->t.cols + at, *restrict odd =
                                                                            even + j->t.cols;
      float *restrict y = to;
      for (int64_t k = 0; k < j->t.out[1] / 2; k++) {
        y[2 * k] = even[k];
        y[2 * k + 1] = odd[k];
      }
      if (j->t.out[1] % 2 == 1) y[j->t.out[1] - 1] = even[tw - 1];
    }
  }
}

/* ---- blocks ---- */
static bool work_get(const winograd_job *j, work *s) {
  const int64_t panels = aci_wino_up16(SPOTS * j->t.spot),
                products = aci_wino_up16(SPOTS * j->kn->mr * j->t.cols);
  float *p =
      aci_scratch(ACI_SCRATCH_TILE,
                  (size_t)(panels + products + 4 * j->t.cols + aci_wino_size(&j->t)) * sizeof *p);
  if (p == NULL) return false;
  s->t.panels = p;
  s->products = s->t.panels + panels;
  s->results = s->products + products;
  aci_wino_position(&j->t, s->results + 4 * j->t.cols, &s->t);
  return true;
}

static void block(const winograd_job *j, int64_t g0, int64_t g1, work *s) {
  const aci_gemm_kernel *kn = j->kn;
  const int64_t chans = j->t.chans, cols = j->t.cols;
  aci_wino_open(&j->t, &s->t);
  for (int64_t c = 0; c < chans; c++) aci_wino_take(&j->t, g0, g1, c, c, &s->t);
  for (int64_t r0 = 0; r0 < j->rows; r0 += kn->mr) {
    const int64_t rows = aci_conv_min(kn->mr, j->rows - r0);
    const float *u = j->u + r0 * SPOTS * chans;
    for (int k = 0; k < SPOTS; k++, u += chans * kn->mr)
      for (int64_t c = 0; c < cols; c += kn->nr)
        kn->run(aci_gemm_rows(kn, (int)rows), (int)aci_conv_min(kn->nr, cols - c), chans, u,
                s->t.panels + k * j->t.spot + c * chans, s->products + k * kn->mr * cols + c, cols,
                false);
    for (int64_t r = 0; r < rows; r++) result(j, g0, g1, r0 + r, s->products + r * cols, s);
  }
}

static void blocks_piece(void *arg, int64_t begin, int64_t end) {
  winograd_job *j = arg;
  const int64_t all = j->t.n * j->t.tiles[0];
  work s;
  if (!work_get(j, &s)) {
    j->oom = true;
    return;
  }
  for (int64_t b = begin; b < end; b++)
    block(j, b * j->t.block_rows, aci_conv_min((b + 1) * j->t.block_rows, all), &s);
}

/* Rows of tiles in a block, by shape alone: as many as keep a block's panels in cache. Of the upper
 * half of these counts, the one that leaves the fewest columns empty. */
static void cut(winograd_job *j) {
  aci_wino *t = &j->t;
  const int64_t unit = j->kn->nr / 2, tw = t->tiles[1];
  const int64_t fit = PANELS_BYTES / (SPOTS * (int64_t)sizeof(float)) / t->chans;
  const int64_t tiles = aci_conv_min(aci_conv_max(fit, 2 * unit), MOST_TILES);
  const int64_t most = aci_conv_min(aci_conv_max(tiles / tw, 1), t->n * t->tiles[0]);
  double best = 0;
  for (int64_t r = most; 2 * r > most; r--) {
    const int64_t cols = aci_conv_ceil(r * tw, unit) * unit;
    const double filled = (double)(r * tw) / (double)cols;
    if (filled <= best * 1.001) continue;
    best = filled;
    t->block_rows = r;
    t->cols = cols;
  }
  t->panel = j->kn->nr;
  t->depth = t->chans;
  aci_wino_finish(t);
}

ac_status aci_conv_run_winograd(ac_team *team, const aci_conv *c, bool backward, const void *src,
                                const void *weight, const void *bias, void *dst, ac_err *e) {
  winograd_job j = {.t = {.src = src},
                    .weight = weight,
                    .bias = bias,
                    .dst = dst,
                    .rows = backward ? c->ci : c->co,
                    .w_row = backward ? 9 : c->ci * 9,
                    .w_chan = backward ? c->ci * 9 : 9,
                    .flipped = backward,
                    .kn = aci_gemm_kernel_for(ACI_GEMM_F32),
                    .oom = false};
  aci_wino_set(&j.t, c, backward);
  cut(&j);
  const int64_t panels = aci_conv_ceil(j.rows, j.kn->mr),
                count = panels * SPOTS * j.t.chans * j.kn->mr;
  j.u = aci_scratch(ACI_SCRATCH_SHARED, (size_t)count * sizeof *j.u);
  if (j.u == NULL)
    return AC_FAIL(e, OOM, "out of memory for %lld bytes of transformed weights",
                   (long long)count * 4);
  ac_parallel_for(team, panels, 1, weights_piece, &j);
  ac_parallel_for(team, aci_conv_ceil(j.t.n * j.t.tiles[0], j.t.block_rows), 1, blocks_piece, &j);
  if (j.oom) return AC_FAIL(e, OOM, "out of memory for the tiles of a convolution");
  return AC_OK;
}
