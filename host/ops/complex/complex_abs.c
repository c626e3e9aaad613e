/* complex_abs: sqrt(re^2 + im^2) without overflow, the magnitude of complex numbers.
   re, im (shapes that broadcast) -> y          gradient: dre = dy re / y, dim = dy im / y, 0 at 0. */
#include "ops/map/map.h"

/* max sqrt(1 + (min / max)^2), with infinities and 0 apart */
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) < (b) ? (b) : (a))
#define RATIO(T, a, b) (MIN(a, b) / (MAX(a, b) == 0 ? (T)1 : MAX(a, b)))
#define SIZED(T, a, b) (MAX(a, b) * m_sqrt(1 + RATIO(T, a, b) * RATIO(T, a, b)))
#define FWD(T, p, re, im)                                             \
  (m_abs(re) == (T)INFINITY || m_abs(im) == (T)INFINITY ? (T)INFINITY \
   : (re) != (re)                                       ? (re)        \
   : (im) != (im)                                       ? (im)        \
                                                        : SIZED(T, m_abs(re), m_abs(im)))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *y = g->out[0];
  /* at 0 the derivatives of the quotients are 0 as well */
  ac_tensor *safe = x_masked_fill(x, y, x_eq(x, T(y), F(0)), F(INFINITY));
  for (int i = 0; i < 2; i++) {
    if (!ac_grad_needs(g, i)) continue;
    ac_tensor *d = x_mul(x, T(g->dout[0]), T(x_div(x, aci_grad_operand(g, i), T(safe))));
    ac_grad_set(g, i, ac_grad_reduce_to(g, i, d));
  }
}

AC_MAP2(complex_abs, FWD, .sig = "complex_abs(re: operand, im: operand) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0) | AC_SAVE_IN(1) | AC_SAVE_OUT(0), .hidden = true,
        .flops_per_element = 6);
