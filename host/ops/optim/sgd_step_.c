/* sgd_step_: one update of a list of parameters by stochastic gradient descent in a single pass, with
   PyTorch's arithmetic.
   g += weight_decay p;  momentum: buf = first ? g : momentum buf + (1 - dampening) g;
   g = nesterov ? g + momentum buf : buf;  p -= lr g
   params, grads, momentum_buffers (empty without momentum): lists of equal shapes; lr: one element.
   gradient: none; run it inside no_grad. */
#include "base/vmath.h"
#include "device/cpu/isa.h"
#include "ops/optim/lists.h"

enum { PARAMS, GRADS, BUFFERS, LR, MOMENTUM, DAMPENING, DECAY, NESTEROV, MAXIMIZE, FIRST };

static ac_status shape(ac_frame *f, ac_err *e) {
  double momentum = ARG_F(f, MOMENTUM);
  AC_TRY(aci_list_floats(f, PARAMS, e));
  AC_TRY(aci_list_match(f, GRADS, e));
  if (!(momentum >= 0)) return AC_FAIL(e, INVALID, "momentum must not be negative, got %g", momentum);
  if (momentum != 0 || f->args[BUFFERS].n != 0) AC_TRY(aci_list_match(f, BUFFERS, e));
  if (ARG_B(f, NESTEROV) && (momentum == 0 || ARG_F(f, DAMPENING) != 0))
    return AC_FAIL(e, INVALID, "nesterov needs a momentum and no dampening, got momentum %g and dampening %g",
                   momentum, ARG_F(f, DAMPENING));
  return aci_number_check(f, LR, e);
}

typedef struct factors {
  double lr, momentum, fresh, decay, sign;
  bool nesterov, first;
} factors;

typedef struct job {
  ac_tensor *const *p, *const *g, *const *b; /* b NULL: no momentum */
  factors k;
} job;

#define UPDATE(NAME, T, FMA)                                                                        \
  AC_ISA_FN(NAME, (int64_t n, T *restrict p, const T *restrict g, T *restrict b, const factors *k), \
            (n, p, g, b, k)) {                                                                      \
    const T lr = (T)-k->lr, mu = (T)k->momentum, fresh = (T)k->fresh, decay = (T)k->decay,          \
            sign = (T)k->sign;                                                                      \
    if (b == NULL) {                                                                                \
      for (int64_t i = 0; i < n; i++) p[i] = FMA(lr, FMA(decay, p[i], g[i] * sign), p[i]);          \
    } else if (k->first) {                                                                          \
      for (int64_t i = 0; i < n; i++) {                                                             \
        T gi = FMA(decay, p[i], g[i] * sign);                                                       \
        b[i] = gi;                                                                                  \
        p[i] = FMA(lr, k->nesterov ? FMA(mu, gi, gi) : gi, p[i]);                                   \
      }                                                                                             \
    } else {                                                                                        \
      for (int64_t i = 0; i < n; i++) {                                                             \
        T gi = FMA(decay, p[i], g[i] * sign), bi = FMA(fresh, gi, mu * b[i]);                       \
        b[i] = bi;                                                                                  \
        p[i] = FMA(lr, k->nesterov ? FMA(mu, bi, gi) : bi, p[i]);                                   \
      }                                                                                             \
    }                                                                                               \
  }
UPDATE(update_f32, float, aci_fma32)
UPDATE(update_f64, double, aci_fma64)

static void piece(void *arg, int i, int64_t chunk, int64_t begin, int64_t n) {
  const job *j = arg;
  const ac_tensor *t[3] = {j->p[i], j->g[i], j->b != NULL ? j->b[i] : NULL};
  const int n_t = j->b != NULL ? 3 : 2;
  bool wide = false, direct[3], all = true;
  (void)chunk;
  for (int k = 0; k < n_t; k++) wide |= t[k]->dtype == AC_F64;
  aci_ctype ct = wide ? ACI_C_F64 : ACI_C_F32;
  for (int k = 0; k < n_t; k++) all &= direct[k] = aci_list_direct(t[k], ct);
  _Alignas(64) char buf[3][ACI_LIST_ROW * 8];
  for (int64_t step = all ? n : ACI_LIST_ROW, at = begin; at < begin + n; at += step) {
    int64_t m = begin + n - at < step ? begin + n - at : step;
    void *row[3] = {NULL, NULL, NULL};
    for (int k = 0; k < n_t; k++) row[k] = aci_list_row(t[k], ct, direct[k], at, m, buf[k]);
    if (wide) update_f64(m, row[0], row[1], row[2], &j->k);
    else update_f32(m, row[0], row[1], row[2], &j->k);
    for (int k = 0; k < n_t; k++)
      if (!direct[k] && k != 1) aci_elems_store(t[k], ct, at, m, row[k]);
  }
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  job j = {f->args[PARAMS].tensors,
           f->args[GRADS].tensors,
           ARG_F(f, MOMENTUM) != 0 ? f->args[BUFFERS].tensors : NULL,
           {.lr = aci_number_get(ARG_T(f, LR)),
            .momentum = ARG_F(f, MOMENTUM),
            .fresh = 1 - ARG_F(f, DAMPENING),
            .decay = ARG_F(f, DECAY),
            .sign = ARG_B(f, MAXIMIZE) ? -1 : 1,
            .nesterov = ARG_B(f, NESTEROV),
            .first = ARG_B(f, FIRST)}};
  return aci_list_run(f, f->args[PARAMS].n, j.p, piece, &j, e);
}

AC_OP(sgd_step_,
      .sig = "sgd_step_(params!: tensors, grads: tensors, momentum_buffers!: tensors, lr: tensor, momentum: "
             "float = 0, "
             "dampening: float = 0, weight_decay: float = 0, nesterov: bool = false, maximize: bool = false, "
             "first: bool = false) -> ()",
      .shape = shape, .cpu = cpu, .nondiff = true);
