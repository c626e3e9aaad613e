/* Products of a walk with weights by packed panels: weights (result channels x K) times columns (K
 * x positions), K running over source channels and taps. Columns are packed straight from the stage
 * of a channel (conv_tile.c). Two plans. Usually tiles pack their own columns, one block of K at a
 * time. If the result channels are cut as well, because they are many or tiles are few, the columns
 * of some tiles are packed first, for all. Called by conv.c. */
#include <string.h>

#include "base/vmath.h"
#include "device/cpu/isa.h"
#include "device/cpu/kernels/conv_impl.h"

enum {
  KC_BYTES = 1536,        /* of one packed row of a block of K */
  ROWS = 280,             /* result channels of a task at most */
  SUMS_BYTES = 256 << 10, /* of a task: with its columns they stay in L2 */
  SHARED_BYTES = 8 << 20, /* of columns that are packed for all */
  MANY_TASKS = 40,
  STRIP = 32, /* rows of K that are interleaved at a time if the micro-kernel takes pairs */
};
static const double TASK_FLOPS = 4e5; /* worth handing out */

static int64_t block_len(const aci_conv_product *p, int64_t kb) {
  return aci_conv_min(p->kc, p->depth - kb * p->kc);
}
static int64_t chunk_rows(const aci_conv_product *p, int64_t rc) {
  return aci_conv_min(p->rm, p->rows - rc * p->rm);
}

/* ---- weights ---- */
/* Panels of mr rows whose taps lie in another order than the kernel's: row i, channel c, tap t from
 * w[i * p->w_row + c * p->w_chan + at[t]], K from k0 to k1. Reads run along the kernel, whose rows
 * are neighbours.
 */
#define TURN(NAME, S, D, GET)                                                           \
  AC_ISA_FN(NAME,                                                                       \
            (const aci_conv_product *p, const int64_t *at, const char *w, int64_t rows, \
             int64_t k0, int64_t k1, D *d),                                             \
            (p, at, w, rows, k0, k1, d)) {                                              \
    const int64_t taps = p->w.taps, mr = p->kn->mr;                                     \
    for (int64_t first = 0; first < rows; first += mr, d += mr * (k1 - k0)) {           \
      const int64_t n = rows - first < mr ? rows - first : mr;                          \
      const S *from = (const S *)(const void *)w + first * p->w_row;                    \
      for (int64_t k = k0; k < k1;) {                                                   \
        const S *chan = from + k / taps * p->w_chan;                                    \
        for (int64_t t = k % taps; t < taps && k < k1; t++, k++) {                      \
          const S *s = chan + at[t];                                                    \
          D *o = d + (k - k0) * mr;                                                     \
          for (int64_t i = 0; i < n; i++) o[i] = GET(s[i * p->w_row]);                  \
          for (int64_t i = n; i < mr; i++) o[i] = 0;                                    \
        }                                                                               \
      }                                                                                 \
    }                                                                                   \
  }
#define SAME(x) (x)
TURN(turn_f64, double, double, SAME)
TURN(turn_f32, float, float, SAME)
TURN(turn_bf16, uint16_t, float, aci_bf16_to_f32)
TURN(turn_f16, uint16_t, float, aci_f16_to_f32)

/* The same for micro-kernels that take pairs: rows are copied out first. */
static void turn_pairs(const aci_conv_product *p, const int64_t *at, const char *w, int64_t rows,
                       int64_t k0, int64_t k1, char *d, uint16_t *tmp) {
  const int64_t taps = p->w.taps, mr = p->kn->mr, kc = k1 - k0,
                kp = aci_conv_ceil(kc, p->kn->pair) * p->kn->pair;
  for (int64_t first = 0; first < rows; first += mr) {
    const int64_t n = aci_conv_min(mr, rows - first);
    const uint16_t *from = (const uint16_t *)(const void *)w + first * p->w_row;
    for (int64_t k = k0; k < k1;) {
      const uint16_t *chan = from + k / taps * p->w_chan;
      for (int64_t t = k % taps; t < taps && k < k1; t++, k++)
        for (int64_t i = 0; i < n; i++) tmp[i * kc + k - k0] = chan[at[t] + i * p->w_row];
    }
    aci_gemm_pack(p->kn, p->w.type, d + first * kp * p->kn->bytes, (int)mr, false, n, kc, tmp, kc,
                  1);
  }
}

/* Do all taps of the kernel follow each other as the walk takes them? */
static bool natural(const aci_conv_product *p) {
  bool all = p->w_chan == aci_conv_size(p->k);
  for (int d = 0; d < ACI_CONV_DIMS; d++) {
    const aci_conv_axis *a = &p->w.a[d];
    all = all && a->tap0 == 0 && a->dtap == 1 && a->taps == p->k[d];
  }
  return all;
}

static void pack_piece(void *arg, int64_t begin, int64_t end) {
  aci_conv_product *p = arg;
  const int64_t es = aci_gemm_type_bytes(p->w.type), mr = p->kn->mr, taps = p->w.taps;
  const bool whole = natural(p);
  int64_t *at = aci_scratch(ACI_SCRATCH_TILE, (size_t)(taps * 8 + mr * p->kc * 2));
  if (at == NULL) {
    p->oom = true;
    return;
  }
  for (int64_t t = 0; t < taps; t++) at[t] = aci_conv_kernel_tap(p, t);
  for (int64_t b = begin; b < end; b++) {
    const int64_t kb = b % p->n_kb, rc = b / p->n_kb % p->n_rc, g = b / p->n_kb / p->n_rc;
    const int64_t k0 = kb * p->kc, kc = block_len(p, kb), rows = chunk_rows(p, rc);
    const char *w = (const char *)p->weight + (g * p->w_group + rc * p->rm * p->w_row) * es;
    void *d = p->packed + b * p->packed_bytes;
    if (whole)
      aci_gemm_pack(p->kn, p->w.type, d, (int)mr, false, rows, kc, w + k0 * es, p->w_row, 1);
    else if (taps == 1)
      aci_gemm_pack(p->kn, p->w.type, d, (int)mr, false, rows, kc,
                    w + (k0 * p->w_chan + at[0]) * es, p->w_row, p->w_chan);
    else if (p->kn->pair > 1) turn_pairs(p, at, w, rows, k0, k0 + kc, d, (uint16_t *)(at + taps));
    else if (p->w.type == ACI_GEMM_F64) turn_f64(p, at, w, rows, k0, k0 + kc, d);
    else if (p->w.type == ACI_GEMM_F32) turn_f32(p, at, w, rows, k0, k0 + kc, d);
    else if (p->w.type == ACI_GEMM_BF16) turn_bf16(p, at, w, rows, k0, k0 + kc, d);
    else turn_f16(p, at, w, rows, k0, k0 + kc, d);
  }
}

/* ---- columns ---- */
typedef struct space {
  char *stage, *rows, *panels, *acc;
  int64_t *tap;  /* offsets in the stage */
  int64_t pitch; /* of rows, in bytes */
  int64_t ldt;   /* columns of acc */
} space;

static bool space_get(const aci_conv_product *p, space *s) {
  const aci_gemm_kernel *kn = p->kn;
  const int64_t n_panels = aci_conv_ceil(p->cols, kn->nr),
                rows = aci_conv_ceil(p->rm, kn->mr) * kn->mr;
  s->pitch = aci_gemm_lines(p->cols * p->w.stage_bytes) + ACI_CONV_SLACK;
  s->ldt = n_panels * kn->nr;
  int64_t acc = rows * s->ldt * aci_gemm_type_bytes(p->acc),
          panels = p->columns == NULL ? p->block_bytes : 0;
  int64_t strip = kn->pair > 1 ? STRIP * s->pitch : 0, stage = aci_conv_stage_bytes(&p->w, p->cols);
  s->acc = aci_scratch(ACI_SCRATCH_TILE, (size_t)(acc + panels + strip + stage + p->w.taps * 8));
  if (s->acc == NULL) return false;
  s->panels = s->acc + acc;
  s->rows = s->panels + panels;
  s->stage = s->rows + strip;
  s->tap = (int64_t *)(void *)(s->stage + stage);
  return true;
}

/* Rows k0.. of a strip that was laid out one row after another, as panels of pairs. */
static void interleave(const aci_conv_product *p, const aci_conv_tile *t, const space *s,
                       int64_t k0, int64_t n) {
  const aci_gemm_kernel *kn = p->kn;
  for (int64_t j = 0; j < t->n_panels; j++) {
    const int64_t cols = aci_conv_min(kn->nr, t->n_cols - j * kn->nr),
                  width = cols <= kn->nr / 2 ? kn->nr / 2 : kn->nr;
    aci_gemm_pack(kn, p->w.type, s->panels + j * p->panel_bytes + k0 * width * kn->bytes,
                  (int)width, false, cols, n, s->rows + j * kn->nr * kn->bytes, 1,
                  s->pitch / kn->bytes);
  }
}

/* Block kb of the columns, in panels. */
static void pack_columns(const aci_conv_product *p, const aci_conv_tile *t, const space *s,
                         int64_t g, int64_t kb) {
  const int64_t k0 = kb * p->kc, kc = block_len(p, kb), taps = p->w.taps;
  const bool pairs = p->kn->pair > 1;
  int64_t c = k0 / taps, tap = k0 % taps;
  if (!pairs && t->n_cols % t->width != 0)
    memset(s->panels + (t->n_panels - 1) * p->panel_bytes, 0,
           (size_t)(kc * t->tail * p->kn->bytes));
  for (int64_t k = 0; k < kc; k++) {
    const int64_t channel = g * p->chans + c;
    if (k == 0 || tap == 0) aci_conv_stage(t, channel, s->stage);
    if (!pairs) {
      aci_conv_row(t, s->stage, channel, s->tap[tap], s->panels, k);
    } else {
      aci_conv_row(t, s->stage, channel, s->tap[tap], s->rows + k % STRIP * s->pitch, 0);
      if (k % STRIP == STRIP - 1 || k == kc - 1)
        interleave(p, t, s, k / STRIP * STRIP, k % STRIP + 1);
    }
    if (++tap == taps) {
      tap = 0;
      c++;
    }
  }
}

/* ---- tasks ---- */
static void multiply(const aci_conv_product *p, const aci_conv_tile *t, const space *s,
                     const char *panels, const char *a, int64_t rows, int64_t kc, bool add) {
  const aci_gemm_kernel *kn = p->kn;
  const int64_t steps = aci_conv_ceil(kc, kn->pair), kp = steps * kn->pair,
                ab = aci_gemm_type_bytes(p->acc);
  for (int64_t j = 0; j < t->n_panels; j++) {
    const int width = j == t->n_panels - 1 ? t->tail : kn->nr;
    for (int64_t i = 0; i < rows; i += kn->mr)
      kn->run(aci_gemm_rows(kn, (int)aci_conv_min(kn->mr, rows - i)), width, steps,
              a + i * kp * kn->bytes, panels + j * p->panel_bytes,
              s->acc + (i * s->ldt + j * kn->nr) * ab, s->ldt, add);
  }
}

static void tile_make(const aci_conv_product *p, int64_t tile, aci_conv_tile *t, space *s) {
  const bool pairs = p->kn->pair > 1;
  aci_conv_tile_make(&p->w, p->cols, tile / p->groups, pairs ? 0 : p->kn->nr, p->panel_bytes, t);
  if (pairs) aci_conv_tile_panels(t, p->kn->nr);
  for (int64_t i = 0; i < p->w.taps; i++) s->tap[i] = aci_conv_tap(t, i);
}

static void columns_piece(void *arg, int64_t begin, int64_t end) {
  aci_conv_product *p = arg;
  aci_conv_tile t;
  space s;
  int64_t made = -1;
  if (!space_get(p, &s)) {
    p->oom = true;
    return;
  }
  for (int64_t i = begin; i < end; i++) {
    const int64_t tile = p->first + i / p->n_kb;
    if (tile != made) tile_make(p, tile, &t, &s);
    made = tile;
    s.panels = p->columns + i * p->block_bytes;
    pack_columns(p, &t, &s, tile % p->groups, i % p->n_kb);
  }
}

static void task_piece(void *arg, int64_t begin, int64_t end) {
  aci_conv_product *p = arg;
  aci_conv_tile t;
  space s;
  if (!space_get(p, &s)) {
    p->oom = true;
    return;
  }
  for (int64_t task = begin; task < end; task++) {
    const int64_t rc = task % p->n_rc, i = task / p->n_rc, g = (p->first + i) % p->groups,
                  rows = chunk_rows(p, rc);
    const char *a = p->packed + (g * p->n_rc + rc) * p->n_kb * p->packed_bytes;
    tile_make(p, p->first + i, &t, &s);
    if (p->depth == 0) memset(s.acc, 0, (size_t)(rows * s.ldt * aci_gemm_type_bytes(p->acc)));
    for (int64_t kb = 0; kb < p->n_kb; kb++) {
      if (p->columns == NULL) pack_columns(p, &t, &s, g, kb);
      multiply(p, &t, &s,
               p->columns == NULL ? s.panels : p->columns + (i * p->n_kb + kb) * p->block_bytes,
               a + kb * p->packed_bytes, rows, block_len(p, kb), kb > 0);
    }
    aci_conv_store(p, &t, g, rc * p->rm, rows, s.acc, s.ldt);
  }
}

/* Rows and columns of a task, by shape alone: sums of SUMS_BYTES, less if that leaves few tasks. */
static void cut(aci_conv_product *p) {
  const int64_t mr = p->kn->mr, nr = p->kn->nr, total = p->w.n * p->w.positions;
  int64_t rows = ROWS, least = 2 * nr < 64 ? 64 : 2 * nr;
  p->n_rc = aci_conv_ceil(p->rows, rows);
  p->cols = SUMS_BYTES / aci_gemm_type_bytes(p->acc) / aci_conv_ceil(p->rows, p->n_rc) / nr * nr;
  p->cols = aci_conv_min(aci_conv_max(p->cols, least), ACI_CONV_COLS);
  for (;;) {
    p->n_rc = aci_conv_ceil(p->rows, rows);
    p->rm = aci_conv_ceil(aci_conv_ceil(p->rows, p->n_rc), mr) * mr;
    p->n_rc = aci_conv_ceil(p->rows, p->rm);
    p->n_tiles = aci_conv_tiles(&p->w, p->cols);
    double flops = 2.0 * (double)p->rm * (double)p->cols * (double)p->depth;
    if (p->n_tiles * p->groups * p->n_rc >= MANY_TASKS || flops < 8 * TASK_FLOPS) break;
    if (p->cols / 2 >= least) p->cols = p->cols / 2 / nr * nr;
    else if (rows > 8 * mr && p->rows > 8 * mr) rows /= 2;
    else break;
  }
  if (p->w.a[2].q <= p->cols) { /* equal tiles, but of whole half panels */
    int64_t even = aci_conv_ceil(aci_conv_ceil(total, p->n_tiles), nr / 2) * (nr / 2);
    if (even < p->cols) p->cols = even;
    p->n_tiles = aci_conv_tiles(&p->w, p->cols);
  }
}

ac_status aci_conv_run_blocked(ac_team *team, aci_conv_product *p, ac_err *e) {
  aci_conv_walk_finish(&p->w, aci_conv_staged_type(p->w.type));
  p->kn = aci_gemm_kernel_for(p->w.type);
  p->acc = p->w.type == ACI_GEMM_F64 ? ACI_GEMM_F64 : ACI_GEMM_F32;
  p->depth = p->chans * p->w.taps;
  p->oom = false;
  if (p->groups * p->rows == 0 || p->w.n * p->w.positions == 0) return AC_OK;
  const int64_t most = KC_BYTES / p->kn->bytes;
  p->n_kb = aci_conv_ceil(p->depth, most);
  p->kc = p->n_kb == 0 ? 0 : (aci_conv_ceil(p->depth, p->n_kb) + 7) / 8 * 8;
  if (p->n_kb > 0) p->n_kb = aci_conv_ceil(p->depth, p->kc);
  cut(p);
  p->panel_bytes =
      aci_gemm_lines((p->kc + p->kn->pair) * p->kn->nr * p->kn->bytes + ACI_CONV_SLACK);
  p->block_bytes = aci_conv_ceil(p->cols, p->kn->nr) * p->panel_bytes;
  p->packed_bytes = aci_gemm_lines(aci_gemm_packed_bytes(p->kn, p->rm, p->kn->mr, p->kc) + 64);
  const int64_t blocks = p->groups * p->n_rc * p->n_kb, tiles = p->n_tiles * p->groups;
  const int64_t weights = blocks * p->packed_bytes + 64, tile_bytes = p->n_kb * p->block_bytes;
  int64_t at_once = tiles;
  if (p->n_rc > 1 && tile_bytes > 0)
    at_once = aci_conv_min(tiles, aci_conv_max(SHARED_BYTES / tile_bytes, 1));
  p->packed =
      aci_scratch(ACI_SCRATCH_SHARED, (size_t)(weights + (p->n_rc > 1 ? at_once * tile_bytes : 0)));
  if (p->packed == NULL)
    return AC_FAIL(e, OOM, "out of memory for %lld bytes of packed weights", (long long)weights);
  if (p->n_rc > 1) p->columns = p->packed + aci_gemm_lines(weights - 63);
  int64_t work = p->rm * (p->kc + 1);
  ac_parallel_for(team, blocks, work >= 1 << 15 ? 1 : (1 << 15) / work, pack_piece, p);
  double flops = 2.0 * (double)p->rm * (double)p->cols * (double)(p->depth + 1);
  const int64_t grain = flops >= TASK_FLOPS ? 1 : (int64_t)(TASK_FLOPS / flops);
  for (p->first = 0; p->first < tiles && !p->oom; p->first += at_once) {
    const int64_t n = aci_conv_min(at_once, tiles - p->first);
    if (p->columns != NULL) ac_parallel_for(team, n * p->n_kb, 1, columns_piece, p);
    ac_parallel_for(team, n * p->n_rc, grain, task_piece, p);
  }
  if (p->oom) return AC_FAIL(e, OOM, "out of memory for the tiles of a convolution");
  return AC_OK;
}
