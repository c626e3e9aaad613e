/* The gradient of a convolution's weights: dw (result channels x source channels and taps) = dy
 * (result channels x positions) times the transposed columns of x. K runs over the positions of the
 * whole batch, a tile at a time. If weights are few, the tiles are cut into parts with sums of
 * their own, which are added up in order. Two plans. Usually columns are laid out one after another
 * and transposed. If a micro-kernel's width of source channels has several taps, these channels are
 * transposed as they are staged, and each tap then reads one run of memory along a row of
 * positions. Called by host/ops/conv. */
#include <stdatomic.h>
#include <string.h>

#include "base/vmath.h"
#include "device/cpu/isa.h"
#include "device/cpu/kernels/conv_impl.h"

enum {
  ROWS = 252,
  COLS = 288, /* source channels and taps of a task */
  MANY_TASKS = 40,
  MAX_PARTS = 64,
};
/* flops that make a part of the tiles worth its own sums */
static const double PART_FLOPS = 2e6;
static const int64_t PARTS_BYTES = 64 << 20;   /* of all of them */
static const int64_t TURNED_BYTES = 512 << 10; /* of staged channels that are transposed together */

typedef struct conv_weight_job {
  aci_conv_walk w;
  const aci_gemm_kernel *kn;
  aci_gemm_type acc, staged;
  /* result and source channels per group. columns = chans * taps */
  int64_t groups, rows, chans, depth;
  const void *dy;
  void *dw;
  bool turned;       /* channels are transposed in the stage */
  int64_t tap_chunk; /* taps of a task then, and such chunks. Its columns are (tap, channel) */
  int64_t n_tc;
  int64_t positions; /* of a tile */
  int64_t n_tiles, rm, n_rc, cm, n_cc, n_parts, per_part;
  char *parts; /* sums, one set of weights per part. NULL: straight into dw */
  _Atomic bool oom;
} conv_weight_job;

#define STORE(NAME, T, ACC, PUT)                                                  \
  AC_ISA_FN(NAME, (T *restrict d, const ACC *restrict s, int64_t n), (d, s, n)) { \
    for (int64_t i = 0; i < n; i++) d[i] = PUT(s[i]);                             \
  }
STORE(store_bf16, uint16_t, float, aci_f32_to_bf16)
STORE(store_f16, uint16_t, float, aci_f32_to_f16)

static void store(aci_gemm_type t, void *dw, int64_t at, const char *s, int64_t n) {
  const int64_t es = aci_gemm_type_bytes(t);
  char *d = (char *)dw + at * es;
  if (t == ACI_GEMM_BF16) store_bf16((uint16_t *)(void *)d, (const float *)(const void *)s, n);
  else if (t == ACI_GEMM_F16) store_f16((uint16_t *)(void *)d, (const float *)(const void *)s, n);
  else memcpy(d, s, (size_t)(n * es));
}

typedef struct space {
  char *stage, *rows, *a, *panel, *acc, *turned;
  int64_t *tap; /* offsets in the stage */
  int64_t pitch, ldt, stage_bytes;
} space;

static bool space_get(const conv_weight_job *j, space *s) {
  const aci_gemm_kernel *kn = j->kn;
  const int64_t es = aci_gemm_type_bytes(j->w.type), wide = aci_conv_max(es, j->w.stage_bytes);
  const int64_t mr = kn->mr, most = aci_conv_max(kn->nr, aci_conv_ceil(j->rm, mr) * mr);
  s->pitch = aci_gemm_lines(j->positions * wide) + ACI_CONV_SLACK;
  s->ldt = aci_conv_ceil(j->cm, kn->nr) * kn->nr;
  const int64_t one = aci_conv_stage_bytes(&j->w, j->positions), lanes = j->turned ? kn->nr : 0;
  int64_t stage = one * aci_conv_max(lanes, 1), rows = most * s->pitch,
          turned = aci_gemm_lines(one * lanes) + 64 * lanes;
  int64_t a = aci_gemm_lines(aci_gemm_packed_bytes(kn, j->rm, mr, j->positions) + 64);
  int64_t panel = aci_gemm_lines(aci_gemm_packed_bytes(kn, kn->nr, kn->nr, j->positions) + 64);
  int64_t acc = aci_conv_ceil(j->rm, mr) * mr * s->ldt * aci_gemm_type_bytes(j->acc);
  s->acc = aci_scratch(ACI_SCRATCH_TILE,
                       (size_t)(acc + a + panel + rows + stage + turned + j->w.taps * 8));
  if (s->acc == NULL) return false;
  s->a = s->acc + acc;
  s->panel = s->a + a;
  s->rows = s->panel + panel;
  s->stage = s->rows + rows;
  s->turned = s->stage + stage;
  s->tap = (int64_t *)(void *)(s->turned + turned);
  s->stage_bytes = one;
  return true;
}

/* Rows of dy over the positions of a tile. */
static void pack_rows(const conv_weight_job *j, const aci_conv_tile *t, const space *s,
                      int64_t channel, int64_t rows) {
  const int64_t es = aci_gemm_type_bytes(j->w.type), channels = j->groups * j->rows,
                positions = j->w.positions;
  const aci_conv_run *first = &t->run[0], *last = &t->run[t->n_runs - 1];
  if (first->image == last->image) {
    aci_gemm_pack(j->kn, j->w.type, s->a, j->kn->mr, false, rows, t->n_cols,
                  (const char *)j->dy +
                      ((first->image * channels + channel) * positions + first->position) * es,
                  positions, 1);
    return;
  }
  for (int64_t r = 0; r < rows; r++)
    for (int i = 0; i < t->n_runs;) {
      const aci_conv_run *run = &t->run[i++];
      int64_t n = run->len;
      while (i < t->n_runs && t->run[i].image == run->image) n += t->run[i++].len;
      memcpy(s->rows + r * s->pitch + run->col * es,
             (const char *)j->dy +
                 ((run->image * channels + channel + r) * positions + run->position) * es,
             (size_t)(n * es));
    }
  aci_gemm_pack(j->kn, j->w.type, s->a, j->kn->mr, false, rows, t->n_cols, s->rows, s->pitch / es,
                1);
}

static void tile_product(const conv_weight_job *j, const aci_conv_tile *t, const space *s,
                         int64_t g, int64_t r0, int64_t rows, int64_t c0, int64_t cols, bool add) {
  const aci_gemm_kernel *kn = j->kn;
  const int64_t steps = aci_conv_ceil(t->n_cols, kn->pair), kp = steps * kn->pair, taps = j->w.taps;
  const int64_t ab = aci_gemm_type_bytes(j->acc);
  int64_t staged = -1;
  pack_rows(j, t, s, g * j->rows + r0, rows);
  for (int64_t col = 0; col < cols; col += kn->nr) {
    const int64_t n = aci_conv_min(kn->nr, cols - col);
    for (int64_t i = 0; i < n; i++) {
      const int64_t c = (c0 + col + i) / taps;
      if (c != staged) aci_conv_stage(t, g * j->chans + c, s->stage);
      staged = c;
      aci_conv_row(t, s->stage, g * j->chans + c, s->tap[(c0 + col + i) % taps],
                   s->rows + i * s->pitch, 0);
    }
    aci_gemm_pack(kn, j->staged, s->panel, kn->nr, false, n, t->n_cols, s->rows,
                  s->pitch / j->w.stage_bytes, 1);
    for (int64_t i = 0; i < rows; i += kn->mr)
      kn->run(aci_gemm_rows(kn, (int)aci_conv_min(kn->mr, rows - i)), kn->nr, steps,
              s->a + i * kp * kn->bytes, s->panel, s->acc + (i * s->ldt + col) * ab, s->ldt, add);
  }
}

/* Channels c0.. (n of them, at most a panel) and taps t0..: the panel of a tap is copied out of the
   transposed stage. */
static void tile_product_turned(const conv_weight_job *j, const aci_conv_tile *t, const space *s,
                                int64_t g, int64_t r0, int64_t rows, int64_t c0, int64_t n,
                                int64_t t0, int64_t taps, bool add) {
  const aci_gemm_kernel *kn = j->kn;
  const int64_t es = j->w.stage_bytes, width = n <= kn->nr / 2 ? kn->nr / 2 : kn->nr,
                len = t->n_slabs * t->slab_len;
  pack_rows(j, t, s, g * j->rows + r0, rows);
  for (int64_t i = 0; i < n; i++)
    aci_conv_stage(t, g * j->chans + c0 + i, s->stage + i * s->stage_bytes);
  aci_gemm_pack(kn, j->staged, s->turned, (int)width, false, n, len, s->stage, s->stage_bytes / es,
                1);
  for (int64_t k = 0; k < taps; k++) {
    for (int i = 0; i < t->n_runs; i++)
      memcpy(s->panel + t->run[i].col * width * es,
             s->turned + (t->run[i].stage * es + s->tap[t0 + k]) * width,
             (size_t)(t->run[i].len * width * es));
    for (int64_t i = 0; i < rows; i += kn->mr)
      kn->run(aci_gemm_rows(kn, (int)aci_conv_min(kn->mr, rows - i)), (int)width, t->n_cols,
              s->a + i * t->n_cols * es, s->panel, s->acc + (i * s->ldt + k * kn->nr) * es, s->ldt,
              add);
  }
}

/* Sums of one row in the order of the weights: columns (tap, channel) to (channel, tap). */
static void store_turned(const conv_weight_job *j, char *to, const char *sums, int64_t n,
                         int64_t taps) {
  const int64_t all = j->w.taps, nr = j->kn->nr;
  for (int64_t c = 0; c < n; c++)
    for (int64_t k = 0; k < taps; k++) {
      if (j->acc == ACI_GEMM_F64)
        ((double *)(void *)to)[c * all + k] = ((const double *)(const void *)sums)[k * nr + c];
      else ((float *)(void *)to)[c * all + k] = ((const float *)(const void *)sums)[k * nr + c];
    }
}

static void task_piece(void *arg, int64_t begin, int64_t end) {
  conv_weight_job *j = arg;
  const int64_t ab = aci_gemm_type_bytes(j->acc);
  aci_conv_tile t;
  space s;
  for (int64_t task = begin; task < end; task++) {
    const int64_t cc = task % j->n_cc, rc = task / j->n_cc % j->n_rc,
                  g = task / j->n_cc / j->n_rc % j->groups;
    const int64_t part = task / j->n_cc / j->n_rc / j->groups;
    const int64_t r0 = rc * j->rm, rows = aci_conv_min(j->rm, j->rows - r0);
    const int64_t first = part * j->per_part, last = aci_conv_min(first + j->per_part, j->n_tiles);
    /* columns, or channels and taps */
    const int64_t c0 = j->turned ? cc / j->n_tc * j->kn->nr : cc * j->cm;
    const int64_t cols =
        aci_conv_min(j->turned ? j->kn->nr : j->cm, (j->turned ? j->chans : j->depth) - c0);
    const int64_t t0 = j->turned ? cc % j->n_tc * j->tap_chunk : 0,
                  taps = aci_conv_min(j->tap_chunk, j->w.taps - t0);
    if (!space_get(j, &s)) {
      j->oom = true;
      return;
    }
    for (int64_t i = first; i < last; i++) {
      aci_conv_tile_make(&j->w, j->positions, i, 0, 0, &t);
      for (int64_t k = 0; k < j->w.taps; k++) s.tap[k] = aci_conv_tap(&t, k);
      if (j->turned) tile_product_turned(j, &t, &s, g, r0, rows, c0, cols, t0, taps, i > first);
      else tile_product(j, &t, &s, g, r0, rows, c0, cols, i > first);
    }
    for (int64_t r = 0; r < rows; r++) {
      const int64_t at = (g * j->rows + r0 + r) * j->depth + (j->turned ? c0 * j->w.taps + t0 : c0);
      const char *sums = s.acc + r * s.ldt * ab;
      char *to =
          j->parts == NULL ? NULL : j->parts + (part * j->groups * j->rows * j->depth + at) * ab;
      if (j->turned) store_turned(j, to, sums, cols, taps);
      else if (to == NULL) store(j->w.type, j->dw, at, sums, cols);
      else memcpy(to, sums, (size_t)(cols * ab));
    }
  }
}

/* ---- parts ---- */
#define ADD(NAME, T)                                                            \
  AC_ISA_FN(NAME, (T *restrict d, const T *restrict s, int64_t n), (d, s, n)) { \
    for (int64_t i = 0; i < n; i++) d[i] += s[i];                               \
  }
ADD(add_f32, float)
ADD(add_f64, double)

typedef struct parts {
  char *sums;
  int64_t n, all, bytes; /* parts, weights of each, bytes of a sum */
  aci_gemm_type type;
  void *dw;
} parts;
enum { SUM_PIECE = 4096 };

static void sum_piece(void *arg, int64_t begin, int64_t end) {
  const parts *p = arg;
  for (int64_t i = begin; i < end; i++) {
    const int64_t at = i * SUM_PIECE, n = aci_conv_min(SUM_PIECE, p->all - at);
    char *first = p->sums + at * p->bytes;
    for (int64_t k = 1; k < p->n; k++) {
      const char *next = first + k * p->all * p->bytes;
      if (p->bytes == 4) add_f32((float *)(void *)first, (const float *)(const void *)next, n);
      else add_f64((double *)(void *)first, (const double *)(const void *)next, n);
    }
    if (p->dw != p->sums) store(p->type, p->dw, at, first, n);
  }
}

void aci_conv_sum_parts(ac_team *team, void *sums, int64_t n_parts, int64_t all, aci_gemm_type type,
                        void *dw) {
  parts p = {sums, n_parts, all, type == ACI_GEMM_F64 ? 8 : 4, type, dw};
  ac_parallel_for(team, aci_conv_ceil(all, SUM_PIECE), 1, sum_piece, &p);
}

/* The cut into tasks, from the shape and the kernel alone: n_rc blocks of rm rows times n_cc blocks
 * of cm columns of the weights. If these are few, the tiles of positions are cut into n_parts parts
 * as well, each with sums of its own. turned: channels are the columns of a panel and a task has
 * tap_chunk taps of it. */
static void cut(conv_weight_job *j) {
  const int64_t mr = j->kn->mr, nr = j->kn->nr, ab = aci_gemm_type_bytes(j->acc);
  j->positions = j->w.n * j->w.positions < ACI_CONV_COLS ? j->w.n * j->w.positions : ACI_CONV_COLS;
  j->n_tiles = aci_conv_tiles(&j->w, j->positions);
  j->n_rc = aci_conv_ceil(j->rows, ROWS);
  j->rm = aci_conv_ceil(aci_conv_ceil(j->rows, j->n_rc), mr) * mr;
  j->n_rc = aci_conv_ceil(j->rows, j->rm);
  j->turned = j->kn->pair == 1 && j->w.taps > 1 &&
              5 * j->chans >= 4 * aci_conv_ceil(j->chans, nr) * nr &&
              aci_conv_stage_bytes(&j->w, j->positions) * nr <= TURNED_BYTES;
  if (j->turned) {
    j->tap_chunk = aci_conv_max(COLS / nr, 1);
    j->n_tc = aci_conv_ceil(j->w.taps, j->tap_chunk);
    j->tap_chunk = aci_conv_ceil(j->w.taps, j->n_tc);
    j->n_tc = aci_conv_ceil(j->w.taps, j->tap_chunk);
    j->cm = j->tap_chunk * nr;
    j->n_cc = aci_conv_ceil(j->chans, nr) * j->n_tc;
  } else {
    j->n_cc = aci_conv_ceil(j->depth, COLS);
    j->cm = aci_conv_ceil(aci_conv_ceil(j->depth, j->n_cc), nr) * nr;
    j->n_cc = aci_conv_ceil(j->depth, j->cm);
  }
  const int64_t tasks = j->groups * j->n_rc * j->n_cc, all = j->groups * j->rows * j->depth;
  double flops = 2.0 * (double)all * (double)(j->w.n * j->w.positions);
  j->n_parts = aci_conv_ceil(MANY_TASKS, tasks);
  j->n_parts = aci_conv_min(j->n_parts, (int64_t)(flops / (double)tasks / PART_FLOPS));
  j->n_parts = aci_conv_min(aci_conv_min(j->n_parts, MAX_PARTS), PARTS_BYTES / (all * ab));
  j->n_parts = aci_conv_max(aci_conv_min(j->n_parts, j->n_tiles), 1);
  j->per_part = aci_conv_ceil(j->n_tiles, j->n_parts);
  j->n_parts = aci_conv_ceil(j->n_tiles, j->per_part);
}

/* dw (groups, co, ci, taps) from dy (n, groups * co, out...) and x (n, groups * ci, in...), all
 * contiguous. Tries the special ways first: f32 copies of 16-bit floats, Winograd, oneDNN, few
 * result channels. Partial sums lie in the calling thread's scratch. */
ac_status aci_conv_backward_weight(ac_team *team, const aci_conv *c, const void *dy, const void *x,
                                   void *dw, ac_err *e) {
  conv_weight_job j = {.w = {.type = c->type, .n = c->n, .channels = c->groups * c->ci, .src = x},
                       .kn = aci_gemm_kernel_for(c->type),
                       .acc = c->type == ACI_GEMM_F64 ? ACI_GEMM_F64 : ACI_GEMM_F32,
                       .staged = aci_conv_staged_type(c->type),
                       .groups = c->groups,
                       .rows = c->co,
                       .chans = c->ci,
                       .dy = dy,
                       .dw = dw};
  for (int d = 0; d < ACI_CONV_DIMS; d++)
    j.w.a[d] = (aci_conv_axis){.src = c->in[d],
                               .q = c->out[d],
                               .taps = c->k[d],
                               .step = c->stride[d],
                               .off = -c->pad[d],
                               .doff = c->dil[d],
                               .dtap = 1,
                               .dst = c->out[d],
                               .by = 1};
  aci_conv_walk_finish(&j.w, j.staged);
  j.depth = j.chans * j.w.taps;
  const int64_t all = j.groups * j.rows * j.depth, ab = aci_gemm_type_bytes(j.acc);
  if (all == 0) return AC_OK;
  if (j.w.n * j.w.positions == 0) {
    memset(dw, 0, (size_t)(all * aci_gemm_type_bytes(c->type)));
    return AC_OK;
  }
  if (aci_conv_wants_upcast(c)) return aci_conv_upcast_weight(team, c, dy, x, dw, e);
  if (aci_conv_wants_winograd(c)) return aci_conv_winograd_weight(team, c, dy, x, dw, e);
  if (aci_conv_onednn_weight(team, c, dy, x, dw)) return AC_OK;
  if (j.rows <= ACI_CONV_DIRECT)
    return aci_conv_weight_direct(team, &j.w, j.groups, j.rows, j.chans, dy, dw, e);
  cut(&j);
  const bool sums = j.n_parts > 1 || (j.turned && ab != aci_gemm_type_bytes(c->type));
  if (j.turned && !sums) j.parts = dw;
  if (sums) {
    j.parts = aci_scratch(ACI_SCRATCH_SHARED, (size_t)(j.n_parts * all * ab));
    if (j.parts == NULL)
      return AC_FAIL(e, OOM, "out of memory for %lld partial sums of %lld weights",
                     (long long)j.n_parts, (long long)all);
  }
  double flops = 2.0 * (double)j.rm * (double)j.cm * (double)(j.w.n * j.w.positions);
  ac_parallel_for(team, j.groups * j.n_rc * j.n_cc * j.n_parts,
                  flops >= 4e5 ? 1 : (int64_t)(4e5 / flops), task_piece, &j);
  if (j.oom) return AC_FAIL(e, OOM, "out of memory for the tiles of a convolution");
  if (sums) aci_conv_sum_parts(team, j.parts, j.n_parts, all, c->type, dw);
  return AC_OK;
}
