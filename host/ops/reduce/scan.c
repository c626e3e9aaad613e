/* Scans. Lines whose neighbours lie side by side in memory go together, a row of running values at
 * a time. Others go four at once, since each waits for its own last addition. A long line is cut
 * into segments: totals of all segments in parallel, the running value before each, then the
 * segments in parallel. The cut follows from the shape alone. */
#include "ops/reduce/scan.h"

#include "device/cpu/isa.h"
#include "ops/core/ctx_impl.h"

enum { TILE = 256, SEGMENT = 16384, WORK = 32768, LINES = 4 };

typedef union word {
  double f;
  uint64_t u;
} word;

#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))
#define name sum_f32
#define T float
#define W f
#define A double
#define JOIN ADD
#define START 0
#include "ops/reduce/scan_rows.h"

#define name sum_f64
#define T double
#define W f
#define A double
#define JOIN ADD
#define START 0
#include "ops/reduce/scan_rows.h"

#define name sum_i64
#define T int64_t
#define W u
#define A uint64_t
#define JOIN ADD
#define START 0
#include "ops/reduce/scan_rows.h"

#define name prod_f32
#define T float
#define W f
#define A double
#define JOIN MUL
#define START 1
#include "ops/reduce/scan_rows.h"

#define name prod_f64
#define T double
#define W f
#define A double
#define JOIN MUL
#define START 1
#include "ops/reduce/scan_rows.h"

#define name prod_i64
#define T int64_t
#define W u
#define A uint64_t
#define JOIN MUL
#define START 1
#include "ops/reduce/scan_rows.h"

typedef struct kind {
  word start;
  void (*row)(word *, const void *, void *, int64_t);
  void (*line)(word *, const void *, void *, int64_t);
  void (*four)(word *, const void *const *, void *const *, int64_t);
  void (*total)(word *, const void *, int64_t);
  void (*join)(word *, const word *);
} kind;
#define KIND(name, ...) \
  { {__VA_ARGS__}, name##_row, name##_line, name##_four, name##_total, name##_join }
static const kind kinds[2][3] = {
    {KIND(sum_f32, .f = 0), KIND(sum_f64, .f = 0), KIND(sum_i64, .u = 0)},
    {KIND(prod_f32, .f = 1), KIND(prod_f64, .f = 1), KIND(prod_i64, .u = 1)}};

typedef struct scan_job {
  aci_reduce_plan x, y; /* kept dims are the lines, the one reduced dim runs along them */
  const kind *k;
  int64_t n, segment, n_segments; /* of a line */
  /* [line][segment]: totals, then the running value before. NULL when one segment does */
  word *before;
} scan_job;

static bool same_type(const aci_reduce_plan *p) {
  static const ac_dtype same[] = {AC_F32, AC_F64, AC_I64};
  return p->dt == same[p->ct];
}
static char *address(const aci_reduce_plan *p, int64_t off) {
  return (char *)(uintptr_t)p->ptr + off * (int64_t)aci_dsize(p->dt);
}

/* ---- side by side: items are (outer kept index, tile of the last kept dim) ---- */
static void tiles(void *arg, int64_t begin, int64_t end) {
  const scan_job *j = arg;
  const int64_t width = j->y.keep_shape[j->y.n_keep - 1], n_tiles = (width + TILE - 1) / TILE;
  word s[TILE];
  _Alignas(64) double in[TILE], out[TILE];
  for (int64_t item = begin; item < end; item++) {
    const int64_t first = item % n_tiles * TILE, o = item / n_tiles * width + first;
    const int64_t m = width - first < TILE ? width - first : TILE;
    const int64_t xb = aci_reduce_base(&j->x, o), yb = aci_reduce_base(&j->y, o);
    for (int64_t i = 0; i < m; i++) s[i] = j->k->start;
    for (int64_t r = 0; r < j->n; r++) {
      const char *x = address(&j->x, xb + r * j->x.red_stride[0]);
      char *y = address(&j->y, yb + r * j->y.red_stride[0]);
      if (!same_type(&j->x)) aci_load(j->x.ct, in, j->x.dt, x, 1, m);
      j->k->row(s, same_type(&j->x) ? (const void *)x : in, same_type(&j->y) ? (void *)y : out, m);
      if (!same_type(&j->y)) aci_store(j->y.ct, out, j->y.dt, y, 1, m);
    }
  }
}

/* ---- lines: items are (line, segment) ---- */
static void bounds(const scan_job *j, int64_t item, int64_t *line, int64_t *a, int64_t *n) {
  *line = item / j->n_segments;
  *a = item % j->n_segments * j->segment;
  *n = *a + j->segment < j->n ? j->segment : j->n - *a;
}

static void totals(void *arg, int64_t begin, int64_t end) {
  const scan_job *j = arg;
  _Alignas(64) double buf[ACI_RED_BLOCK];
  for (int64_t item = begin; item < end; item++) {
    int64_t line, a, n;
    bounds(j, item, &line, &a, &n);
    const int64_t base = aci_reduce_base(&j->x, line);
    word v = j->k->start;
    for (int64_t i = 0; i < n; i += ACI_RED_BLOCK) {
      const int64_t m = n - i < ACI_RED_BLOCK ? n - i : ACI_RED_BLOCK;
      j->k->total(&v, aci_reduce_block(&j->x, base, a + i, m, buf), m);
    }
    j->before[item] = v;
  }
}

static void lines(void *arg, int64_t begin, int64_t end) {
  const scan_job *j = arg;
  const bool direct = same_type(&j->y) && (j->n == 1 || j->y.red_stride[0] == 1);
  _Alignas(64) double in[LINES][ACI_RED_BLOCK], out[LINES][ACI_RED_BLOCK];
  for (int64_t item = begin; item < end;) {
    int64_t line[LINES], a[LINES], n = 0, len;
    int count = 0;
    word at[LINES];
    for (; count < LINES && item < end; count++, item++) { /* neighbours of one length */
      bounds(j, item, &line[count], &a[count], &len);
      if (count > 0 && len != n) break;
      n = len;
      at[count] = j->before != NULL ? j->before[item] : j->k->start;
    }
    for (int64_t i = 0; i < n; i += ACI_RED_BLOCK) {
      const int64_t m = n - i < ACI_RED_BLOCK ? n - i : ACI_RED_BLOCK;
      const void *x[LINES];
      void *y[LINES], *dst[LINES];
      for (int k = 0; k < count; k++) {
        x[k] = aci_reduce_block(&j->x, aci_reduce_base(&j->x, line[k]), a[k] + i, m, in[k]);
        dst[k] = address(&j->y, aci_reduce_base(&j->y, line[k]) + (a[k] + i) * j->y.red_stride[0]);
        y[k] = direct ? dst[k] : (void *)out[k];
      }
      if (count == LINES) j->k->four(at, x, y, m);
      else
        for (int k = 0; k < count; k++) j->k->line(&at[k], x[k], y[k], m);
      for (int k = 0; k < count && !direct; k++)
        aci_store(j->y.ct, out[k], j->y.dt, dst[k], j->y.red_stride[0], m);
    }
  }
}

static bool side_by_side(const aci_reduce_plan *p, int64_t width) {
  return p->keep_stride[p->n_keep - 1] == 1 && p->keep_shape[p->n_keep - 1] == width &&
         p->red_stride[0] != 1;
}

/* The plan of t's lines from their other end. */
static void turn(aci_reduce_plan *p, int64_t n) {
  p->ptr += (n - 1) * p->red_stride[0] * (int64_t)aci_dsize(p->dt);
  p->red_stride[0] = -p->red_stride[0];
}

ac_status aci_scan_run(ac_frame *f, const ac_tensor *x, int dim, bool product, bool reverse,
                       ac_tensor *out, ac_err *e) {
  const aci_ctype ct = aci_ctype_of((ac_dtype)out->dtype);
  scan_job j = {.k = &kinds[product][ct], .n_segments = 1};
  const uint32_t mask = out->ndim > 0 ? 1u << dim : 0;
  ac_block *scratch = NULL;
  if (out->numel == 0) return AC_OK;
  aci_reduce_plan_make(&j.x, x, mask, ct);
  aci_reduce_plan_make(&j.y, out, mask, ct);
  j.n = j.segment = j.x.n_reduced;
  if (reverse && j.n > 1) {
    turn(&j.x, j.n);
    turn(&j.y, j.n);
  }
  const int64_t width = j.y.keep_shape[j.y.n_keep - 1], n_lines = j.y.n_out;
  if (j.n > 1 && width >= 8 && side_by_side(&j.y, width) && side_by_side(&j.x, width)) {
    const int64_t grain = WORK / (j.n * (width < TILE ? width : TILE));
    ac_parallel_for(f->team, n_lines / width * ((width + TILE - 1) / TILE), grain < 1 ? 1 : grain,
                    tiles, &j);
    return AC_OK;
  }
  if (j.n >= 2 * SEGMENT && n_lines < 64) {
    j.segment = SEGMENT;
    j.n_segments = (j.n + SEGMENT - 1) / SEGMENT;
    const int64_t items = n_lines * j.n_segments;
    AC_TRY(ac_block_alloc(f->device, (size_t)items * sizeof(word), AC_MEM_ACTIVATION, f->stream,
                          &scratch, e));
    j.before = ac_block_ptr(scratch);
    ac_parallel_for(f->team, items, WORK / SEGMENT, totals, &j);
    for (int64_t l = 0; l < n_lines; l++) {
      word v = j.k->start;
      for (int64_t s = 0; s < j.n_segments; s++) {
        word own = j.before[l * j.n_segments + s];
        j.before[l * j.n_segments + s] = v;
        j.k->join(&v, &own);
      }
    }
  }
  int64_t grain = (WORK / j.segment + LINES - 1) / LINES * LINES;
  ac_parallel_for(f->team, n_lines * j.n_segments, grain < LINES ? LINES : grain, lines, &j);
  ac_block_free(scratch);
  return AC_OK;
}

ac_status aci_scan_shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const ac_dtype dt = ARG_NONE(f, 2) ? (ac_dtype)x->dtype : f->args[2].dtype;
  int d;
  if (x->dtype > AC_BOOL || dt > AC_BOOL)
    return AC_FAIL(e, DTYPE, "%s is a storage dtype; cast to another",
                   ac_dtype_name(dt > AC_BOOL ? dt : (ac_dtype)x->dtype));
  AC_TRY(ac_frame_dim(f, 1, x->ndim, &d, e));
  return ac_frame_out(f, ARG_NONE(f, 2) && !ac_dtype_is_float(dt) ? AC_I64 : dt, x->ndim, x->shape,
                      e);
}
