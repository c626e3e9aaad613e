/* mish: y = x tanh(ln(1 + e^x)).          x (any shape) -> y (same shape)
   gradient: dx = dy (t + x sigmoid(x) (1 - t^2)) with t that tanh, in one pass by mish_backward.
   example: accel.tensor { -1.0, 0.0, 2.0 }:mish() --> { -0.303401, 0, 1.943959 } */
#include "ops/map/map.h"

/* With z = e^x and n = z (z + 2): t = n / (n + 2) and sigmoid(x) (1 - t^2) = 4 z (1 + z) / (n +
 * 2)^2. Beyond LIMIT t is 1 and the other term nothing, in f64 too. */
#define LIMIT 40
#define MISH(T, sfx)                                                    \
  static inline AC_INLINE T mish_of_##sfx(T x) {                        \
    T z = m_exp(x > LIMIT ? (T)LIMIT : x), n = z * (z + 2);             \
    return x > LIMIT ? x : x * (n / (n + 2));                           \
  }                                                                     \
  static inline AC_INLINE T slope_##sfx(T x) {                          \
    T z = m_exp(x > LIMIT ? (T)LIMIT : x), n = z * (z + 2);             \
    T r = 1 / (n + 2), u = 4 * z * (1 + z) * r;                         \
    return x > LIMIT ? 1 : x == -(T)INFINITY ? 0 : n * r + x * (u * r); \
  }
MISH(float, f32)
MISH(double, f64)
#define FWD(T, p, x) ACI_VM1(x, mish_of_f32, mish_of_f64)
#define BWD(T, p, dy, x) ((dy)*ACI_VM1(x, slope_f32, slope_f64))

static void grad(ac_grad *g) { ac_grad_set(g, 0, x_mish_backward(&g->x, g->dout[0], ARG_T(g, 0))); }

static int plain_backward(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *in = a[1].tensor, *t = x_tanh(x, x_softplus(x, in, 1, 20)), *one;
  one = x_sub(x, F(1), T(x_mul(x, T(t), T(t))), aci_float(1));
  one = x_mul(x, T(x_mul(x, T(in), T(x_sigmoid(x, in)))), T(one));
  out[0] = x_mul(x, T(a[0].tensor), T(x_add(x, T(t), T(one), aci_float(1))));
  return 1;
}

AC_MAP1(mish, FWD, .sig = "mish(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 14);
AC_MAP2(mish_backward, BWD, .sig = "mish_backward(dy: tensor, x: tensor) -> tensor",
        .composed = plain_backward, .hidden = true, .flops_per_element = 20);
