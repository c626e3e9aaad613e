/* addcmul: y = x + value tensor1 tensor2.          x, tensor1, tensor2 (any shapes that broadcast) -> y
   gradient: dx = dy, dtensor1 = dy value tensor2, dtensor2 = dy value tensor1, each summed over the dims that were
   broadcast.
   example: accel.addcmul(accel.ones(2), accel.tensor { 2.0, 3.0 }, accel.tensor { 4.0, 5.0 }, 0.5) --> { 5, 8.5 } */
#include "ops/map/map.h"

#define FWD(T, p, x, a, b) ((x) + p[0] * ((a) * (b)))
ACI_LOOP3(addcmul, float, f32, FWD)
ACI_LOOP3(addcmul, double, f64, FWD)
ACI_LOOP3(addcmul, int64_t, i64, FWD)
static const aci_map addcmul_map = {3, addcmul_f32, addcmul_f64, addcmul_i64};

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_factor_check(f, 3, ac_frame_promote(f, 0, 2), e));
  return aci_map_shape_nobool(f, e);
}

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0];
  double value = aci_scalar_f(g->args[3].scalar);
  ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, dy));
  for (int i = 1; i < 3; i++) {
    if (!ac_grad_needs(g, i)) continue;
    ac_tensor *d = x_mul(x, T(dy), T(ARG_T(g, 3 - i)));
    if (value != 1) d = x_mul(x, T(d), F(value));
    ac_grad_set(g, i, ac_grad_reduce_to(g, i, d));
  }
}

/* x + value tensor1 tensor2 */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  ac_tensor *y = x_mul(x, T(a[1].tensor), T(a[2].tensor));
  out[0] = x_add(x, T(a[0].tensor), T(y), a[3].scalar);
  return 1;
}

AC_OP(addcmul,
      .sig = "addcmul(x: tensor, tensor1: tensor, tensor2: tensor, value: scalar = 1) -> tensor",
      .shape = shape, .cpu = aci_map_cpu, .elementwise = true, .data = &addcmul_map, .grad = grad,
      .save = AC_SAVE_IN(1) | AC_SAVE_IN(2), .save_for = {0, 1 << 2, 1 << 1}, .inplace = true,
      .flops_per_element = 3, .on_complex = on_complex);
