/* complex_mul: z = x y, or x conj y, of numbers as pairs.          x, y (..., 2) that broadcast -> z (..., 2)
   gradient: dx = dz conj y (conj: dz y), dy = dz conj x (conj: x conj dz), summed over the dims that were broadcast. */
#include "ops/complex/pairs.h"

#define FORM(T)       \
  re = a * c - b * d; \
  im = a * d + b * c;
ACI_PAIRS_FN(mul_f32, float, FORM)
ACI_PAIRS_FN(mul_f64, double, FORM)

static ac_status cpu(ac_frame *f, ac_err *e) { return aci_pairs_run(f, mul_f32, mul_f64, e); }

static void grad(ac_grad *g) {
  ac_tensor *dz = g->dout[0];
  const bool conj = ARG_B(g, 2);
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, x_complex_mul(&g->x, dz, ARG_T(g, 1), !conj)));
  if (!ac_grad_needs(g, 1)) return;
  ac_tensor *d = conj ? x_complex_mul(&g->x, ARG_T(g, 0), dz, true)
                      : x_complex_mul(&g->x, dz, ARG_T(g, 0), true);
  ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, d));
}

/* In plain ops, for devices without a kernel. */
static int composed(ac_expr *x, const ac_value *args, ac_tensor **out) {
  ac_tensor *a = x_select(x, args[0].tensor, -1, 0), *b = x_select(x, args[0].tensor, -1, 1);
  ac_tensor *c = x_select(x, args[1].tensor, -1, 0), *d = x_select(x, args[1].tensor, -1, 1);
  if (args[2].b) d = x_neg(x, d);
  ac_tensor *both[2] = {x_sub(x, T(x_mul(x, T(a), T(c))), T(x_mul(x, T(b), T(d))), aci_float(1)),
                        x_add(x, T(x_mul(x, T(a), T(d))), T(x_mul(x, T(b), T(c))), aci_float(1))};
  out[0] = x_stack(x, both, 2, -1);
  return 1;
}

static int64_t flops(const ac_frame *f) { return f->out[0]->numel * 3; }

AC_OP(complex_mul, .sig = "complex_mul(x: tensor, y: tensor, conj: bool = false) -> tensor",
      .shape = aci_pairs_shape, .cpu = cpu, .grad = grad, .composed = composed, .flops = flops,
      .hidden = true);
