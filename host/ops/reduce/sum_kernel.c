/* Sums: the kernels of sum, mean and every gradient that undoes broadcasting.
 *
 * Rows: the elements of one output come in blocks of ACI_RED_BLOCK, each added in lanes. Blocks are
 * joined in double, added pairwise by a binary counter. Lists beyond CHUNK elements are cut into
 * chunks that run in parallel and meet the same way. Columns: when the kept dims are the contiguous
 * ones, whole rows are added to a tile of outputs: GROUP rows in f32, groups in double, and chunks
 * of rows in parallel. Both keep to memory speed and to errors that grow with the logarithm of the
 * length. */
#include "base/vmath.h"
#include "ops/core/fuse.h"
#include "ops/reduce/lanes.h"
#include "ops/reduce/reduce.h"

enum {
  BATCH = 64,
  CHUNK = 1 << 16,
  TILE = 1024,
  PIECES = 64,
  GROUP = 64,
  DIRECT = 4096,
  MAX_LEVELS = 48
};

/* ---- a block ---- */
#define ADD_X(a, i) ((a) + x[i])
#define LANE_SUM(T, sfx)                                                                   \
  AC_ISA_FN(lanes_##sfx, (const T *restrict x, int64_t n, T *restrict out), (x, n, out)) { \
    ACI_LANES_RUN(T, s, n, 0, ADD_X, ACI_JOIN_ADD);                                        \
    *out = s;                                                                              \
  }
LANE_SUM(float, f32)
LANE_SUM(double, f64)
LANE_SUM(uint64_t, i64)

/* ---- pairwise addition of a stream ---- */
typedef struct counter {
  uint64_t n;
  double level[MAX_LEVELS];
} counter;

static void count_in(counter *c, double v) {
  int l = 0;
  for (uint64_t n = c->n++; n & 1; n >>= 1) v += c->level[l++];
  c->level[l] = v;
}
static double count_out(const counter *c) {
  double s = 0;
  int l = 0;
  for (uint64_t n = c->n; n != 0; n >>= 1, l++)
    if (n & 1) s += c->level[l];
  return s;
}

double aci_sum_f32(const float *x, int64_t n) {
  if (n <= ACI_RED_BLOCK) {
    float s;
    lanes_f32(x, n, &s);
    return s;
  }
  counter c;
  c.n = 0; /* levels are written before they are read */
  for (int64_t i = 0; i < n; i += ACI_RED_BLOCK) {
    float s;
    lanes_f32(x + i, n - i < ACI_RED_BLOCK ? n - i : ACI_RED_BLOCK, &s);
    count_in(&c, s);
  }
  return count_out(&c);
}
double aci_sum_f64(const double *x, int64_t n) {
  if (n <= ACI_RED_BLOCK) {
    double s;
    lanes_f64(x, n, &s);
    return s;
  }
  counter c;
  c.n = 0; /* levels are written before they are read */
  for (int64_t i = 0; i < n; i += ACI_RED_BLOCK) {
    double s;
    lanes_f64(x + i, n - i < ACI_RED_BLOCK ? n - i : ACI_RED_BLOCK, &s);
    count_in(&c, s);
  }
  return count_out(&c);
}

/* ---- outputs ---- */
typedef struct sum_job {
  aci_reduce_plan p;
  double divisor;
  ac_tensor *out;
  double *part;            /* partial sums of floats, [chunk][output]. NULL when one chunk does */
  uint64_t *ipart;         /* of integers */
  int64_t n_chunks, chunk; /* reduced elements (rows) a chunk takes */
  int64_t n_tiles;
} sum_job;

static void put_f64(const sum_job *j, int64_t o, double v) {
  ac_dtype dt = (ac_dtype)j->out->dtype;
  v /= j->divisor;
  aci_store(ACI_C_F64, &v, dt, (char *)aci_data(j->out) + o * (int64_t)aci_dsize(dt), 1, 1);
}
static void put_i64(const sum_job *j, int64_t o, uint64_t v) {
  ac_dtype dt = (ac_dtype)j->out->dtype;
  aci_store(ACI_C_I64, &v, dt, (char *)aci_data(j->out) + o * (int64_t)aci_dsize(dt), 1, 1);
}

/* ---- rows ---- */
static double row_f(const aci_reduce_plan *p, int64_t base, int64_t begin, int64_t end) {
  _Alignas(64) double buf[DIRECT / 2];
  /* a source of f32 is added as memory of f32 is */
  const bool direct = p->source != NULL ? p->dt == AC_F32
                                        : begin < end && aci_reduce_block(p, base, begin, 1, buf) !=
                                                             (const void *)buf;
  const int64_t block = direct ? DIRECT : ACI_RED_BLOCK;
  counter c;
  c.n = 0; /* levels are written before they are read */
  for (int64_t i = begin; i < end; i += block) {
    int64_t n = end - i < block ? end - i : block;
    const void *x = aci_reduce_block(p, base, i, n, buf);
    float s32 = 0;
    double s64 = 0;
    if (p->ct == ACI_C_F32) lanes_f32(x, n, &s32);
    else lanes_f64(x, n, &s64);
    count_in(&c, p->ct == ACI_C_F32 ? s32 : s64);
  }
  return count_out(&c);
}
static uint64_t row_i(const aci_reduce_plan *p, int64_t base, int64_t begin, int64_t end) {
  _Alignas(64) int64_t buf[ACI_RED_BLOCK];
  uint64_t sum = 0, s;
  for (int64_t i = begin; i < end; i += ACI_RED_BLOCK) {
    int64_t n = end - i < ACI_RED_BLOCK ? end - i : ACI_RED_BLOCK;
    lanes_i64(aci_reduce_block(p, base, i, n, buf), n, &s);
    sum += s;
  }
  return sum;
}

/* Short rows one after the other in memory: one call for many. */
#define NARROW(T, sfx)                                                                          \
  AC_ISA_FN(narrow_##sfx,                                                                       \
            (const T *restrict p, int64_t step, int64_t rows, int64_t n, double *restrict out), \
            (p, step, rows, n, out)) {                                                          \
    for (int64_t r = 0; r < rows; r++) {                                                        \
      const T *restrict x = p + r * step;                                                       \
      ACI_LANES_RUN(T, s, n, 0, ADD_X, ACI_JOIN_ADD);                                           \
      out[r] = (double)s;                                                                       \
    }                                                                                           \
  }
NARROW(float, f32)
NARROW(double, f64)

static void rows_whole(const sum_job *j, int64_t begin, int64_t end) {
  const aci_reduce_plan *p = &j->p;
  const int64_t n = p->n_reduced;
  double v[BATCH];
  int64_t iv[BATCH];
  const ac_dtype dt = (ac_dtype)j->out->dtype;
  const bool narrow = p->source == NULL && n <= ACI_RED_BLOCK && p->n_keep == 1 && p->n_red == 1 &&
                      (p->red_stride[0] == 1 || n == 1) &&
                      p->dt == (p->ct == ACI_C_F32 ? AC_F32 : AC_F64);
  for (int64_t o = begin; o < end; o += BATCH) {
    int64_t m = end - o < BATCH ? end - o : BATCH;
    char *dst = (char *)aci_data(j->out) + o * (int64_t)aci_dsize(dt);
    if (p->ct == ACI_C_I64) {
      for (int64_t k = 0; k < m; k++) iv[k] = (int64_t)row_i(p, aci_reduce_base(p, o + k), 0, n);
      aci_store(ACI_C_I64, iv, dt, dst, 1, m);
      continue;
    }
    if (narrow && p->ct == ACI_C_F32) {
      narrow_f32((const float *)(const void *)p->ptr + aci_reduce_base(p, o), p->keep_stride[0], m,
                 n, v);
    } else if (narrow) {
      narrow_f64((const double *)(const void *)p->ptr + aci_reduce_base(p, o), p->keep_stride[0], m,
                 n, v);
    } else {
      for (int64_t k = 0; k < m; k++) v[k] = row_f(p, aci_reduce_base(p, o + k), 0, n);
    }
    if (j->divisor != 1)
      for (int64_t k = 0; k < m; k++) v[k] /= j->divisor;
    aci_store(ACI_C_F64, v, dt, dst, 1, m);
  }
}

/* Items are (output, chunk). */
static void rows(void *arg, int64_t begin, int64_t end) {
  const sum_job *j = arg;
  if (j->n_chunks == 1) {
    rows_whole(j, begin, end);
    return;
  }
  for (int64_t i = begin; i < end; i++) {
    int64_t o = i / j->n_chunks, c = i % j->n_chunks, a = c * j->chunk,
            b = a + j->chunk < j->p.n_reduced ? a + j->chunk : j->p.n_reduced;
    int64_t base = aci_reduce_base(&j->p, o);
    if (j->ipart != NULL) j->ipart[c * j->p.n_out + o] = row_i(&j->p, base, a, b);
    else j->part[c * j->p.n_out + o] = row_f(&j->p, base, a, b);
  }
}

/* ---- columns ---- */
#define ADD_ROWS(T, sfx)                                                                        \
  AC_ISA_FN(add4_##sfx,                                                                         \
            (T *restrict s, const T *a, const T *b, const T *c, const T *d, int64_t n),         \
            (s, a, b, c, d, n)) {                                                               \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) s[i] += (a[i] + b[i]) + (c[i] + d[i]); \
  }                                                                                             \
  AC_ISA_FN(add1_##sfx, (T *restrict s, const T *a, int64_t n), (s, a, n)) {                    \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) s[i] += a[i];                          \
  }
ADD_ROWS(float, f32)
ADD_ROWS(double, f64)
ADD_ROWS(uint64_t, i64)

AC_ISA_FN(flush_f32, (double *restrict d, float *restrict s, int64_t n), (d, s, n)) {
  for (int64_t i = 0; i < n; i++) {
    d[i] += (double)s[i];
    s[i] = 0;
  }
}

static const void *column_row(const aci_reduce_plan *p, int64_t base, int64_t r, int64_t n,
                              void *buf) {
  static const ac_dtype same[] = {AC_F32, AC_F64, AC_I64};
  int64_t off = base + aci_reduce_offset(p, r);
  if (p->source != NULL) {
    p->source(p->from, off, n, buf);
    return buf;
  }
  const char *src = p->ptr + off * (int64_t)aci_dsize(p->dt);
  if (p->dt == same[p->ct]) return src;
  aci_load(p->ct, buf, p->dt, src, 1, n);
  return buf;
}

/* Sums rows [a, b) of a tile of n outputs that starts at offset base into acc (n values of 8
 * bytes). */
static void column(const aci_reduce_plan *p, int64_t base, int64_t a, int64_t b, int64_t n,
                   void *acc) {
  _Alignas(64) char buf[4][TILE * 8];
  _Alignas(64) float s32[TILE];
  const void *row[4];
  memset(acc, 0, (size_t)n * 8);
  memset(s32, 0, sizeof s32);
  for (int64_t r = a; r < b;) {
    int m = b - r >= 4 ? 4 : 1;
    for (int k = 0; k < m; k++) {
      row[k] = column_row(p, base, r + k, n, buf[k]);
      if (p->source == NULL && r + m + k < b) {
        int64_t ahead = base + aci_reduce_offset(p, r + m + k);
        aci_prefetch((uintptr_t)(p->ptr + ahead * (int64_t)aci_dsize(p->dt)),
                     n * (int64_t)aci_dsize(p->dt));
      }
    }
    switch (p->ct) {
      case ACI_C_F32:
        if (m == 4) add4_f32(s32, row[0], row[1], row[2], row[3], n);
        else add1_f32(s32, row[0], n);
        break;
      case ACI_C_F64:
        if (m == 4) add4_f64(acc, row[0], row[1], row[2], row[3], n);
        else add1_f64(acc, row[0], n);
        break;
      default:
        if (m == 4) add4_i64(acc, row[0], row[1], row[2], row[3], n);
        else add1_i64(acc, row[0], n);
    }
    r += m;
    if (p->ct == ACI_C_F32 && ((r - a) % GROUP == 0 || r == b)) flush_f32(acc, s32, n);
  }
}

/* Items are (outer kept index, tile of the last kept dim, chunk of rows). */
static void columns(void *arg, int64_t begin, int64_t end) {
  const sum_job *j = arg;
  const int64_t width = j->p.keep_shape[j->p.n_keep - 1];
  _Alignas(64) double acc[TILE];
  for (int64_t i = begin; i < end; i++) {
    int64_t c = i % j->n_chunks, tile = i / j->n_chunks, first = tile % j->n_tiles * TILE,
            o = tile / j->n_tiles * width + first;
    int64_t n = width - first < TILE ? width - first : TILE, a = c * j->chunk;
    int64_t b = a + j->chunk < j->p.n_reduced ? a + j->chunk : j->p.n_reduced;
    column(&j->p, aci_reduce_base(&j->p, o), a, b, n, acc);
    if (j->part != NULL) {
      memcpy(j->part + c * j->p.n_out + o, acc, (size_t)n * 8);
    } else if (j->ipart != NULL) {
      memcpy(j->ipart + c * j->p.n_out + o, acc, (size_t)n * 8);
    } else {
      ac_dtype dt = (ac_dtype)j->out->dtype;
      char *dst = (char *)aci_data(j->out) + o * (int64_t)aci_dsize(dt);
      if (j->p.ct != ACI_C_I64 && j->divisor != 1)
        for (int64_t k = 0; k < n; k++) acc[k] /= j->divisor;
      aci_store(j->p.ct == ACI_C_I64 ? ACI_C_I64 : ACI_C_F64, acc, dt, dst, 1, n);
    }
  }
}

/* Chunks of every output together. */
static void join(void *arg, int64_t begin, int64_t end) {
  const sum_job *j = arg;
  for (int64_t o = begin; o < end; o++) {
    if (j->ipart != NULL) {
      uint64_t s = 0;
      for (int64_t c = 0; c < j->n_chunks; c++) s += j->ipart[c * j->p.n_out + o];
      put_i64(j, o, s);
    } else {
      counter t;
      t.n = 0;
      for (int64_t c = 0; c < j->n_chunks; c++) count_in(&t, j->part[c * j->p.n_out + o]);
      put_f64(j, o, count_out(&t));
    }
  }
}

static bool by_columns(const aci_reduce_plan *p) {
  int k = p->n_keep - 1;
  return p->n_reduced > 1 && p->keep_stride[k] == 1 && p->keep_shape[k] >= 8 &&
         p->red_stride[p->n_red - 1] != 1;
}

static ac_status walk(ac_frame *f, const aci_reduce_plan *p, const aci_fuse_reduction *r,
                      ac_tensor *out, ac_err *e) {
  sum_job j = {.p = *p, .divisor = r->number, .out = out};
  ac_block *block = NULL;
  const bool cols = by_columns(&j.p);
  int64_t items = j.p.n_out;
  j.chunk = CHUNK;
  if (cols) {
    int64_t width = j.p.keep_shape[j.p.n_keep - 1];
    j.n_tiles = (width + TILE - 1) / TILE;
    items = j.p.n_out / width * j.n_tiles;
    int64_t least = CHUNK / (width < TILE ? width : TILE), share = j.p.n_reduced * items / PIECES;
    j.chunk = ((least > share ? least : share) + GROUP - 1) / GROUP * GROUP;
    if (items >= 64) j.chunk = j.p.n_reduced; /* enough to share out */
  } else if (items >= 64 && j.p.n_reduced < 4 * CHUNK) {
    j.chunk = j.p.n_reduced;
  }
  if (j.chunk < 1) j.chunk = 1;
  j.n_chunks = j.p.n_reduced > 0 ? (j.p.n_reduced + j.chunk - 1) / j.chunk : 1;
  if (j.n_chunks > 1) {
    AC_TRY(ac_block_alloc(f->device, (size_t)(j.n_chunks * j.p.n_out) * 8, AC_MEM_ACTIVATION,
                          f->stream, &block, e));
    if (j.p.ct == ACI_C_I64) j.ipart = ac_block_ptr(block);
    else j.part = ac_block_ptr(block);
  }
  int64_t work = (j.chunk < j.p.n_reduced ? j.chunk : j.p.n_reduced + 1) * (cols ? TILE : 1);
  int64_t grain = 32768 / work;
  ac_parallel_for(f->team, items * j.n_chunks, grain < 1 ? 1 : grain, cols ? columns : rows, &j);
  if (j.n_chunks > 1) ac_parallel_for(f->team, j.p.n_out, 64, join, &j);
  ac_block_free(block);
  return AC_OK;
}

/* As row_f, of a list that lies at x. */
static double row_of(const aci_fuse_reduction *r, const float *x, int64_t n, bool direct) {
  const int64_t block = direct ? DIRECT : ACI_RED_BLOCK;
  counter c;
  c.n = 0;
  for (int64_t i = 0; i < n; i += block) {
    float s;
    lanes_f32(x + i, n - i < block ? n - i : block, &s);
    count_in(&c, s);
  }
  return count_out(&c) / r->number;
}

ac_status aci_reduce_sum(ac_frame *f, const ac_tensor *x, uint32_t mask, double divisor,
                         ac_tensor *out, ac_err *e) {
  const aci_fuse_reduction how = {.walk = walk, .row = row_of, .number = divisor};
  aci_reduce_plan p;
  if (out->numel == 0) return AC_OK;
  aci_reduce_plan_make(&p, x, mask, aci_ctype_of((ac_dtype)out->dtype));
  return aci_fuse_reduce(f, x, &p, &how, out, e);
}
