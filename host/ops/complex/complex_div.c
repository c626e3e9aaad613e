/* complex_div: z = x / y, or x / conj y, of numbers as pairs, scaled by the larger part of y (Smith).
   x, y (..., 2) that broadcast -> z (..., 2)
   gradient: dx = dz / conj y (conj: dz / y), dy = -dz conj z / conj y (conj: the conjugate of -dz conj z / y), summed over the
   dims that were broadcast. */
#include <math.h>

#include "ops/complex/pairs.h"

#define FORM(T)                                                      \
  const bool wide = (c < 0 ? -c : c) >= (d < 0 ? -d : d);            \
  const T big = wide ? c : d, small = wide ? d : c;                  \
  const T r = small / (big == 0 ? 1 : big);                          \
  const T den = big + small * r, p = wide ? a : b, q = wide ? b : a; \
  re = (p + q * r) / den;                                            \
  im = (wide ? q - p * r : p * r - q) / den;
ACI_PAIRS_FN(div_f32, float, FORM)
ACI_PAIRS_FN(div_f64, double, FORM)

static ac_status cpu(ac_frame *f, ac_err *e) { return aci_pairs_run(f, div_f32, div_f64, e); }

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dz = g->dout[0];
  const bool conj = ARG_B(g, 2);
  ac_tensor *dx = x_complex_div(x, dz, ARG_T(g, 1), !conj);
  ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, dx));
  if (!ac_grad_needs(g, 1)) return;
  ac_tensor *z = x_complex_div(x, ARG_T(g, 0), ARG_T(g, 1), conj);
  /* conj: the conjugate of dx conj z is z conj dx */
  ac_tensor *d = conj ? x_complex_mul(x, z, dx, true) : x_complex_mul(x, dx, z, true);
  ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, x_neg(x, d)));
}

/* In plain ops, for devices without a kernel. */
static int composed(ac_expr *x, const ac_value *args, ac_tensor **out) {
  ac_tensor *c = x_select(x, args[1].tensor, -1, 0), *d = x_select(x, args[1].tensor, -1, 1);
  ac_tensor *r = x_unsqueeze(x, x_complex_abs(x, T(c), T(d)), -1);
  ac_tensor *unit = x_div(x, T(args[1].tensor), T(r));
  out[0] = x_div(x, T(x_complex_mul(x, args[0].tensor, unit, !args[2].b)), T(r));
  return 1;
}

static int64_t flops(const ac_frame *f) { return f->out[0]->numel * 6; }

AC_OP(complex_div, .sig = "complex_div(x: tensor, y: tensor, conj: bool = false) -> tensor",
      .shape = aci_pairs_shape, .cpu = cpu, .grad = grad, .composed = composed, .flops = flops,
      .hidden = true);
