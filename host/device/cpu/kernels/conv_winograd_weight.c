/* Gradients of 3 x 3 taps with stride 1 in f32 as the adjoint of Winograd's F(2 x 2, 3 x 3): with V
 * the transformed source tiles of conv_winograd_tile.c and M = A dy A' of result tiles, dU[spot] =
 * the sum over tiles of M[spot] by V[spot], and dw = G' dU G. Called by conv_weight.c.
 *
 * The tiles are taken in chunks that the caches hold. Of a chunk, first all channels are
 * transformed and laid into panels with the tiles downwards, then the products of all spots are
 * added to dU: bits depend on the shape alone. */
#include <stdatomic.h>
#include <string.h>

#include "device/cpu/kernels/conv_winograd.h"

enum {
  SPOTS = ACI_WINO_SPOTS,
  BLOCK_TILES = 128, /* or one row of tiles */
  LEAST_TILES = 64,  /* of a chunk */
  MOST_TILES = 512,
  CHUNK_BYTES = 4 << 20
};

typedef struct winograd_weight_job {
  aci_wino t;
  const float *dy; /* (n, rows, out) */
  float *dw;       /* (rows, chans, 9) */
  int64_t rows, chans;
  const aci_gemm_kernel *kn;
  int64_t n_source, n_result; /* panels of channels */
  int64_t blocks, tiles;      /* of a chunk, at most */
  float *source, *result;     /* (spot, panel, tile, channel) of a chunk */
  float *du;                  /* (spot, n_result * mr, ld) */
  int64_t ld;
  int64_t g0, g1; /* the chunk's rows of tiles */
  _Atomic bool oom;
} winograd_weight_job;

typedef struct work {
  aci_wino_work t;
  float *quad; /* (2, 2, cols): dy by row and column in the tile */
} work;

static int64_t lanes(const winograd_weight_job *j) { return aci_conv_max(j->kn->mr, j->kn->nr); }

static bool work_get(const winograd_weight_job *j, work *s) {
  const int64_t panels = aci_wino_up16(SPOTS * j->t.spot), quad = aci_wino_up16(4 * j->t.cols);
  float *p =
      aci_scratch(ACI_SCRATCH_TILE, (size_t)(panels + quad + aci_wino_size(&j->t)) * sizeof *p);
  if (p == NULL) return false;
  s->t.panels = p;
  s->quad = p + panels;
  aci_wino_position(&j->t, s->quad + quad, &s->t);
  return true;
}

/* M of result channel `chan` of the rows of tiles [g0, g1), as row `row` of the panels. */
AC_ISA_FN(spread,
          (const winograd_weight_job *j, int64_t g0, int64_t g1, int64_t chan, int64_t row,
           work *s),
          (j, g0, g1, chan, row, s)) {
  const aci_wino *t = &j->t;
  const int64_t tw = t->tiles[1], n = (g1 - g0) * tw;
  float *a = s->quad, *b = a + t->cols, *c = b + t->cols, *d = c + t->cols;
  for (int64_t g = g0; g < g1; g++) {
    const int64_t i = g % t->tiles[0] * 2, at = (g - g0) * tw;
    const float *dy = j->dy + ((g / t->tiles[0] * j->rows + chan) * t->out[0] + i) * t->out[1];
    for (int r = 0; r < 2; r++, dy += t->out[1]) {
      float *even = (r == 0 ? a : c) + at, *odd = (r == 0 ? b : d) + at;
      if (i + r >= t->out[0]) {
        for (int64_t k = 0; k < tw; k++) even[k] = odd[k] = 0;
        continue;
      }
      _Pragma("GCC ivdep") for (int64_t k = 0; k < t->out[1] / 2; k++) {
        even[k] = dy[2 * k];
        odd[k] = dy[2 * k + 1];
      }
      if (t->out[1] % 2 == 1) {
        even[tw - 1] = dy[t->out[1] - 1];
        odd[tw - 1] = 0;
      }
    }
  }
  float *y = s->t.panels + row * t->cols;
  const int64_t spot = t->spot;
  _Pragma("GCC ivdep") for (int64_t k = 0; k < n; k++) {
    const float p[4] = {a[k], a[k] + c[k], a[k] - c[k], -c[k]},
                q[4] = {b[k], b[k] + d[k], b[k] - d[k], -d[k]};
    for (int i = 0; i < 4; i++) {
      y[(4 * i + 0) * spot + k] = p[i];
      y[(4 * i + 1) * spot + k] = p[i] + q[i];
      y[(4 * i + 2) * spot + k] = p[i] - q[i];
      y[(4 * i + 3) * spot + k] = -q[i];
    }
  }
}

/* Rows of tiles of the chunk's block b. */
static void block_range(const winograd_weight_job *j, int64_t b, int64_t *g0, int64_t *g1) {
  *g0 = j->g0 + b * j->t.block_rows;
  *g1 = aci_conv_min(*g0 + j->t.block_rows, j->g1);
}

/* Task: a panel of channels of a block. */
static void transform_piece(void *arg, int64_t begin, int64_t end) {
  winograd_weight_job *j = arg;
  const aci_gemm_kernel *kn = j->kn;
  work s;
  if (!work_get(j, &s)) {
    j->oom = true;
    return;
  }
  for (int64_t i = begin; i < end; i++) {
    const int64_t panels = j->n_source + j->n_result, b = i / panels, p = i % panels;
    const bool source = p < j->n_source;
    const int64_t at = source ? p : p - j->n_source, lane = source ? kn->nr : kn->mr;
    const int64_t n = aci_conv_min(lane, (source ? j->chans : j->rows) - at * lane);
    const int64_t width = source && n <= lane / 2 ? lane / 2 : lane;
    int64_t g0, g1;
    block_range(j, b, &g0, &g1);
    aci_wino_open(&j->t, &s.t);
    for (int64_t c = 0; c < n; c++) {
      if (source) aci_wino_take(&j->t, g0, g1, at * lane + c, c, &s.t);
      else spread(j, g0, g1, at * lane + c, c, &s);
    }
    float *to = source ? j->source + at * j->tiles * lane : j->result + at * j->tiles * lane;
    const int64_t spot = (source ? j->n_source : j->n_result) * j->tiles * lane;
    for (int k = 0; k < SPOTS; k++)
      aci_gemm_pack(kn, ACI_GEMM_F32, to + k * spot + b * j->t.cols * width, (int)width, false, n,
                    (g1 - g0) * j->t.tiles[1], s.t.panels + k * j->t.spot, j->t.cols, 1);
  }
}

/* Task: a panel of result channels at a spot. */
static void multiply_piece(void *arg, int64_t begin, int64_t end) {
  const winograd_weight_job *j = arg;
  const aci_gemm_kernel *kn = j->kn;
  const int64_t n_tiles = (j->g1 - j->g0) * j->t.tiles[1];
  for (int64_t i = begin; i < end; i++) {
    const int64_t k = i / j->n_result, r0 = i % j->n_result * kn->mr;
    const float *a = j->result + i * j->tiles * kn->mr,
                *b = j->source + k * j->n_source * j->tiles * kn->nr;
    float *du = j->du + (k * j->n_result * kn->mr + r0) * j->ld;
    for (int64_t c = 0; c < j->ld; c += kn->nr)
      kn->run(aci_gemm_rows(kn, (int)aci_conv_min(kn->mr, j->rows - r0)),
              (int)aci_conv_min(kn->nr, j->ld - c), n_tiles, a, b + c * j->tiles, du + c, j->ld,
              j->g0 > 0);
  }
}

/* dw of result channel r. */
AC_ISA_FN(gather, (const winograd_weight_job *j, int64_t r), (j, r)) {
  enum { W = 16 };
  const int64_t spot = j->n_result * j->kn->mr * j->ld;
  for (int64_t c = 0; c < j->chans; c += W) {
    const float *u = j->du + r * j->ld + c;
    const int64_t n = aci_conv_min(W, j->chans - c);
    float h[3][4][W], g[9][W];
    for (int k = 0; k < 4; k++)
      for (int64_t i = 0; i < n; i++) {
        const float a = u[(4 + k) * spot + i] * 0.5F, b = u[(8 + k) * spot + i] * 0.5F;
        h[0][k][i] = u[k * spot + i] + (a + b);
        h[1][k][i] = a - b;
        h[2][k][i] = a + b + u[(12 + k) * spot + i];
      }
    for (int k = 0; k < 3; k++)
      for (int64_t i = 0; i < n; i++) {
        const float a = h[k][1][i] * 0.5F, b = h[k][2][i] * 0.5F;
        g[3 * k][i] = h[k][0][i] + (a + b);
        g[3 * k + 1][i] = a - b;
        g[3 * k + 2][i] = a + b + h[k][3][i];
      }
    float *dw = j->dw + (r * j->chans + c) * 9;
    for (int64_t i = 0; i < n; i++)
      for (int k = 0; k < 9; k++) dw[i * 9 + k] = g[k][i];
  }
}

static void gather_piece(void *arg, int64_t begin, int64_t end) {
  const winograd_weight_job *j = arg;
  for (int64_t r = begin; r < end; r++) gather(j, r);
}

ac_status aci_conv_winograd_weight(ac_team *team, const aci_conv *c, const void *dy, const void *x,
                                   void *dw, ac_err *e) {
  winograd_weight_job j = {.t = {.src = x},
                           .dy = dy,
                           .dw = dw,
                           .rows = c->co,
                           .chans = c->ci,
                           .kn = aci_gemm_kernel_for(ACI_GEMM_F32),
                           .oom = false};
  aci_wino_set(&j.t, c, false);
  const int64_t tw = j.t.tiles[1], all = j.t.n * j.t.tiles[0], nr = j.kn->nr, mr = j.kn->mr;
  const int64_t fit = CHUNK_BYTES / (SPOTS * (int64_t)sizeof(float)) / (c->ci + c->co);
  const int64_t want = aci_conv_min(aci_conv_max(fit, LEAST_TILES), MOST_TILES);
  j.t.block_rows = aci_conv_min(aci_conv_max(aci_conv_min(want, BLOCK_TILES) / tw, 1), all);
  j.t.cols = j.t.panel = j.t.block_rows * tw;
  j.t.depth = lanes(&j);
  aci_wino_finish(&j.t);
  j.blocks = aci_conv_max(want / j.t.cols, 1);
  j.tiles = j.blocks * j.t.cols;
  j.n_source = aci_conv_ceil(c->ci, nr);
  j.n_result = aci_conv_ceil(c->co, mr);
  j.ld = aci_conv_ceil(c->ci, nr / 2) * (nr / 2);
  const int64_t source = j.n_source * nr * j.tiles, result = j.n_result * mr * j.tiles,
                du = j.n_result * mr * j.ld;
  const size_t bytes = (size_t)(SPOTS * (source + result + du)) * sizeof(float);
  j.source = aci_scratch(ACI_SCRATCH_SHARED, bytes);
  if (j.source == NULL)
    return AC_FAIL(e, OOM, "out of memory for %zu bytes of transformed tiles", bytes);
  j.result = j.source + SPOTS * source;
  j.du = j.result + SPOTS * result;
  for (j.g0 = 0; j.g0 < all && !j.oom; j.g0 = j.g1) {
    j.g1 = aci_conv_min(j.g0 + j.blocks * j.t.block_rows, all);
    const int64_t blocks = aci_conv_ceil(j.g1 - j.g0, j.t.block_rows);
    ac_parallel_for(team, blocks * (j.n_source + j.n_result), 1, transform_piece, &j);
    ac_parallel_for(team, SPOTS * j.n_result, 1, multiply_piece, &j);
  }
  if (j.oom) return AC_FAIL(e, OOM, "out of memory for the tiles of a convolution");
  ac_parallel_for(team, j.rows, 1, gather_piece, &j);
  return AC_OK;
}
