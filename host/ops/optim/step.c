/* Lists of tensors walked by an optimizer's formula: see step.h. */
#include "ops/optim/step.h"

#include "ops/core/ctx_impl.h"

typedef struct step_job {
  aci_step_lists l;
  const aci_step *s;
  const void *k;
} step_job;

static void piece(void *arg, int i, int64_t chunk, int64_t begin, int64_t n) {
  const step_job *j = arg;
  const int n_lists = j->l.n_lists;
  const ac_tensor *t[ACI_STEP_LISTS];
  bool wide = false, direct[ACI_STEP_LISTS], all = true;
  (void)chunk;
  for (int k = 0; k < n_lists; k++) {
    t[k] = j->l.lists[k] != NULL ? j->l.lists[k][i] : NULL;
    wide |= t[k] != NULL && t[k]->dtype == AC_F64;
  }
  const aci_ctype ct = wide ? ACI_C_F64 : ACI_C_F32;
  const aci_step_fn fn = wide ? j->s->f64 : j->s->f32;
  const double scale = j->l.scale != NULL ? j->l.scale[i] : 1;
  for (int k = 0; k < n_lists; k++) all &= direct[k] = t[k] == NULL || aci_list_direct(t[k], ct);
  _Alignas(64) char buf[ACI_STEP_LISTS][ACI_LIST_ROW * 8];
  for (int64_t step = all ? n : ACI_LIST_ROW, at = begin; at < begin + n; at += step) {
    int64_t m = begin + n - at < step ? begin + n - at : step;
    void *row[ACI_STEP_LISTS];
    for (int k = 0; k < n_lists; k++)
      row[k] = t[k] != NULL ? aci_list_row(t[k], ct, direct[k], at, m, buf[k]) : NULL;
    fn(m, row, j->k, scale);
    for (int k = 0; k < n_lists; k++)
      if (!direct[k] && (j->l.writes >> k & 1)) aci_elems_store(t[k], ct, at, m, row[k]);
  }
}

ac_status aci_step_run(ac_frame *f, const aci_step *s, ac_err *e) {
  _Alignas(16) char k[ACI_STEP_BYTES];
  aci_step_args a = {.wide = 0};
  step_job j = {aci_step_lists_of(f, s->gated, s->gate), s, k};
  for (int i = 0; i < f->n_args; i++) {
    a.x[i] =
        f->args[i].kind == AC_T_TENSOR ? aci_number_get(ARG_T(f, i)) : aci_step_option(&f->args[i]);
    if (f->args[i].kind == AC_T_TENSOR && ARG_T(f, i)->dtype == AC_F64) a.wide |= 1u << i;
    if (f->args[i].kind != AC_T_NONE) a.given |= 1u << i;
  }
  s->prepare(&a, k);
  if (a.skip) return AC_OK;
  AC_TRY(aci_list_run(f, j.l.n, j.l.lists[0], piece, &j, e));
  for (int i = 0; i < f->n_args; i++)
    if (f->args[i].kind == AC_T_TENSOR && (f->op->mutates >> i & 1))
      aci_number_set(ARG_T(f, i), a.x[i]);
  return AC_OK;
}

ac_status aci_step_shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_list_floats(f, 0, e));
  for (int i = 1; i < f->n_args; i++) {
    if (f->args[i].kind == AC_T_TENSORS) AC_TRY(aci_list_match(f, i, e));
    else if (f->args[i].kind == AC_T_TENSOR) AC_TRY(aci_number_check(f, i, e));
  }
  return AC_OK;
}

ac_status aci_step_not_negative(const ac_frame *f, int first, int last, ac_err *e) {
  for (int i = first; i <= last; i++)
    if (!(aci_step_option(&f->args[i]) >= 0))
      return AC_FAIL(e, INVALID, "%s must not be negative, got %g",
                     aci_op_sig(f->op)->param[i].name, aci_step_option(&f->args[i]));
  return AC_OK;
}

ac_status aci_step_betas(const ac_frame *f, int at, ac_err *e) {
  double b1 = ARG_F(f, at), b2 = ARG_F(f, at + 1);
  if (!(b1 >= 0 && b1 < 1) || !(b2 >= 0 && b2 < 1))
    return AC_FAIL(e, INVALID, "betas %g and %g must lie in [0, 1)", b1, b2);
  return AC_OK;
}
