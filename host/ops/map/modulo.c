/* Shared by remainder and fmod: the check for integer divisors of zero, the shape rule and the
 * gradient. */
#include "ops/map/modulo.h"

#include "ops/reduce/reduce.h"

ac_status aci_modulo_shape(ac_frame *f, ac_err *e) {
  if (ac_frame_promote(f, 0, 1) == AC_BOOL)
    return AC_FAIL(e, DTYPE, "is not defined for bool; cast to an integer or float dtype first");
  return aci_map_shape(f, e);
}

static ac_status refuse(const ac_frame *f, int64_t at, ac_err *e) {
  return AC_FAIL(e, INVALID, "integer division by zero (element %lld of the divisor)",
                 (long long)ac_frame_show(f, at));
}

/* Integers have no NaN, so a zero among the divisors is an error. On the CPU it is found before
 * anything is written. On other devices the check would have to wait for the device. */
ac_status aci_modulo_cpu(ac_frame *f, ac_err *e) {
  const ac_value *v = &f->args[1];
  const bool looks = !ac_dtype_is_float((ac_dtype)f->out[0]->dtype) &&
                     (v->kind == AC_T_SCALAR || f->device->kind == AC_DEV_CPU);
  if (!looks || f->out[0]->numel == 0) return aci_map_cpu(f, e);
  if (v->kind == AC_T_SCALAR)
    return aci_scalar_i(v->scalar) == 0 ? refuse(f, 0, e) : aci_map_cpu(f, e);
  aci_reduce_plan p;
  int64_t block[ACI_RED_BLOCK];
  aci_reduce_plan_make(&p, v->tensor, ACI_ALL_DIMS, ACI_C_I64);
  for (int64_t i = 0; i < p.n_reduced; i += ACI_RED_BLOCK) {
    int64_t n = p.n_reduced - i < ACI_RED_BLOCK ? p.n_reduced - i : ACI_RED_BLOCK;
    aci_reduce_fetch(&p, 0, i, n, block);
    for (int64_t k = 0; k < n; k++)
      if (block[k] == 0) return refuse(f, i + k, e);
  }
  return aci_map_cpu(f, e);
}

/* (x - y) / other is the whole quotient but for rounding. */
void aci_modulo_grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0];
  ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, dy));
  if (!ac_grad_needs(g, 1)) return;
  ac_tensor *whole =
      x_round(x,
              x_div(x, T(x_sub(x, aci_grad_operand(g, 0), T(g->out[0]), aci_float(1))),
                    aci_grad_operand(g, 1)),
              0);
  ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, x_neg(x, x_mul(x, T(dy), T(whole)))));
}
