/* div: y = x / other, broadcast. Integers are divided as floats. With rounding_mode "trunc" the quotient is rounded
   towards 0, with "floor" down as by floor_divide, and integers stay integers.
   x, other (any shapes that broadcast) -> y
   gradient: dx = dy / other, dother = -dy * (x / other) / other, each summed over the dims that were
   broadcast. 0 with a rounding mode.
   example: accel.tensor { 1, 3 }:div(2) --> { 0.5, 1.5 }
   example: accel.tensor { 1.0, -6 }:div(accel.tensor { 4.0, 3 }) --> { 0.25, -2 }
   example: accel.tensor { 7, -7 }:div(2, { rounding_mode = "trunc" }) --> { 3, -3 } */
#include "ops/map/modulo.h"

#define FWD(T, p, x, y) ((x) / (y))
#define TRUNC(T, p, x, y) m_trunc((x) / (y))
#define TRUNC_INT(T, p, x, y) ((y) == -1 ? 0 - (x) : (x) / (y))
ACI_LOOP2(div, float, f32, FWD)
ACI_LOOP2(div, double, f64, FWD)
ACI_LOOP2(div_trunc, float, f32, TRUNC)
ACI_LOOP2(div_trunc, double, f64, TRUNC)
ACI_LOOP2(div_trunc, int64_t, i64, TRUNC_INT)
static const aci_map div_map = {2, div_f32, div_f64, NULL};
static const aci_map div_trunc_map = {2, div_trunc_f32, div_trunc_f64, div_trunc_i64};

/* Runs rule for the call as if it were one of the map of its rounding mode. */
static ac_status as_rounded(ac_frame *f, ac_kernel rule, ac_err *e) {
  const ac_op_desc *own = f->desc;
  ac_op_desc d = *own;
  d.data = ARG_I(f, 2) == AC_DIV_ROUNDING_MODE_TRUNC ? &div_trunc_map : &aci_floor_divide_map;
  f->desc = &d;
  const ac_status st = rule(f, e);
  f->desc = own;
  return st;
}
static ac_status shape(ac_frame *f, ac_err *e) {
  return ARG_I(f, 2) == AC_DIV_ROUNDING_MODE_NONE ? aci_map_shape(f, e)
                                                  : as_rounded(f, aci_modulo_shape, e);
}
static ac_status cpu(ac_frame *f, ac_err *e) {
  return ARG_I(f, 2) == AC_DIV_ROUNDING_MODE_NONE ? aci_map_cpu(f, e)
                                                  : as_rounded(f, aci_modulo_cpu, e);
}

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  if (ARG_I(g, 2) != AC_DIV_ROUNDING_MODE_NONE) {
    aci_grad_zero(g, 0);
    aci_grad_zero(g, 1);
    return;
  }
  ac_tensor *dy = g->dout[0];
  ac_operand other = aci_grad_operand(g, 1);
  if (ac_grad_needs(g, 0)) ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, x_div(x, T(dy), other)));
  if (!ac_grad_needs(g, 1)) return;
  ac_tensor *q = x_div(x, T(x_div(x, aci_grad_operand(g, 0), other)), other);
  ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, x_neg(x, x_mul(x, T(dy), T(q)))));
}

/* by the larger part of the divisor, as in complex_div */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  if (a[2].i != AC_DIV_ROUNDING_MODE_NONE) {
    x->st = AC_FAIL(x->e, DTYPE, "complex numbers are not rounded; leave out rounding_mode");
    return 0;
  }
  const ac_operand p = aci_value_operand(&a[0]), q = aci_value_operand(&a[1]);
  if (aci_operand_is_complex(q)) out[0] = aci_complex_product(x, p, q, true);
  else out[0] = aci_join(x, x_div(x, aci_re_of(x, p), q), x_div(x, aci_im_of(x, p), q));
  return 1;
}

AC_OP(div,
      .sig = "div(x: operand, other: operand, rounding_mode: enum(none|trunc|floor) = none) -> "
             "tensor",
      .shape = shape, .cpu = cpu, .any_device = true, .elementwise = true, .data = &div_map,
      .grad = grad, .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .save_for = {1 << 1}, .inplace = true,
      .flops_per_element = 1, .alias = "divide true_divide", .on_complex = on_complex);
