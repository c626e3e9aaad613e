/* Kernels of softmax and log_softmax, forward and backward. A slice along dim is a row: used in
 * place when it is contiguous and of the compute type, copied into a buffer otherwise, with its
 * neighbours when they share cache lines. Adjacent short rows go in batches: each operation runs
 * over all of their elements in one loop. Rows run in parallel. */
#include "base/vmath.h"
#include "ops/reduce/lanes.h"
#include "ops/reduce/slots.h"
#include "ops/reduce/softmax.h"

/* Rows turned together, their maximum length for that, and a padding that keeps them from falling
 * on the same cache sets. */
enum { GROUP = 32, GROUP_ROW = 8192, PAD = 16 };
/* The longest row that goes by batches, and elements of a batch. */
enum { SHORT = 96, BATCH = 2048 };

/* One instruction, which vectorises in short rows as well. NaN may be skipped, as it comes back
 * with its exponential. */
#define MAX_X(a, i) (x[i] > (a) ? x[i] : (a))
#define JOIN_MAX(a, b) ((b) > (a) ? (b) : (a))
#define DOT_XY(a, i) m_fma(x[i], y[i], a)

#define T float
#define sfx f32
#include "ops/reduce/softmax_rows.h"

#define T double
#define sfx f64
#include "ops/reduce/softmax_rows.h"

#define ADD_X(a, i) ((a) + x[i])
#define T float
#define sfx f32
#include "ops/reduce/softmax_short.h"

#define T double
#define sfx f64
#include "ops/reduce/softmax_short.h"

typedef struct softmax_job {
  aci_reduce_plan a, b, o; /* inputs (x, or dy and y) and the output */
  bool two, logs;
  int64_t group;    /* neighbouring rows that are copied together. 1: each alone */
  aci_slots *slots; /* three groups of rows of the compute type each */
} softmax_job;

static void row(const softmax_job *j, const void *a, const void *b, void *y) {
  const int64_t n = j->a.n_reduced;
  if (j->a.ct == ACI_C_F32 && j->two) row_backward_f32(a, b, y, n, j->logs);
  else if (j->a.ct == ACI_C_F32) row_f32(a, y, n, j->logs);
  else if (j->two) row_backward_f64(a, b, y, n, j->logs);
  else row_f64(a, y, n, j->logs);
}

/* m rows that stand side by side in memory, to (or from) one after the other in buf. */
static void turn(const aci_reduce_plan *p, int64_t base, int64_t m, char *buf, bool back) {
  const int64_t n = p->n_reduced, pitch = n + PAD, es = (int64_t)aci_dsize(p->dt);
  double tmp[GROUP];
  for (int64_t i = 0; i < n; i++) {
    char *at = (char *)(uintptr_t)p->ptr + (base + i * p->red_stride[0]) * es;
    if (!back) aci_load(p->ct, tmp, p->dt, at, 1, m);
    if (p->ct == ACI_C_F32) {
      float *t = (float *)(void *)tmp, *v = (float *)(void *)buf + i;
      for (int64_t k = 0; k < m; k++)
        *(back ? t + k : v + k * pitch) = *(back ? v + k * pitch : t + k);
    } else {
      double *v = (double *)(void *)buf + i;
      for (int64_t k = 0; k < m; k++)
        *(back ? tmp + k : v + k * pitch) = *(back ? v + k * pitch : tmp + k);
    }
    if (back) aci_store(p->ct, tmp, p->dt, at, 1, m);
  }
}

static void groups(const softmax_job *j, int64_t begin, int64_t end, char *buf) {
  const size_t bytes = (size_t)(j->a.n_reduced + PAD) * aci_ctype_bytes(j->a.ct),
               all = bytes * (size_t)j->group;
  const int64_t width = j->o.keep_shape[j->o.n_keep - 1];
  for (int64_t r = begin; r < end;) {
    int64_t m = width - r % width < end - r ? width - r % width : end - r;
    if (m > j->group) m = j->group;
    turn(&j->a, aci_reduce_base(&j->a, r), m, buf, false);
    if (j->two) turn(&j->b, aci_reduce_base(&j->b, r), m, buf + all, false);
    for (int64_t k = 0; k < m; k++) {
      size_t at = (size_t)k * bytes;
      row(j, buf + at, buf + all + at, buf + 2 * all + at);
    }
    turn(&j->o, aci_reduce_base(&j->o, r), m, buf + 2 * all, true);
    r += m;
  }
}

static void batches(void *arg, int64_t begin, int64_t end) {
  const softmax_job *j = arg;
  const int64_t n = j->a.n_reduced, es = (int64_t)aci_ctype_bytes(j->a.ct), most = BATCH / n;
  for (int64_t r = begin; r < end; r += most) {
    const int64_t m = end - r < most ? end - r : most;
    const void *a = j->a.ptr + r * n * es, *b = j->two ? j->b.ptr + r * n * es : NULL;
    void *y = (char *)(uintptr_t)j->o.ptr + r * n * es;
    if (j->a.ct == ACI_C_F32 && j->two) short_back_f32(a, b, y, m, n, j->logs);
    else if (j->a.ct == ACI_C_F32) short_f32(a, y, m, n, j->logs);
    else if (j->two) short_back_f64(a, b, y, m, n, j->logs);
    else short_f64(a, y, m, n, j->logs);
  }
}

static void range(void *arg, int64_t begin, int64_t end) {
  const softmax_job *j = arg;
  const int64_t n = j->a.n_reduced;
  const aci_ctype ct = j->a.ct;
  const size_t bytes = (size_t)n * aci_ctype_bytes(ct);
  const bool direct =
      (n == 1 || j->o.red_stride[0] == 1) && aci_ctype_bytes(ct) == aci_dsize(j->o.dt);
  int slot = aci_slots_take(j->slots);
  char *buf = aci_slots_at(j->slots, slot);
  if (j->group > 1) groups(j, begin, end, buf);
  else
    for (int64_t r = begin; r < end; r++) {
      char *dst =
          (char *)(uintptr_t)j->o.ptr + aci_reduce_base(&j->o, r) * (int64_t)aci_dsize(j->o.dt);
      const void *a = aci_reduce_block(&j->a, aci_reduce_base(&j->a, r), 0, n, buf);
      const void *b =
          j->two ? aci_reduce_block(&j->b, aci_reduce_base(&j->b, r), 0, n, buf + bytes) : NULL;
      void *y = direct ? dst : buf + 2 * bytes;
      if (a != buf) aci_row_ahead(a, (int64_t)bytes);
      if (b != NULL && b != buf + bytes) aci_row_ahead(b, (int64_t)bytes);
      row(j, a, b, y);
      if (!direct) aci_store(ct, y, j->o.dt, dst, j->o.red_stride[0], n);
    }
  aci_slots_give(j->slots, slot);
}

/* Rows along another dim than the last, whose elements are apart while those of neighbouring rows
 * are together. */
static bool side_by_side(const aci_reduce_plan *p, int64_t width) {
  return p->n_red == 1 && p->keep_stride[p->n_keep - 1] == 1 &&
         p->keep_shape[p->n_keep - 1] == width && p->red_stride[0] != 1;
}

/* Rows one after the other, and of the type that is computed in. */
static bool no_gaps(const aci_reduce_plan *p) {
  return p->n_red == 1 && p->n_keep == 1 && p->red_stride[0] == 1 &&
         p->keep_stride[0] == p->n_reduced && p->dt == (p->ct == ACI_C_F32 ? AC_F32 : AC_F64);
}

static ac_status run(ac_frame *f, const ac_tensor *a, const ac_tensor *b, int dim_arg, bool logs,
                     ac_err *e) {
  aci_slots slots;
  softmax_job j = {.two = b != NULL, .logs = logs, .group = 1, .slots = &slots};
  uint32_t mask = aci_reduce_mask(&f->args[dim_arg], a->ndim);
  aci_ctype ct = aci_ctype_of((ac_dtype)f->out[0]->dtype);
  if (f->out[0]->numel == 0) return AC_OK;
  aci_reduce_plan_make(&j.a, a, mask, ct);
  if (b != NULL) aci_reduce_plan_make(&j.b, b, mask, ct);
  aci_reduce_plan_make(&j.o, f->out[0], mask, ct);
  if (j.a.n_reduced <= SHORT && no_gaps(&j.a) && no_gaps(&j.o) && (b == NULL || no_gaps(&j.b))) {
    ac_parallel_for(f->team, j.a.n_out, aci_reduce_grain(&j.a), batches, &j);
    return AC_OK;
  }
  const int64_t width = j.o.keep_shape[j.o.n_keep - 1];
  if (width >= GROUP / 2 && j.a.n_reduced <= GROUP_ROW && side_by_side(&j.o, width) &&
      side_by_side(&j.a, width) && (b == NULL || side_by_side(&j.b, width)))
    j.group = GROUP;
  int64_t grain = aci_reduce_grain(&j.a);
  grain = (grain + j.group - 1) / j.group * j.group;
  const size_t bytes =
      3 * (size_t)(j.group * (j.a.n_reduced + (j.group > 1 ? PAD : 0))) * aci_ctype_bytes(ct);
  AC_TRY(aci_slots_open(&slots, f, (j.a.n_out + grain - 1) / grain, bytes, e));
  ac_parallel_for(f->team, j.a.n_out, grain, range, &j);
  aci_slots_close(&slots);
  return AC_OK;
}

ac_status aci_softmax_run(ac_frame *f, bool logs, ac_err *e) {
  return run(f, ARG_T(f, 0), NULL, 1, logs, e);
}
ac_status aci_softmax_run_backward(ac_frame *f, bool logs, ac_err *e) {
  return run(f, ARG_T(f, 0), ARG_T(f, 1), 2, logs, e);
}

ac_status aci_softmax_shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  ac_dtype dt = ARG_NONE(f, 2) ? (ac_dtype)x->dtype : f->args[2].dtype;
  int d;
  if (!ac_dtype_is_float(dt))
    return AC_FAIL(e, DTYPE,
                   "the result must be floating point, not %s; pass dtype or cast the tensor",
                   ac_dtype_name(dt));
  AC_TRY(ac_frame_dim(f, 1, x->ndim, &d, e));
  return ac_frame_out(f, dt, x->ndim, x->shape, e);
}

ac_status aci_softmax_shape_backward(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, 0), *y = ARG_T(f, 1);
  int d;
  char a[128], b[128];
  if (!aci_same_shape(dy, y))
    return AC_FAIL(e, SHAPE, "the gradient has shape %s, the result %s",
                   aci_shape_str(dy->ndim, dy->shape, a, sizeof a),
                   aci_shape_str(y->ndim, y->shape, b, sizeof b));
  AC_TRY(ac_frame_dim(f, 2, y->ndim, &d, e));
  return ac_frame_out(f, (ac_dtype)y->dtype, y->ndim, y->shape, e);
}
