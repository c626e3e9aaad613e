/* The driver of losses of pairs. */
#include "ops/loss/elementwise.h"

#include "ops/core/ctx_impl.h"
#include "ops/index/index.h"
#include "ops/reduce/reduce.h"

enum { CHUNK = 1 << 15 };

static ac_status same(const ac_tensor *x, const ac_tensor *t, const char *xn, const char *tn,
                      ac_err *e) {
  char a[128], b[128];
  if (!ac_dtype_is_float((ac_dtype)x->dtype) || !ac_dtype_is_float((ac_dtype)t->dtype))
    return AC_FAIL(e, DTYPE, "%s and %s must be floating point, got %s and %s; use :to", xn, tn,
                   ac_dtype_name((ac_dtype)x->dtype), ac_dtype_name((ac_dtype)t->dtype));
  if (!aci_same_shape(x, t))
    return AC_FAIL(
        e, SHAPE,
        "%s %s and %s %s differ in shape; expand or reshape one to the shape of the other", xn,
        aci_shape_str(x->ndim, x->shape, a, sizeof a), tn,
        aci_shape_str(t->ndim, t->shape, b, sizeof b));
  return AC_OK;
}

ac_status aci_elementwise_loss_shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, ACI_LOSS_INPUT);
  AC_TRY(same(x, ARG_T(f, ACI_LOSS_TARGET), "input", "target", e));
  ac_dtype dt = ac_frame_promote(f, 0, 1);
  if (ARG_I(f, ACI_LOSS_REDUCTION) != ACI_LOSS_NONE) return ac_frame_out(f, dt, 0, NULL, e);
  return ac_frame_out(f, dt, x->ndim, x->shape, e);
}

typedef struct elementwise_loss_job {
  const ac_tensor *x, *t;
  aci_ctype ct;
  aci_map_fn loop;
  bool x_direct, t_direct;
  const void *p;
  double *part; /* by chunk */
} elementwise_loss_job;

static bool direct(const ac_tensor *t, aci_ctype ct) {
  return t->dtype == (ct == ACI_C_F32 ? AC_F32 : AC_F64) && aci_is_contiguous(t);
}

static const void *rows(const ac_tensor *t, bool in_place, aci_ctype ct, int64_t at, int64_t n,
                        void *buf) {
  if (in_place) return (const char *)aci_data(t) + at * (int64_t)aci_ctype_bytes(ct);
  aci_elems_load(t, ct, at, n, buf);
  return buf;
}

static void chunks(void *arg, int64_t begin, int64_t end) {
  const elementwise_loss_job *j = arg;
  _Alignas(64) double x[ACI_RED_BLOCK], t[ACI_RED_BLOCK], y[ACI_RED_BLOCK];
  for (int64_t c = begin; c < end; c++) {
    double sum = 0;
    int64_t stop = (c + 1) * CHUNK < j->x->numel ? (c + 1) * CHUNK : j->x->numel;
    for (int64_t at = c * CHUNK; at < stop; at += ACI_RED_BLOCK) {
      int64_t n = stop - at < ACI_RED_BLOCK ? stop - at : ACI_RED_BLOCK;
      const void *in[2] = {rows(j->x, j->x_direct, j->ct, at, n, x),
                           rows(j->t, j->t_direct, j->ct, at, n, t)};
      j->loop(n, y, in, j->p);
      sum +=
          j->ct == ACI_C_F32 ? aci_sum_f32((const float *)(const void *)y, n) : aci_sum_f64(y, n);
    }
    j->part[c] = sum;
  }
}

ac_status aci_elementwise_loss_cpu(ac_frame *f, ac_err *e) {
  const aci_map *m = f->desc->data;
  const int64_t reduction = ARG_I(f, ACI_LOSS_REDUCTION);
  if (reduction == ACI_LOSS_NONE) return aci_map_run(f, m, e);
  elementwise_loss_job j = {.x = ARG_T(f, ACI_LOSS_INPUT),
                            .t = ARG_T(f, ACI_LOSS_TARGET),
                            .ct = aci_ctype_of((ac_dtype)f->out[0]->dtype)};
  double wide[ACI_MAP_MAX_P] = {0};
  float narrow[ACI_MAP_MAX_P] = {0};
  for (int i = 2; i < f->n_args; i++) {
    const ac_value *v = &f->args[i];
    wide[i - 2] = v->kind == AC_T_FLOAT ? v->f : v->kind == AC_T_BOOL ? (double)v->b : (double)v->i;
    narrow[i - 2] = (float)wide[i - 2];
  }
  j.loop = (j.ct == ACI_C_F32 ? m->f32 : m->f64)->run;
  j.p = j.ct == ACI_C_F32 ? (const void *)narrow : wide;
  j.x_direct = direct(j.x, j.ct);
  j.t_direct = direct(j.t, j.ct);
  const int64_t n = j.x->numel, n_chunks = (n + CHUNK - 1) / CHUNK;
  double sum = 0, one;
  ac_block *block = NULL;
  j.part = &one;
  if (n_chunks > 1) {
    AC_TRY(ac_block_alloc(f->device, (size_t)n_chunks * sizeof(double), AC_MEM_ACTIVATION,
                          f->stream, &block, e));
    j.part = ac_block_ptr(block);
  }
  if (n_chunks == 1) chunks(&j, 0, 1);
  else if (n_chunks > 1) ac_parallel_for(f->team, n_chunks, 1, chunks, &j);
  for (int64_t c = 0; c < n_chunks; c++) sum += j.part[c];
  ac_block_free(block);
  if (reduction == ACI_LOSS_MEAN) sum /= (double)n;
  if (reduction == ACI_LOSS_BATCHMEAN) sum /= j.x->ndim > 0 ? (double)j.x->shape[0] : 1.0;
  aci_store(ACI_C_F64, &sum, (ac_dtype)f->out[0]->dtype, aci_data(f->out[0]), 1, 1);
  return AC_OK;
}

double aci_elementwise_loss_scale(const ac_grad *g) {
  const int64_t *shape = ac_grad_shape(g, ACI_LOSS_INPUT, 0),
                n = ac_grad_ndim(g, ACI_LOSS_INPUT, 0);
  double numel = 1;
  if (ARG_I(g, ACI_LOSS_REDUCTION) == ACI_LOSS_BATCHMEAN)
    return n > 0 && shape[0] > 0 ? 1 / (double)shape[0] : 1;
  if (ARG_I(g, ACI_LOSS_REDUCTION) != ACI_LOSS_MEAN) return 1;
  for (int64_t d = 0; d < n; d++) numel *= (double)shape[d];
  return numel > 0 ? 1 / numel : 1;
}

void aci_elementwise_loss_grad(ac_grad *g, ac_tensor *dinput) {
  if (ac_grad_needs(g, ACI_LOSS_INPUT))
    ac_grad_set(g, ACI_LOSS_INPUT, ac_grad_reduce_to(g, ACI_LOSS_INPUT, dinput));
  if (ac_grad_needs(g, ACI_LOSS_TARGET))
    ac_grad_set(g, ACI_LOSS_TARGET, ac_grad_reduce_to(g, ACI_LOSS_TARGET, x_neg(&g->x, dinput)));
}

ac_tensor *aci_loss_reduce(ac_expr *x, ac_tensor *elements, int64_t reduction) {
  if (elements == NULL || reduction == ACI_LOSS_NONE) return elements;
  if (reduction == ACI_LOSS_MEAN) return x_mean(x, elements, NULL, 0, false, NULL);
  double rows = elements->ndim > 0 ? (double)elements->shape[0] : 1;
  ac_tensor *sum = x_sum(x, elements, NULL, 0, false, NULL);
  return reduction == ACI_LOSS_SUM ? sum : x_div(x, T(sum), F(rows));
}

ac_status aci_loss_same(ac_expr *x, const ac_value *a, const ac_value *b, const char *an,
                        const char *bn) {
  if (x->st == AC_OK) x->st = same(a->tensor, b->tensor, an, bn, x->e);
  return x->st;
}
