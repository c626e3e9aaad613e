/* Convolutions with one or few result channels per group, mostly depthwise ones. Packing columns
 * would cost more than it gains, so staged rows (conv_tile.c) are multiplied and added in place.
 * Sums are f32, or f64 for f64. bf16 and f16 are widened in the stage. Called by conv.c and
 * conv_weight.c. */
#include <string.h>

#include "base/vmath.h"
#include "device/cpu/isa.h"
#include "device/cpu/kernels/conv_impl.h"

enum {
  LANES_BYTES = 64, /* of the sums of a dot product that run side by side */
  MANY_TASKS = 40,
  TILE_POSITIONS = 16384,
  FEW_POSITIONS = 1024,   /* images smaller than that share a tile */
  TABLE_BYTES = 64 << 10, /* of such sums per task */
};
static const double TASK_FLOPS = 8e5; /* worth handing out */

/* Vectors of the compiler. Values after a run are read and masked away. */
#define VECTORS(T, I, V, U, M)                                         \
  typedef T V __attribute__((vector_size(64)));                        \
  typedef T U __attribute__((vector_size(64), aligned(2), may_alias)); \
  typedef I M __attribute__((vector_size(64)));                        \
  typedef I M##u __attribute__((vector_size(64), aligned(4), may_alias));
VECTORS(float, int32_t, v_f32, u_f32, m_f32)
VECTORS(double, int64_t, v_f64, u_f64, m_f64)
static const int64_t masks[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
/* The first n of a vector's bytes, n from 0 to 64. */
#define MASK(M, n) (*(const M##u *)(const void *)((const char *)masks + 64 - (n)))
#define AT(U, p, i) (*(const U *)(const void *)((p) + (i)))

/* sums[col] += (first: =) w[t] * the value that tap t reads at col, for all taps. first: values
 * written beyond a run belong to a later run, which overwrites them. N vectors at a time, m bytes
 * of them are the run's. */
#define ADD_VECTORS(V, U, M, N)                                                                   \
  {                                                                                               \
    V v[N];                                                                                       \
    _Pragma("GCC unroll 4") for (int k = 0; k < N; k++) v[k] = AT(U, at + tap[0], 64 * k) * w[0]; \
    for (int64_t t = 1; t < taps; t++) {                                                          \
      _Pragma("GCC unroll 4") for (int k = 0; k < N; k++) v[k] +=                                 \
          AT(U, at + tap[t], 64 * k) * w[t];                                                      \
    }                                                                                             \
    _Pragma("GCC unroll 4") for (int k = 0; k < N; k++) {                                         \
      U *to = (U *)(void *)(a + 64 * k);                                                          \
      int64_t m = n - 64 * k >= 64 ? 64 : n - 64 * k;                                             \
      if (!first) v[k] = *to + (V)((M)v[k] & MASK(M, m));                                         \
      *to = v[k];                                                                                 \
    }                                                                                             \
    at += 64 * N;                                                                                 \
    a += 64 * N;                                                                                  \
    n -= 64 * N;                                                                                  \
  }
#define ADD_TAPS(NAME, T, V, U, M)                                                      \
  AC_ISA_FN(NAME,                                                                       \
            (T * sums, const char *stage, const int64_t *tap, int64_t taps, const T *w, \
             const aci_conv_run *run, int n_runs, bool first),                          \
            (sums, stage, tap, taps, w, run, n_runs, first)) {                          \
    for (int j = 0; j < n_runs; j++) {                                                  \
      char *a = (char *)(sums + run[j].col);                                            \
      const char *at = stage + run[j].stage * (int64_t)sizeof(T);                       \
      int64_t n = run[j].len * (int64_t)sizeof(T);                                      \
      while (n > 192) ADD_VECTORS(V, U, M, 4)                                           \
      if (n > 128) ADD_VECTORS(V, U, M, 3)                                              \
      else if (n > 64) ADD_VECTORS(V, U, M, 2)                                          \
      else if (n > 0) ADD_VECTORS(V, U, M, 1)                                           \
    }                                                                                   \
  }
ADD_TAPS(add_taps_f32, float, v_f32, u_f32, m_f32)
ADD_TAPS(add_taps_f64, double, v_f64, u_f64, m_f64)

/* lanes[t] += dy[col] * the value that tap t reads at col. One vector of sums per tap. N taps at a
 * time. */
#define DOT_VECTORS(V, U, M, N)                                                                 \
  {                                                                                             \
    V v[N];                                                                                     \
    _Pragma("GCC unroll 4") for (int k = 0; k < N; k++) v[k] = AT(U, lanes, 64 * k);            \
    for (int j = 0; j < n_runs; j++) {                                                          \
      const char *d = dy + run[j].col * es, *s = stage + run[j].stage * es;                     \
      int64_t i = 0, n = run[j].len * es;                                                       \
      for (; i + 64 <= n; i += 64) {                                                            \
        V x = AT(U, d, i);                                                                      \
        _Pragma("GCC unroll 4") for (int k = 0; k < N; k++) v[k] += x * AT(U, s + tap[k], i);   \
      }                                                                                         \
      if (i < n) {                                                                              \
        const M m = MASK(M, n - i);                                                             \
        V x = (V)((M)AT(U, d, i) & m);                                                          \
        _Pragma("GCC unroll 4") for (int k = 0; k < N; k++) v[k] +=                             \
            x * (V)((M)AT(U, s + tap[k], i) & m);                                               \
      }                                                                                         \
    }                                                                                           \
    _Pragma("GCC unroll 4") for (int k = 0; k < N; k++) * (U *)(void *)(lanes + 64 * k) = v[k]; \
    lanes += 64 * N;                                                                            \
    tap += N;                                                                                   \
    taps -= N;                                                                                  \
  }
#define DOT_TAPS(NAME, T, V, U, M)                                                             \
  AC_ISA_FN(NAME,                                                                              \
            (char *lanes, const char *stage, const int64_t *tap, int64_t taps, const char *dy, \
             const aci_conv_run *run, int n_runs),                                             \
            (lanes, stage, tap, taps, dy, run, n_runs)) {                                      \
    const int64_t es = (int64_t)sizeof(T);                                                     \
    while (taps >= 4) DOT_VECTORS(V, U, M, 4)                                                  \
    if (taps == 3) DOT_VECTORS(V, U, M, 3)                                                     \
    else if (taps == 2) DOT_VECTORS(V, U, M, 2)                                                \
    else if (taps == 1) DOT_VECTORS(V, U, M, 1)                                                \
  }
DOT_TAPS(dot_taps_f32, float, v_f32, u_f32, m_f32)
DOT_TAPS(dot_taps_f64, double, v_f64, u_f64, m_f64)

/* Positions of a tile: whole images if they fit, since neighbouring channels then follow each other
 * in memory. */
static int64_t tile_cols(const aci_conv_walk *w) {
  const int64_t width = w->a[2].q, height = w->a[0].q * w->a[1].q;
  /* a tile has so many runs at most */
  const int64_t rows = aci_conv_min(ACI_CONV_COLS, TILE_POSITIONS / width);
  if (rows >= height)
    return w->positions *
           aci_conv_max(aci_conv_min(rows / height, FEW_POSITIONS / w->positions), 1);
  return rows > 1 ? (rows - 1) * width : TILE_POSITIONS;
}

/* ---- products ---- */
typedef struct thin {
  aci_conv_product *p;
  int64_t per_task, n_chunks; /* groups of a task, and such chunks */
} thin;

static void product_piece(void *arg, int64_t begin, int64_t end) {
  const thin *j = arg;
  aci_conv_product *p = j->p;
  const int64_t es = p->w.stage_bytes, taps = p->w.taps,
                ldt = aci_gemm_lines(p->cols * es + 64) / es;
  const int64_t stage_bytes = aci_conv_stage_bytes(&p->w, p->cols);
  char *sums = aci_scratch(ACI_SCRATCH_TILE, (size_t)(p->rows * ldt * es + stage_bytes + taps * 8));
  if (sums == NULL) {
    p->oom = true;
    return;
  }
  char *stage = sums + p->rows * ldt * es;
  int64_t *tap = (int64_t *)(void *)(stage + stage_bytes);
  aci_conv_tile t;
  for (int64_t task = begin; task < end; task++) {
    const int64_t g0 = task % j->n_chunks * j->per_task,
                  g1 = aci_conv_min(g0 + j->per_task, p->groups);
    aci_conv_tile_make(&p->w, p->cols, task / j->n_chunks, 0, 0, &t);
    for (int64_t i = 0; i < taps; i++) tap[i] = aci_conv_tap(&t, i);
    for (int64_t g = g0; g < g1; g++) {
      const bool one = p->depth == taps;
      if (!one || p->depth == 0) memset(sums, 0, (size_t)(p->rows * ldt * es));
      for (int64_t c = 0; c < p->chans && taps > 0; c++) {
        const int64_t channel = g * p->chans + c;
        aci_conv_stage(&t, channel, stage);
        for (int64_t r = 0; r < p->rows; r++) {
          const char *w = p->packed + ((g * p->rows + r) * p->depth + c * taps) * es;
          char *to = sums + r * ldt * es;
          if (es == 8)
            add_taps_f64((double *)(void *)to, stage, tap, taps, (const double *)(const void *)w,
                         t.run, t.n_runs, one);
          else
            add_taps_f32((float *)(void *)to, stage, tap, taps, (const float *)(const void *)w,
                         t.run, t.n_runs, one);
        }
      }
      aci_conv_store(p, &t, g, 0, p->rows, sums, ldt);
    }
  }
}

ac_status aci_conv_run_direct(ac_team *team, aci_conv_product *p, ac_err *e) {
  p->acc = p->w.type == ACI_GEMM_F64 ? ACI_GEMM_F64 : ACI_GEMM_F32;
  aci_conv_walk_finish(&p->w, p->acc);
  p->w.direct = false; /* vectors are read beyond the end */
  p->depth = p->chans * p->w.taps;
  p->oom = false;
  if (p->groups * p->rows == 0 || p->w.n * p->w.positions == 0) return AC_OK;
  p->cols = tile_cols(&p->w);
  const int64_t n = p->groups * p->rows * p->depth, tiles = aci_conv_tiles(&p->w, p->cols);
  p->packed = aci_scratch(ACI_SCRATCH_SHARED, (size_t)(n * p->w.stage_bytes + 64));
  if (p->packed == NULL) return AC_FAIL(e, OOM, "out of memory for %lld weights", (long long)n);
  for (int64_t i = 0; i < n; i++) {
    const int64_t t = i % p->w.taps, c = i / p->w.taps % p->chans, r = i / p->depth % p->rows,
                  g = i / p->depth / p->rows;
    double w =
        aci_gemm_load(p->w.type, p->weight,
                      g * p->w_group + r * p->w_row + c * p->w_chan + aci_conv_kernel_tap(p, t));
    if (p->acc == ACI_GEMM_F64) ((double *)(void *)p->packed)[i] = w;
    else ((float *)(void *)p->packed)[i] = (float)w;
  }
  const double flops = 2.0 * (double)p->cols * (double)(p->rows * (p->depth + 4));
  thin j = {.p = p, .per_task = flops >= TASK_FLOPS ? 1 : (int64_t)(TASK_FLOPS / flops)};
  if (j.per_task > p->groups) j.per_task = p->groups;
  j.n_chunks = aci_conv_ceil(p->groups, j.per_task);
  const double work = flops * (double)j.per_task;
  ac_parallel_for(team, tiles * j.n_chunks, work >= TASK_FLOPS ? 1 : (int64_t)(TASK_FLOPS / work),
                  product_piece, &j);
  if (p->oom) return AC_FAIL(e, OOM, "out of memory for the tiles of a convolution");
  return AC_OK;
}

/* ---- the gradient of the weights ---- */
typedef struct weights {
  aci_conv_walk w;
  aci_gemm_type acc;
  int64_t groups, rows, chans, depth;
  const char *dy;
  int64_t cols, n_tiles, per_task, n_chunks, n_parts, per_part;
  char *parts; /* sums of a part of the tiles, one set of weights each */
  _Atomic bool oom;
} weights;

/* Row r of dy over the positions of a tile, in the type of the sums. */
static void load_row(const weights *j, const aci_conv_tile *t, int64_t channel, char *d) {
  const int64_t es = aci_gemm_type_bytes(j->w.type), positions = j->w.positions;
  for (int i = 0; i < t->n_runs;) {
    const aci_conv_run *run = &t->run[i++];
    int64_t n = run->len;
    while (i < t->n_runs && t->run[i].image == run->image) n += t->run[i++].len;
    const char *s =
        j->dy + ((run->image * j->groups * j->rows + channel) * positions + run->position) * es;
    char *to = d + run->col * j->w.stage_bytes;
    if (es == 2) aci_gemm_widen(j->w.type, (float *)(void *)to, s, n);
    else memcpy(to, s, (size_t)(n * es));
  }
}

static void weight_piece(void *arg, int64_t begin, int64_t end) {
  weights *j = arg;
  const int64_t es = j->w.stage_bytes, taps = j->w.taps, per_group = j->rows * j->depth;
  const int64_t stage_bytes = aci_conv_stage_bytes(&j->w, j->cols),
                row = aci_gemm_lines(j->cols * es) + ACI_CONV_SLACK;
  const int64_t table = j->per_task * per_group * LANES_BYTES;
  char *lanes = aci_scratch(ACI_SCRATCH_TILE, (size_t)(table + row + stage_bytes + taps * 8));
  if (lanes == NULL) {
    j->oom = true;
    return;
  }
  char *dy = lanes + table, *stage = dy + row;
  int64_t *tap = (int64_t *)(void *)(stage + stage_bytes);
  aci_conv_tile t;
  for (int64_t task = begin; task < end; task++) {
    const int64_t g0 = task % j->n_chunks * j->per_task,
                  g1 = aci_conv_min(g0 + j->per_task, j->groups);
    const int64_t part = task / j->n_chunks, first = part * j->per_part;
    const int64_t last = aci_conv_min(first + j->per_part, j->n_tiles);
    memset(lanes, 0, (size_t)table);
    for (int64_t i = first; i < last; i++) {
      aci_conv_tile_make(&j->w, j->cols, i, 0, 0, &t);
      for (int64_t k = 0; k < taps; k++) tap[k] = aci_conv_tap(&t, k);
      for (int64_t g = g0; g < g1; g++)
        for (int64_t c = 0; c < j->chans; c++) {
          const int64_t channel = g * j->chans + c;
          aci_conv_stage(&t, channel, stage);
          for (int64_t r = 0; r < j->rows; r++) {
            char *to = lanes + (((g - g0) * j->rows + r) * j->depth + c * taps) * LANES_BYTES;
            if (c == 0 || j->rows > 1) load_row(j, &t, g * j->rows + r, dy);
            if (es == 8) dot_taps_f64(to, stage, tap, taps, dy, t.run, t.n_runs);
            else dot_taps_f32(to, stage, tap, taps, dy, t.run, t.n_runs);
          }
        }
    }
    for (int64_t i = 0; i < (g1 - g0) * per_group; i++) {
      double sum = 0;
      const char *v = lanes + i * LANES_BYTES;
      for (int l = 0; l < LANES_BYTES / (int)es; l++)
        sum += es == 8 ? ((const double *)(const void *)v)[l]
                       : (double)((const float *)(const void *)v)[l];
      ((double *)(void *)j->parts)[(part * j->groups + g0) * per_group + i] = sum;
    }
  }
}

ac_status aci_conv_weight_direct(ac_team *team, const aci_conv_walk *walk, int64_t groups,
                                 int64_t rows, int64_t chans, const void *dy, void *dw, ac_err *e) {
  weights j = {.w = *walk, .groups = groups, .rows = rows, .chans = chans, .dy = dy};
  j.acc = walk->type == ACI_GEMM_F64 ? ACI_GEMM_F64 : ACI_GEMM_F32;
  aci_conv_walk_finish(&j.w, j.acc);
  j.w.direct = false;
  j.cols = tile_cols(&j.w);
  j.depth = chans * j.w.taps;
  j.n_tiles = aci_conv_tiles(&j.w, j.cols);
  const int64_t all = groups * rows * j.depth;
  j.per_task = aci_conv_max(TABLE_BYTES / (rows * j.depth * LANES_BYTES), 1);
  if (j.per_task > groups) j.per_task = groups;
  j.n_chunks = aci_conv_ceil(groups, j.per_task);
  const double flops =
      2.0 * (double)j.per_task * (double)(rows * j.depth) * (double)(j.w.n * j.w.positions);
  j.n_parts = aci_conv_min(aci_conv_ceil(MANY_TASKS, j.n_chunks), (int64_t)(flops / TASK_FLOPS));
  j.n_parts = aci_conv_max(aci_conv_min(j.n_parts, j.n_tiles), 1);
  j.per_part = aci_conv_ceil(j.n_tiles, j.n_parts);
  j.n_parts = aci_conv_ceil(j.n_tiles, j.per_part);
  j.parts = aci_scratch(ACI_SCRATCH_SHARED, (size_t)(j.n_parts * all * 8));
  if (j.parts == NULL)
    return AC_FAIL(e, OOM, "out of memory for %lld sums", (long long)(j.n_parts * all));
  ac_parallel_for(team, j.n_chunks * j.n_parts, flops / (double)j.n_parts >= TASK_FLOPS ? 1 : 8,
                  weight_piece, &j);
  if (j.oom) return AC_FAIL(e, OOM, "out of memory for the tiles of a convolution");
  for (int64_t i = 0; i < all; i++) {
    double sum = 0;
    for (int64_t part = 0; part < j.n_parts; part++)
      sum += ((const double *)(const void *)j.parts)[part * all + i];
    switch (walk->type) {
      case ACI_GEMM_F64: ((double *)dw)[i] = sum; break;
      case ACI_GEMM_F32: ((float *)dw)[i] = (float)sum; break;
      case ACI_GEMM_BF16: ((uint16_t *)dw)[i] = aci_f32_to_bf16((float)sum); break;
      default: ((uint16_t *)dw)[i] = aci_f32_to_f16((float)sum); break;
    }
  }
  return AC_OK;
}
