/* Rows of cross_entropy: one row is the logits of one element over the classes, used in place or
 * copied to a buffer in f32 (f64). With m the largest logit, S = sum of e^(x - m) and r[c] = w[c] *
 * ((1 - s) q[c] + s / C), a row's loss is sum of r[c] * ((m - x[c]) + ln S), which is safe for
 * logits of any size, and its gradient e^(x[c] - m) / S * sum(r) - r[c]. */
#include <math.h>

#include "device/cpu/isa.h"
#include "ops/loss/cross_entropy.h"
#include "ops/reduce/slots.h"
#include "ops/reduce/softmax.h"

typedef struct cross_entropy_job {
  aci_reduce_plan x, t, o; /* logits, target probabilities, gradients of logits */
  aci_ce_targets y;
  aci_reduce_plan dy;
  int reduction;
  double smooth, divisor; /* of mean, 1 otherwise */
  double *loss;           /* per row */
  aci_slots *slots;
} cross_entropy_job;

/* y = a * y - b * w */
#define AXPBY(T, sfx)                                                                 \
  AC_ISA_FN(axpby_##sfx, (T * y, T a, T b, const T *w, int64_t n), (y, a, b, w, n)) { \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = a * y[i] - b * w[i];  \
  }                                                                                   \
  AC_ISA_FN(scale_##sfx, (T * y, T a, T b, int64_t n), (y, a, b, n)) {                \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = a * y[i] - b;         \
  }
AXPBY(float, f32)
AXPBY(double, f64)

#define T float
#define sfx f32
#include "ops/loss/cross_entropy_rows.h"

#define T double
#define sfx f64
#include "ops/loss/cross_entropy_rows.h"

static void forward(void *arg, int64_t begin, int64_t end) {
  const cross_entropy_job *j = arg;
  const int64_t n = j->x.n_reduced;
  const size_t row = (size_t)n * aci_ctype_bytes(j->x.ct);
  int slot = aci_slots_take(j->slots);
  char *buf = aci_slots_at(j->slots, slot);
  for (int64_t i = begin; i < end; i++) {
    int64_t y = j->y.id != NULL ? j->y.id[i] : -1;
    if (j->y.id != NULL && y == j->y.ignore) {
      j->loss[i] = 0;
      continue;
    }
    const void *x = aci_reduce_block(&j->x, aci_reduce_base(&j->x, i), 0, n, buf);
    const void *q = j->y.id != NULL
                        ? NULL
                        : aci_reduce_block(&j->t, aci_reduce_base(&j->t, i), 0, n, buf + row);
    j->loss[i] = j->x.ct == ACI_C_F32 ? row_f32(j, x, q, y, (float *)(void *)(buf + 2 * row))
                                      : row_f64(j, x, q, y, (double *)(void *)(buf + 2 * row));
  }
  aci_slots_give(j->slots, slot);
}

static void backward(void *arg, int64_t begin, int64_t end) {
  const cross_entropy_job *j = arg;
  const int64_t n = j->x.n_reduced, es = (int64_t)aci_dsize(j->o.dt), step = j->o.red_stride[0];
  const size_t row = (size_t)n * aci_ctype_bytes(j->x.ct);
  const bool direct = (n == 1 || step == 1) && aci_ctype_bytes(j->x.ct) == (size_t)es;
  int slot = aci_slots_take(j->slots);
  char *buf = aci_slots_at(j->slots, slot);
  for (int64_t i = begin; i < end; i++) {
    char *dst = (char *)(uintptr_t)j->o.ptr + aci_reduce_base(&j->o, i) * es;
    char *dx = direct ? dst : buf + 2 * row;
    int64_t y = j->y.id != NULL ? j->y.id[i] : -1;
    double g;
    int64_t dy_at =
        aci_reduce_base(&j->dy, j->reduction == AC_CROSS_ENTROPY_REDUCTION_NONE ? i : 0);
    aci_load(ACI_C_F64, &g, j->dy.dt, j->dy.ptr + dy_at * (int64_t)aci_dsize(j->dy.dt), 1, 1);
    if (j->y.id != NULL && y == j->y.ignore) {
      memset(dx, 0, row);
    } else {
      const void *x = aci_reduce_block(&j->x, aci_reduce_base(&j->x, i), 0, n, buf);
      const void *q = j->y.id != NULL
                          ? NULL
                          : aci_reduce_block(&j->t, aci_reduce_base(&j->t, i), 0, n, buf + row);
      if (j->x.ct == ACI_C_F32) row_back_f32(j, x, q, y, g / j->divisor, (float *)(void *)dx);
      else row_back_f64(j, x, q, y, g / j->divisor, (double *)(void *)dx);
    }
    if (!direct) aci_store(j->x.ct, dx, j->o.dt, dst, step, n);
  }
  aci_slots_give(j->slots, slot);
}

static ac_status read_ids(ac_frame *f, const ac_tensor *t, int64_t n_classes, aci_ce_targets *y,
                          ac_err *e) {
  aci_reduce_plan p;
  aci_reduce_plan_make(&p, t, ACI_ALL_DIMS, ACI_C_I64);
  AC_TRY(ac_block_alloc(f->device, (size_t)t->numel * 8, AC_MEM_ACTIVATION, f->stream, &y->id_block,
                        e));
  const int64_t *v = aci_reduce_block(&p, 0, 0, t->numel, ac_block_ptr(y->id_block));
  for (int64_t i = 0; i < t->numel; i++)
    if (v[i] != y->ignore && (v[i] < 0 || v[i] >= n_classes))
      return AC_FAIL(
          e, INDEX,
          "target %lld at position %lld is not one of the %lld classes (0 to %lld; ignore_index is %lld)",
          (long long)v[i], (long long)ac_frame_show(f, i), (long long)n_classes,
          (long long)n_classes - 1, (long long)y->ignore);
  y->id = v;
  y->n_rows = t->numel;
  return AC_OK;
}

ac_status aci_ce_targets_read(ac_frame *f, const ac_tensor *target, int64_t n_classes,
                              int64_t ignore, const ac_tensor *weight, aci_ctype ct,
                              aci_ce_targets *y, ac_err *e) {
  *y = (aci_ce_targets){.ignore = ignore, .ct = ct, .sum_w = (double)n_classes};
  if (target != NULL) AC_TRY(read_ids(f, target, n_classes, y, e));
  if (weight != NULL) {
    aci_reduce_plan p;
    aci_reduce_plan_make(&p, weight, ACI_ALL_DIMS, ct);
    AC_TRY(ac_block_alloc(f->device, (size_t)p.n_reduced * 8, AC_MEM_ACTIVATION, f->stream,
                          &y->w_block, e));
    aci_reduce_fetch(&p, 0, 0, p.n_reduced, ac_block_ptr(y->w_block));
    y->w = ac_block_ptr(y->w_block);
    y->sum_w = ct == ACI_C_F32 ? aci_sum_f32(y->w, p.n_reduced) : aci_sum_f64(y->w, p.n_reduced);
  }
  for (int64_t i = 0; i < y->n_rows; i++)
    if (y->id[i] != ignore) y->total += aci_ce_weight(y, y->id[i]);
  return AC_OK;
}

void aci_ce_targets_free(aci_ce_targets *y) {
  ac_block_free(y->id_block);
  ac_block_free(y->w_block);
}

/* Setup shared by forward and backward. at: position of input among the arguments. */
static ac_status prepare(cross_entropy_job *j, ac_frame *f, int at, uint32_t mask, ac_err *e) {
  const ac_tensor *x = ARG_T(f, at), *t = ARG_T(f, at + 1);
  const aci_ctype ct = aci_ctype_of((ac_dtype)x->dtype);
  const bool by_class = !ac_dtype_is_float((ac_dtype)t->dtype);
  aci_reduce_plan_make(&j->x, x, mask, ct);
  aci_reduce_plan_make(&j->t, t, mask, ct); /* meaningful for probabilities only */
  j->reduction = (int)ARG_I(f, at + 4);
  j->smooth = ARG_F(f, at + 5);
  AC_TRY(aci_ce_targets_read(f, by_class ? t : NULL, j->x.n_reduced, ARG_I(f, at + 3),
                             ARG_NONE(f, at + 2) ? NULL : ARG_T(f, at + 2), ct, &j->y, e));
  j->divisor = j->reduction != AC_CROSS_ENTROPY_REDUCTION_MEAN ? 1
               : by_class                                      ? j->y.total
                                                               : (double)j->x.n_out;
  return AC_OK;
}

static ac_status run(cross_entropy_job *j, ac_frame *f, void (*fn)(void *, int64_t, int64_t),
                     ac_err *e) {
  aci_slots slots;
  const int64_t grain = aci_reduce_grain(&j->x);
  const size_t row = (size_t)j->x.n_reduced * aci_ctype_bytes(j->x.ct);
  if (j->x.n_out == 0 || j->x.n_reduced == 0) return AC_OK;
  AC_TRY(aci_slots_open(&slots, f, (j->x.n_out + grain - 1) / grain, 3 * row, e));
  j->slots = &slots;
  ac_parallel_for(f->team, j->x.n_out, grain, fn, j);
  aci_slots_close(&slots);
  return AC_OK;
}

ac_status aci_ce_run(ac_frame *f, uint32_t mask, ac_err *e) {
  cross_entropy_job j = {.loss = NULL};
  ac_block *loss = NULL;
  const ac_tensor *out = f->out[0];
  ac_status st = prepare(&j, f, 0, mask, e);
  if (st == AC_OK)
    st = ac_block_alloc(f->device, (size_t)j.x.n_out * 8, AC_MEM_ACTIVATION, f->stream, &loss, e);
  if (st == AC_OK) {
    j.loss = ac_block_ptr(loss);
    if (j.x.n_reduced == 0 && j.x.n_out > 0)
      memset(j.loss, 0, (size_t)j.x.n_out * 8); /* no classes, no row runs */
    st = run(&j, f, forward, e);
  }
  if (st == AC_OK && j.reduction == AC_CROSS_ENTROPY_REDUCTION_NONE) {
    aci_store(ACI_C_F64, j.loss, (ac_dtype)out->dtype, aci_data(out), 1, out->numel);
  } else if (st == AC_OK) {
    double v = aci_sum_f64(j.loss, j.x.n_out) / j.divisor;
    aci_store(ACI_C_F64, &v, (ac_dtype)out->dtype, aci_data(out), 1, 1);
  }
  aci_ce_targets_free(&j.y);
  ac_block_free(loss);
  return st;
}

ac_status aci_ce_run_backward(ac_frame *f, uint32_t mask, ac_err *e) {
  cross_entropy_job j = {.loss = NULL};
  ac_status st = prepare(&j, f, 1, mask, e);
  if (st == AC_OK) {
    aci_reduce_plan_make(&j.o, f->out[0], mask, j.x.ct);
    aci_reduce_plan_make(&j.dy, ARG_T(f, 0), 0, ACI_C_F64);
    st = run(&j, f, backward, e);
  }
  aci_ce_targets_free(&j.y);
  return st;
}
