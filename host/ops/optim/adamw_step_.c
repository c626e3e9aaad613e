/* adamw_step_: one AdamW update of a list of parameters in a single pass (Loshchilov and Hutter, with
   PyTorch's arithmetic).
   step += 1;  p *= 1 - lr wd;  m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2;
   p -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
   params, grads, exp_avgs, exp_avg_sqs: lists of equal length and shapes, any floats; lr and step: one
   element each. Computed in f32, in f64 where any of the four is f64.
   gradient: none; run it inside no_grad. */
#include "base/vmath.h"
#include "device/cpu/isa.h"
#include "ops/optim/lists.h"

enum { PARAMS, GRADS, AVGS, SQS, LR, STEP, BETA1, BETA2, EPS, DECAY, MAXIMIZE };

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_list_floats(f, PARAMS, e));
  for (int i = GRADS; i <= SQS; i++) AC_TRY(aci_list_match(f, i, e));
  AC_TRY(aci_number_check(f, LR, e));
  AC_TRY(aci_number_check(f, STEP, e));
  double b1 = ARG_F(f, BETA1), b2 = ARG_F(f, BETA2);
  if (!(b1 >= 0 && b1 < 1) || !(b2 >= 0 && b2 < 1))
    return AC_FAIL(e, INVALID, "betas %g and %g must lie in [0, 1)", b1, b2);
  if (!(ARG_F(f, EPS) >= 0)) return AC_FAIL(e, INVALID, "eps must not be negative, got %g", ARG_F(f, EPS));
  return AC_OK;
}

/* The factors of one step. */
typedef struct factors {
  double keep, lerp, beta2, square, step_size, root, eps, sign;
} factors;

typedef struct job {
  ac_tensor *const *p, *const *g, *const *m, *const *v;
  factors k;
} job;

#define UPDATE(NAME, T, FMA, SQRT)                                                                           \
  AC_ISA_FN(NAME,                                                                                            \
            (int64_t n, T *restrict p, const T *restrict g, T *restrict m, T *restrict v, const factors *k), \
            (n, p, g, m, v, k)) {                                                                            \
    const T keep = (T)k->keep, lerp = (T)k->lerp, beta2 = (T)k->beta2, square = (T)k->square;                \
    const T size = (T)-k->step_size, root = (T)k->root, eps = (T)k->eps, sign = (T)k->sign;                  \
    for (int64_t i = 0; i < n; i++) {                                                                        \
      T gi = g[i] * sign;                                                                                    \
      T mi = FMA(lerp, gi - m[i], m[i]);                                                                     \
      T vi = FMA(square * gi, gi, v[i] * beta2);                                                             \
      T denom = FMA(SQRT(vi), root, eps);                                                                    \
      p[i] = FMA(size, mi / denom, p[i] * keep);                                                             \
      m[i] = mi;                                                                                             \
      v[i] = vi;                                                                                             \
    }                                                                                                        \
  }
UPDATE(update_f32, float, aci_fma32, __builtin_sqrtf)
UPDATE(update_f64, double, aci_fma64, __builtin_sqrt)

static void piece(void *arg, int i, int64_t chunk, int64_t begin, int64_t n) {
  const job *j = arg;
  const ac_tensor *t[4] = {j->p[i], j->g[i], j->m[i], j->v[i]};
  bool wide = false, direct[4], all = true;
  (void)chunk;
  for (int k = 0; k < 4; k++) wide |= t[k]->dtype == AC_F64;
  aci_ctype ct = wide ? ACI_C_F64 : ACI_C_F32;
  for (int k = 0; k < 4; k++) all &= direct[k] = aci_list_direct(t[k], ct);
  _Alignas(64) char buf[4][ACI_LIST_ROW * 8];
  for (int64_t step = all ? n : ACI_LIST_ROW, at = begin; at < begin + n; at += step) {
    int64_t m = begin + n - at < step ? begin + n - at : step;
    void *row[4];
    for (int k = 0; k < 4; k++) row[k] = aci_list_row(t[k], ct, direct[k], at, m, buf[k]);
    if (wide) update_f64(m, row[0], row[1], row[2], row[3], &j->k);
    else update_f32(m, row[0], row[1], row[2], row[3], &j->k);
    for (int k = 0; k < 4; k++)
      if (!direct[k] && k != 1) aci_elems_store(t[k], ct, at, m, row[k]);
  }
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  double lr = aci_number_get(ARG_T(f, LR)), step = aci_number_get(ARG_T(f, STEP)) + 1;
  double b1 = ARG_F(f, BETA1), b2 = ARG_F(f, BETA2);
  job j = {f->args[PARAMS].tensors,
           f->args[GRADS].tensors,
           f->args[AVGS].tensors,
           f->args[SQS].tensors,
           {.keep = 1 - lr * ARG_F(f, DECAY),
            .lerp = 1 - b1,
            .beta2 = b2,
            .square = 1 - b2,
            .step_size = lr / (1 - pow(b1, step)),
            .root = 1 / sqrt(1 - pow(b2, step)),
            .eps = ARG_F(f, EPS),
            .sign = ARG_B(f, MAXIMIZE) ? -1 : 1}};
  AC_TRY(aci_list_run(f, f->args[PARAMS].n, j.p, piece, &j, e));
  aci_number_set(ARG_T(f, STEP), step);
  return AC_OK;
}

AC_OP(adamw_step_,
      .sig = "adamw_step_(params!: tensors, grads: tensors, exp_avgs!: tensors, exp_avg_sqs!: tensors, "
             "lr: tensor, step!: tensor, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, "
             "weight_decay: float = 0.01, maximize: bool = false) -> ()",
      .shape = shape, .cpu = cpu, .nondiff = true);
