/* Rows of layer_norm and rms_norm, forward and backward. rms is layer_norm whose mean is taken as
 * 0. With a residual a row of sum is written first, as rounded, and is read back from the cache as
 * the row to normalise.
 *
 * dweight and dbias are sums over all rows: pieces of a number of rows that follows from the shape
 * add up partial sums of their own, which then meet in double in the order of the pieces. */
#include "base/vmath.h"
#include "ops/core/ctx_impl.h"
#include "ops/norm/norm.h"
#include "ops/reduce/lanes.h"
#include "ops/reduce/slots.h"

enum { MAX_PIECES = 64, MIN_ROWS = 16 };

/* A row: mean as rounded, the rounding error (so that a large mean costs no accuracy), 1 /
 * deviation. */
typedef struct stat_f32 {
  float mean, rest, rstd;
} stat_f32;
typedef struct stat_f64 {
  double mean, rest, rstd;
} stat_f64;

#define SQUARE_X(a, i) m_fma(x[i] - mean, x[i] - mean, a)
#define SUM_X(a, i) ((a) + (x[i] - mean))
#define SUM_G(a, i) m_fma(dy[i], w[i], a)
#define SUM_GX(a, i) m_fma(dy[i] * w[i], x[i] - mean, a)

#define T float
#define sfx f32
#include "ops/norm/norm_rows.h"

#define T double
#define sfx f64
#include "ops/norm/norm_rows.h"

typedef struct norm_job {
  aci_reduce_plan x, dy;
  /* forward: sum, which is x, is their sum. backward: dsum */
  const aci_reduce_plan *residual, *addend;
  bool rms;
  double eps;
  const ac_tensor *out, *sum; /* sum NULL: no residual */
  const void *w, *b;
  aci_slots *slots;
  char *part; /* backward: per piece dweight, then dbias */
  int64_t rows;
} norm_job;

static bool direct(const norm_job *j) {
  return aci_ctype_bytes(j->x.ct) == aci_dsize((ac_dtype)j->out->dtype);
}

static void add(aci_ctype ct, const void *a, const void *b, int64_t n, void *y) {
  if (ct == ACI_C_F32) add_f32(a, b, n, y);
  else add_f64(a, b, n, y);
}

/* Row r of sum. buf: two rows. */
static void add_row(const norm_job *j, int64_t r, char *buf) {
  const int64_t n = j->x.n_reduced;
  const size_t row = (size_t)n * aci_ctype_bytes(j->x.ct);
  const ac_dtype dt = (ac_dtype)j->sum->dtype;
  char *dst = (char *)aci_data(j->sum) + r * n * (int64_t)aci_dsize(dt);
  const void *a = aci_reduce_block(j->residual, aci_reduce_base(j->residual, r), 0, n, buf);
  const void *b = aci_reduce_block(j->addend, aci_reduce_base(j->addend, r), 0, n, buf + row);
  if (a != buf) aci_row_ahead(a, (int64_t)row);
  if (b != buf + row) aci_row_ahead(b, (int64_t)row);
  add(j->x.ct, a, b, n, direct(j) ? dst : buf);
  if (!direct(j)) aci_store(j->x.ct, buf, dt, dst, 1, n);
}

static void forward(void *arg, int64_t begin, int64_t end) {
  const norm_job *j = arg;
  const int64_t n = j->x.n_reduced, es = (int64_t)aci_dsize((ac_dtype)j->out->dtype);
  int slot = aci_slots_take(j->slots);
  char *buf = aci_slots_at(j->slots, slot);
  for (int64_t r = begin; r < end; r++) {
    char *dst = (char *)aci_data(j->out) + r * n * es;
    if (j->sum != NULL) add_row(j, r, buf);
    const void *x = aci_reduce_block(&j->x, aci_reduce_base(&j->x, r), 0, n, buf);
    void *y = direct(j) ? (void *)dst : buf;
    if (x != buf) aci_row_ahead(x, n * (int64_t)aci_ctype_bytes(j->x.ct));
    if (j->x.ct == ACI_C_F32) row_f32(x, j->w, j->b, n, j->rms, j->eps, y);
    else row_f64(x, j->w, j->b, n, j->rms, j->eps, y);
    if (!direct(j)) aci_store(j->x.ct, y, (ac_dtype)j->out->dtype, dst, 1, n);
  }
  aci_slots_give(j->slots, slot);
}

static void backward(void *arg, int64_t begin, int64_t end) {
  const norm_job *j = arg;
  const int64_t n = j->x.n_reduced, es = (int64_t)aci_dsize((ac_dtype)j->out->dtype);
  const size_t row = (size_t)n * aci_ctype_bytes(j->x.ct);
  int slot = aci_slots_take(j->slots);
  char *buf = aci_slots_at(j->slots, slot);
  for (int64_t piece = begin; piece < end; piece++) {
    char *dw = j->part + (size_t)piece * 2 * row, *db = dw + row;
    int64_t last = (piece + 1) * j->rows < j->x.n_out ? (piece + 1) * j->rows : j->x.n_out;
    memset(dw, 0, 2 * row);
    for (int64_t r = piece * j->rows; r < last; r++) {
      char *dst = (char *)aci_data(j->out) + r * n * es;
      const void *x = aci_reduce_block(&j->x, aci_reduce_base(&j->x, r), 0, n, buf);
      const void *dy = aci_reduce_block(&j->dy, aci_reduce_base(&j->dy, r), 0, n, buf + row);
      void *dx = direct(j) ? (void *)dst : buf + 2 * row;
      if (x != buf) aci_row_ahead(x, (int64_t)row);
      if (dy != buf + row) aci_row_ahead(dy, (int64_t)row);
      if (j->x.ct == ACI_C_F32) row_back_f32(dy, j->w, x, n, j->rms, j->eps, dx, dw, db);
      else row_back_f64(dy, j->w, x, n, j->rms, j->eps, dx, dw, db);
      if (j->addend != NULL) {
        char *more = buf + 3 * row;
        const void *d = aci_reduce_block(j->addend, aci_reduce_base(j->addend, r), 0, n, more);
        if (d != more) aci_row_ahead(d, (int64_t)row);
        add(j->x.ct, dx, d, n, dx);
      }
      if (!direct(j)) aci_store(j->x.ct, dx, (ac_dtype)j->out->dtype, dst, 1, n);
    }
  }
  aci_slots_give(j->slots, slot);
}

/* weight or bias as one row of the compute type, or `missing` everywhere. */
static void fill_row(const ac_value *v, aci_ctype ct, double missing, int64_t n, void *dst) {
  if (v != NULL && v->kind == AC_T_TENSOR) {
    aci_reduce_plan p;
    aci_reduce_plan_make(&p, v->tensor, ACI_ALL_DIMS, ct);
    aci_reduce_fetch(&p, 0, 0, n, dst);
  } else {
    for (int64_t i = 0; i < n; i++)
      if (ct == ACI_C_F32) ((float *)dst)[i] = (float)missing;
      else ((double *)dst)[i] = missing;
  }
}

ac_status aci_norm_run(ac_frame *f, bool rms, double eps, ac_err *e) {
  const bool adds = f->n_out > 1;
  const ac_value *args = f->args + (adds ? 2 : 1); /* normalized_shape, weight, bias */
  const ac_tensor *x = adds ? f->out[1] : ARG_T(f, 0);
  const aci_ctype ct = aci_ctype_of((ac_dtype)x->dtype);
  const uint32_t mask = aci_norm_mask(x->ndim, args[0].n);
  aci_reduce_plan residual, addend;
  aci_slots slots;
  ac_block *params;
  norm_job j = {.rms = rms, .eps = eps, .out = f->out[0], .sum = adds ? x : NULL, .slots = &slots};
  if (x->numel == 0) return AC_OK;
  aci_reduce_plan_make(&j.x, x, mask, ct);
  if (adds) {
    aci_reduce_plan_make(&residual, ARG_T(f, 1), mask, ct);
    aci_reduce_plan_make(&addend, ARG_T(f, 0), mask, ct);
    j.residual = &residual;
    j.addend = &addend;
  }
  const int64_t n = j.x.n_reduced, grain = aci_reduce_grain(&j.x);
  const size_t row = (size_t)n * aci_ctype_bytes(ct);
  AC_TRY(ac_block_alloc(f->device, 2 * row, AC_MEM_ACTIVATION, f->stream, &params, e));
  ac_status st =
      aci_slots_open(&slots, f, (j.x.n_out + grain - 1) / grain, adds ? 2 * row : row, e);
  if (st == AC_OK) {
    char *p = ac_block_ptr(params);
    fill_row(&args[1], ct, 1, n, p);
    fill_row(rms ? NULL : &args[2], ct, 0, n, p + row);
    j.w = p;
    j.b = p + row;
    ac_parallel_for(f->team, j.x.n_out, grain, forward, &j);
    aci_slots_close(&slots);
  }
  ac_block_free(params);
  return st;
}

/* Partial sums of every piece together, in their order. */
static void join(const norm_job *j, int64_t n_pieces, int which, const ac_tensor *out) {
  const int64_t n = j->x.n_reduced;
  const ac_dtype dt = (ac_dtype)out->dtype;
  for (int64_t i = 0; i < n; i++) {
    double s = 0;
    for (int64_t p = 0; p < n_pieces; p++) {
      int64_t at = (p * 2 + which) * n + i;
      s += j->x.ct == ACI_C_F32 ? (double)((const float *)(const void *)j->part)[at]
                                : ((const double *)(const void *)j->part)[at];
    }
    aci_store(ACI_C_F64, &s, dt, (char *)aci_data(out) + i * (int64_t)aci_dsize(dt), 1, 1);
  }
}

ac_status aci_norm_backward_run(ac_frame *f, bool rms, double eps, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, 0), *x = ARG_T(f, 1);
  const aci_ctype ct = aci_ctype_of((ac_dtype)x->dtype);
  aci_reduce_plan dsum;
  aci_slots slots;
  ac_block *mem;
  norm_job j = {.rms = rms, .eps = eps, .out = f->out[0], .slots = &slots};
  uint32_t mask = aci_norm_mask(x->ndim, f->args[2].n);
  aci_reduce_plan_make(&j.x, x, mask, ct);
  aci_reduce_plan_make(&j.dy, dy, mask, ct);
  if (!ARG_NONE(f, 5)) {
    aci_reduce_plan_make(&dsum, ARG_T(f, 5), mask, ct);
    j.addend = &dsum;
  }
  const int64_t n = j.x.n_reduced, rows = (j.x.n_out + MAX_PIECES - 1) / MAX_PIECES;
  const size_t row = (size_t)n * aci_ctype_bytes(ct);
  j.rows = rows < MIN_ROWS ? MIN_ROWS : rows;
  const int64_t n_pieces = x->numel == 0 ? 0 : (j.x.n_out + j.rows - 1) / j.rows;
  AC_TRY(ac_block_alloc(f->device, (size_t)(1 + 2 * n_pieces) * row, AC_MEM_ACTIVATION, f->stream,
                        &mem, e));
  ac_status st = aci_slots_open(&slots, f, n_pieces, (j.addend != NULL ? 4 : 3) * row, e);
  if (st == AC_OK) {
    j.w = ac_block_ptr(mem);
    j.part = (char *)ac_block_ptr(mem) + row;
    if (n_pieces > 0) fill_row(&f->args[3], ct, 1, n, ac_block_ptr(mem));
    ac_parallel_for(f->team, n_pieces, 1, backward, &j);
    for (int k = 1; k < f->n_out; k++) join(&j, n_pieces, k - 1, f->out[k]);
    aci_slots_close(&slots);
  }
  ac_block_free(mem);
  return st;
}
