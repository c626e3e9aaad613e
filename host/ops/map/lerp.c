/* lerp: y = x + weight (other - x), on the line through x and other. Exact at both ends.
   x, other, weight (tensor or number, shapes that broadcast) -> y
   gradient: dx = dy (1 - weight), dother = dy weight, dweight = dy (other - x), each summed over the dims that were
   broadcast.
   example: accel.tensor { 0.0, 10.0 }:lerp(accel.tensor { 4.0, 20.0 }, 0.25) --> { 1, 12.5 }
   example: accel.lerp(accel.zeros(2), accel.ones(2), accel.tensor { 0.5, 1.0 }) --> { 0.5, 1 } */
#include "ops/map/map.h"

#define FWD(T, p, x, y, w) \
  ((w) < (T)0.5 ? m_fma((w), (y) - (x), (x)) : m_fma((w)-1, (y) - (x), (y)))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0];
  ac_operand w = aci_grad_operand(g, 2);
  ac_scalar one = aci_float(1);
  if (ac_grad_needs(g, 0)) {
    ac_operand rest = w.tensor != NULL ? T(x_sub(x, F(1), w, one)) : F(1 - aci_scalar_f(w.scalar));
    ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, x_mul(x, T(dy), rest)));
  }
  if (ac_grad_needs(g, 1)) ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, x_mul(x, T(dy), w)));
  if (ac_grad_needs(g, 2)) {
    ac_tensor *way = x_sub(x, T(ARG_T(g, 1)), T(ARG_T(g, 0)), one);
    ac_grad_set(g, 2, ac_grad_reduce_to(g, 2, x_mul(x, T(dy), T(way))));
  }
}

/* x + weight (other - x) */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  ac_tensor *way = x_sub(x, T(a[1].tensor), T(a[0].tensor), aci_float(1));
  way = x_mul(x, T(way), aci_value_operand(&a[2]));
  out[0] = x_add(x, T(a[0].tensor), T(way), aci_float(1));
  return 1;
}

AC_MAP3(lerp, FWD, .sig = "lerp(x: tensor, other: tensor, weight: operand) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0) | AC_SAVE_IN(1) | AC_SAVE_IN(2),
        .save_for = {1 << 2, 1 << 2, 1 << 0 | 1 << 1}, .inplace = true, .flops_per_element = 4,
        .on_complex = on_complex);
