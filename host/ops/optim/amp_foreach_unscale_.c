/* amp_foreach_unscale_: a list of gradients multiplied by one number in a single pass, which also
   checks whether all of them are then finite.
   g = g inv_scale,  found_inf = 1 when any g is infinite, NaN, or outside its dtype's range, else it stays
   grads: a list of floats of any shapes. inv_scale (1 / loss scale, or any other factor), found_inf: one element
   each. Computed in f32, in f64 for f64.
   gradient: none. Run it inside no_grad.
   example: local g = accel.tensor {8.0, 4} accel.amp_foreach_unscale_({g}, accel.zeros({}), accel.full({}, 0.25)) return g --> { 2, 1 } */
#include <stdatomic.h>

#include "base/vmath.h"
#include "device/cpu/isa.h"
#include "ops/optim/lists.h"

enum { GRADS, FOUND, FACTOR };

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_list_floats(f, GRADS, e));
  AC_TRY(aci_list_gradients(f, GRADS, e));
  AC_TRY(aci_number_check(f, FOUND, e));
  return aci_number_check(f, FACTOR, e);
}

typedef struct unscale_job {
  ac_tensor *const *g;
  double factor;
  atomic_int found;
} unscale_job;

/* The largest value that still rounds to a finite number of the dtype. */
static float largest(ac_dtype t) {
  if (t == AC_F16) return 0x1.ffdffep+15f;
  if (t == AC_BF16) return 0x1.fefffep+127f;
  return 0x1.fffffep+127f;
}

AC_ISA_FN(unscale_f32, (int64_t n, float *x, float a, float top, int *bad), (n, x, a, top, bad)) {
  int b = 0;
  for (int64_t i = 0; i < n; i++) {
    x[i] *= a;
    b |= !(fabsf(x[i]) <= top);
  }
  *bad |= b;
}

AC_ISA_FN(unscale_f64, (int64_t n, double *x, double a, int *bad), (n, x, a, bad)) {
  int b = 0;
  for (int64_t i = 0; i < n; i++) {
    x[i] *= a;
    b |= !isfinite(x[i]);
  }
  *bad |= b;
}

static void piece(void *arg, int i, int64_t chunk, int64_t begin, int64_t n) {
  unscale_job *j = arg;
  const ac_tensor *t = j->g[i];
  const aci_ctype ct = t->dtype == AC_F64 ? ACI_C_F64 : ACI_C_F32;
  bool direct = aci_list_direct(t, ct);
  _Alignas(64) char buf[ACI_LIST_ROW * 8];
  int bad = 0;
  (void)chunk;
  for (int64_t step = direct ? n : ACI_LIST_ROW, at = begin; at < begin + n; at += step) {
    int64_t m = begin + n - at < step ? begin + n - at : step;
    void *row = aci_list_row(t, ct, direct, at, m, buf);
    if (ct == ACI_C_F64) unscale_f64(m, row, j->factor, &bad);
    else unscale_f32(m, row, (float)j->factor, largest((ac_dtype)t->dtype), &bad);
    if (!direct) aci_elems_store(t, ct, at, m, row);
  }
  if (bad) atomic_store_explicit(&j->found, 1, memory_order_relaxed);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_value *v = &f->args[GRADS];
  unscale_job j = {.g = v->tensors, .factor = aci_number_get(ARG_T(f, FACTOR))};
  AC_TRY(aci_list_run(f, v->n, v->tensors, piece, &j, e));
  if (j.found) aci_number_set(ARG_T(f, FOUND), 1);
  return AC_OK;
}

AC_OP(amp_foreach_unscale_,
      .sig = "amp_foreach_unscale_(grads!: tensors, found_inf!: tensor, inv_scale: tensor) -> ()",
      .shape = shape, .cpu = cpu, .nondiff = true);
