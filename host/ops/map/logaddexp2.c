/* logaddexp2: y = log2(2^x + 2^other), without overflow.          x, other (any shapes that broadcast) -> y
   gradient: dx = dy sigmoid((x - other) ln 2), dother = dy sigmoid((other - x) ln 2), each summed over the dims that
   were broadcast.
   example: accel.tensor { 0.0, 1000.0 }:logaddexp2(accel.tensor { 0.0, 999.0 }) --> { 1, 1000.584963 } */
#include "ops/map/map.h"

#define LN2 0.69314718055994530942
#define INV_LN2 1.44269504088896340736
#define FWD(T, p, x, y) \
  ((x) == (y) ? (x) + (T)1 : m_max(x, y) + (T)INV_LN2 * m_log1p(m_exp2(-m_abs((x) - (y)))))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  for (int i = 0; i < 2; i++)
    if (ac_grad_needs(g, i)) {
      ac_tensor *way = x_sub(x, T(ARG_T(g, i)), T(ARG_T(g, 1 - i)), aci_float(1));
      way = x_masked_fill(x, way, x_eq(x, T(ARG_T(g, 0)), T(ARG_T(g, 1))), F(0)); /* infinities */
      ac_tensor *part = x_sigmoid(x, x_mul(x, T(way), F(LN2)));
      ac_grad_set(g, i, ac_grad_reduce_to(g, i, x_mul(x, T(g->dout[0]), T(part))));
    }
}

AC_MAP2(logaddexp2, FWD, .sig = "logaddexp2(x: tensor, other: tensor) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .flops_per_element = 20);
