/* Lists of tensors walked by an optimizer's formula: see step.h. */
#include "ops/optim/step.h"

#include "ops/ctx_impl.h"

static void piece(void *arg, int i, int64_t chunk, int64_t begin, int64_t n) {
  const aci_step *s = arg;
  const ac_tensor *t[ACI_STEP_LISTS];
  bool wide = false, direct[ACI_STEP_LISTS], all = true;
  (void)chunk;
  for (int k = 0; k < s->n; k++) {
    t[k] = s->lists[k] != NULL ? s->lists[k][i] : NULL;
    wide |= t[k] != NULL && t[k]->dtype == AC_F64;
  }
  const aci_ctype ct = wide ? ACI_C_F64 : ACI_C_F32;
  const aci_step_fn fn = wide ? s->f64 : s->f32;
  for (int k = 0; k < s->n; k++) all &= direct[k] = t[k] == NULL || aci_list_direct(t[k], ct);
  _Alignas(64) char buf[ACI_STEP_LISTS][ACI_LIST_ROW * 8];
  for (int64_t step = all ? n : ACI_LIST_ROW, at = begin; at < begin + n; at += step) {
    int64_t m = begin + n - at < step ? begin + n - at : step;
    void *row[ACI_STEP_LISTS];
    for (int k = 0; k < s->n; k++)
      row[k] = t[k] != NULL ? aci_list_row(t[k], ct, direct[k], at, m, buf[k]) : NULL;
    fn(m, row, s->k, i);
    for (int k = 0; k < s->n; k++)
      if (!direct[k] && !(s->reads >> k & 1)) aci_elems_store(t[k], ct, at, m, row[k]);
  }
}

ac_status aci_step_run(ac_frame *f, const aci_step *s, ac_err *e) {
  return aci_list_run(f, f->args[0].n, s->lists[0], piece, (void *)(uintptr_t)s, e);
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
    if (!(ARG_F(f, i) >= 0))
      return AC_FAIL(e, INVALID, "%s must not be negative, got %g", aci_op_sig(f->op)->param[i].name,
                     ARG_F(f, i));
  return AC_OK;
}

ac_status aci_step_betas(const ac_frame *f, int at, ac_err *e) {
  double b1 = ARG_F(f, at), b2 = ARG_F(f, at + 1);
  if (!(b1 >= 0 && b1 < 1) || !(b2 >= 0 && b2 < 1))
    return AC_FAIL(e, INVALID, "betas %g and %g must lie in [0, 1)", b1, b2);
  return AC_OK;
}
