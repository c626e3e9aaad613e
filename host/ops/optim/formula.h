/* Macros for formulas of optimizers. Each formula is written once, in its op's .c file, for the CPU (step.h) and, collected by the
 * generator, for CUDA (step.cuh).
 *
 *   enum { PARAMS, GRADS, LR };                     the arguments of the signature, by position
 *   typedef struct factors { double lr; } factors;  the values that all elements share
 *   ACI_STEP_FACTORS void prepare(aci_step_args *a, factors *k) { k->lr = a->x[LR]; }
 *   #define FORMULA(T)                                                        \
 *     const T lr = (T)-k->lr;                                                 \
 *     for (int64_t i = 0; i < n; i++) p[i] = m_fma(lr, g[i], p[i]);
 *   ACI_STEP2(plain, FORMULA, p, g)
 *   ACI_STEP_KERNEL(plain_step_, plain, prepare)    its kernel: aci_cpu_plain_step_
 *
 * Lists of the formula are the op's lists in the order of the signature. Those that the signature marks as mutated are stored. FORMULA
 * sees n elements of each by the names given, `k`, and `scale`, the parameter's own number if the op takes one for each (otherwise 1).
 * ACI_STEP_KERNEL_OPT: a list in the mask OPTIONAL may be missing, as none or, if it is in the mask GATED, because argument GATE is 0.
 * FORMULA gets NULL for it. */
#ifndef ACI_OPS_FORMULA_H
#define ACI_OPS_FORMULA_H
#include "base/vmath.h"
#include "ops/core/ctx_impl.h"

enum { ACI_STEP_LISTS = 5, ACI_STEP_BYTES = 128 /* most that factors take */ };

/* Numbers of a call by their position in the signature. */
typedef struct aci_step_args {
  double x
      /* options, and tensors of one element: the mutated ones take the values that prepare leaves
       * here */
      [AC_MAX_ARGS];
  uint32_t wide;  /* bit: a tensor in f64 */
  uint32_t given; /* bit: not none */
  bool skip;      /* set by prepare: the step is left out, nothing is written */
} aci_step_args;

/* For prepare, if the signature has inv_scale: tensor? at `at` and found_inf: tensor? after it, for
 * gradients of scaled or clipped losses: the factor of every gradient. */
#define ACI_STEP_SCALE(a, at) \
  ((a)->skip = (a)->x[(at) + 1] != 0, ((a)->given >> (at)&1) != 0 ? (a)->x[at] : 1.0)

/* x + w (y - x) for formulas, exact at both ends. */
#define ACI_LERP(x, y, w) m_fma((w) < 0.5f ? (w) : (w)-1, (y) - (x), (w) < 0.5f ? (x) : (y))

/* The lists of a call. */
typedef struct aci_step_lists {
  int n; /* of tensors in each */
  int n_lists;
  ac_tensor *const *lists[ACI_STEP_LISTS]; /* NULL: missing */
  uint32_t writes;                         /* bit per list */
  const double *scale;                     /* by tensor. NULL: 1 */
} aci_step_lists;

static inline double aci_step_option(const ac_value *v) {
  return v->kind == AC_T_FLOAT  ? v->f
         : v->kind == AC_T_BOOL ? (double)v->b
         : v->kind == AC_T_INT  ? (double)v->i
                                : 0;
}

static inline aci_step_lists aci_step_lists_of(const ac_frame *f, uint32_t gated, int gate) {
  aci_step_lists s;
  memset(&s, 0, sizeof s);
  s.n = f->args[0].n;
  for (int i = 0; i < f->n_args; i++) {
    const ac_value *v = &f->args[i];
    if (v->kind == AC_T_FLOATS) s.scale = v->floats;
    if (f->op->sig->param[i].type != AC_T_TENSORS) continue;
    const bool missing = v->kind != AC_T_TENSORS ||
                         ((gated >> s.n_lists & 1) && aci_step_option(&f->args[gate]) == 0);
    s.lists[s.n_lists] = missing ? NULL : v->tensors;
    s.writes |= (f->op->mutates >> i & 1) << s.n_lists++;
  }
  return s;
}

#endif
