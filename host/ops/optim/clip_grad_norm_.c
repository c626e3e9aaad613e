/* clip_grad_norm_: gradients scaled down together so that their common norm is at most max_norm.
   grads (list of floats)! -> norm before (one element, f32, or f64 when any is f64). Each grad *= min(1, max_norm
   / (norm + 1e-6)). An infinite max_norm only measures.
   norm_type p > 0, 0 (count of nonzeros) or inf. Sums run in f64 over fixed chunks, then pairwise over
   chunks.
   gradient: none. Run it inside no_grad.
   example: local g = accel.tensor { 3.0, 4 } local norm = accel.clip_grad_norm_({ g }, 1) return norm, g --> 5, { 0.6, 0.8 } */
#include <stdlib.h>

#include "base/vmath.h"
#include "device/cpu/isa.h"
#include "ops/optim/lists.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  bool wide = false;
  AC_TRY(aci_list_floats(f, 0, e));
  AC_TRY(aci_list_gradients(f, 0, e));
  if (!(ARG_F(f, 2) >= 0))
    return AC_FAIL(e, INVALID, "norm_type must not be negative, got %g", ARG_F(f, 2));
  for (int i = 0; i < f->args[0].n; i++) wide |= f->args[0].tensors[i]->dtype == AC_F64;
  return ac_frame_out(f, wide ? AC_F64 : AC_F32, 0, NULL, e);
}

typedef struct clip_norm_job {
  ac_tensor *const *g;
  double p, scale;
  double *part; /* one per chunk */
} clip_norm_job;

enum { LANES = 16 };

AC_ISA_FN(squares_f32, (int64_t n, const float *x, double *lane), (n, x, lane)) {
  double s[LANES];
  memcpy(s, lane, sizeof s);
  for (int64_t i = 0; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++) s[k] += (double)x[i + k] * (double)x[i + k];
  for (int64_t i = n / LANES * LANES; i < n; i++) s[i % LANES] += (double)x[i] * (double)x[i];
  memcpy(lane, s, sizeof s);
}

static double squares_f64(int64_t n, const double *x) {
  double s[LANES] = {0}, sum = 0;
  for (int64_t i = 0; i < n; i++) s[i % LANES] += x[i] * x[i];
  for (int k = 0; k < LANES; k++) sum += s[k];
  return sum;
}

static double gather(double p, int64_t n, const double *x, double sum) {
  for (int64_t i = 0; i < n; i++) {
    double a = fabs(x[i]);
    if (isinf(p)) sum = aci_max(sum, a);
    else sum += p == 0 ? a != 0 : p == 1 ? a : pow(a, p);
  }
  return sum;
}

static void measure(void *arg, int i, int64_t chunk, int64_t begin, int64_t n) {
  const clip_norm_job *j = arg;
  const ac_tensor *t = j->g[i];
  _Alignas(64) char buf[ACI_LIST_ROW * 8];
  double sum = 0, lane[LANES] = {0};
  if (j->p == 2 && t->dtype != AC_F64) {
    bool direct = aci_list_direct(t, ACI_C_F32);
    for (int64_t step = direct ? n : ACI_LIST_ROW, at = begin; at < begin + n; at += step) {
      int64_t m = begin + n - at < step ? begin + n - at : step;
      squares_f32(m, aci_list_row(t, ACI_C_F32, direct, at, m, buf), lane);
    }
    for (int k = 0; k < LANES; k++) sum += lane[k];
  } else {
    for (int64_t at = begin; at < begin + n; at += ACI_LIST_ROW) {
      int64_t m = begin + n - at < ACI_LIST_ROW ? begin + n - at : ACI_LIST_ROW;
      const double *x = aci_list_row(t, ACI_C_F64, aci_list_direct(t, ACI_C_F64), at, m, buf);
      sum = j->p == 2 ? sum + squares_f64(m, x) : gather(j->p, m, x, sum);
    }
  }
  j->part[chunk] = sum;
}

AC_ISA_FN(scale_f32, (int64_t n, float *x, float a), (n, x, a)) {
  for (int64_t i = 0; i < n; i++) x[i] *= a;
}
static void scale_f64(int64_t n, double *x, double a) {
  for (int64_t i = 0; i < n; i++) x[i] *= a;
}

static void shrink(void *arg, int i, int64_t chunk, int64_t begin, int64_t n) {
  const clip_norm_job *j = arg;
  const ac_tensor *t = j->g[i];
  const aci_ctype ct = t->dtype == AC_F64 ? ACI_C_F64 : ACI_C_F32;
  bool direct = aci_list_direct(t, ct);
  _Alignas(64) char buf[ACI_LIST_ROW * 8];
  (void)chunk;
  for (int64_t step = direct ? n : ACI_LIST_ROW, at = begin; at < begin + n; at += step) {
    int64_t m = begin + n - at < step ? begin + n - at : step;
    void *row = aci_list_row(t, ct, direct, at, m, buf);
    if (ct == ACI_C_F64) scale_f64(m, row, j->scale);
    else scale_f32(m, row, (float)j->scale);
    if (!direct) aci_elems_store(t, ct, at, m, row);
  }
}

/* Pairwise, in place. */
static double join(double *v, int64_t n, bool max) {
  if (n == 0) return 0;
  for (; n > 1; n = (n + 1) / 2)
    for (int64_t i = 0; i < (n + 1) / 2; i++) {
      double b = 2 * i + 1 < n ? v[2 * i + 1] : 0;
      v[i] = max ? aci_max(v[2 * i], b) : v[2 * i] + b;
    }
  return v[0];
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_value *v = &f->args[0];
  double max_norm = ARG_F(f, 1), p = ARG_F(f, 2);
  int64_t chunks = aci_list_chunks(v->n, v->tensors);
  double *part = malloc((size_t)(chunks + 1) * sizeof *part);
  if (part == NULL) return AC_FAIL(e, OOM, "no memory for %lld sums", (long long)chunks);
  clip_norm_job j = {v->tensors, p, 1, part};
  ac_status st = aci_list_run(f, v->n, v->tensors, measure, &j, e);
  double norm = join(part, chunks, isinf(p));
  free(part);
  if (st != AC_OK) return st;
  if (p == 2) norm = sqrt(norm);
  else if (p != 0 && p != 1 && !isinf(p)) norm = pow(norm, 1 / p);
  if (f->out[0]->dtype == AC_F32) norm = (float)norm;
  if (ARG_B(f, 3) && !isfinite(norm))
    return AC_FAIL(e, INVALID, "the total norm of the gradients is %g; nothing was changed", norm);
  aci_number_set(f->out[0], norm);
  if (isinf(max_norm)) return AC_OK;
  j.scale = max_norm / (norm + 1e-6);
  if (j.scale >= 1) return AC_OK; /* NaN is passed on, as in PyTorch */
  return aci_list_run(f, v->n, v->tensors, shrink, &j, e);
}

AC_OP(
    clip_grad_norm_,
    .sig =
        "clip_grad_norm_(grads!: tensors, max_norm: float, norm_type: float = 2, error_if_nonfinite: "
        "bool = false) -> tensor",
    .shape = shape, .cpu = cpu, .nondiff = true);
