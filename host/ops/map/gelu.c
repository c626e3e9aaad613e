/* gelu: y = x P(X <= x) for a normal X: x/2 (1 + erf(x / sqrt 2)), or with approximate = tanh
   y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).          x (any shape) -> y (same shape)
   gradient: dx = dy * dy/dx, in one pass by gelu_backward.
   example: accel.tensor { -1.0, 1 }:gelu() --> { -0.158655, 0.841345 }
   example: accel.tensor { -1.0, 1 }:gelu { approximate = "tanh" } --> { -0.158808, 0.841192 } */
#include "ops/map/map.h"

#define RSQRT2 0.70710678118654752440
#define RSQRT_2PI 0.39894228040143267794
#define SQRT_2_PI 0.79788456080286535588
#define CUBE 0.044715

#define FWD_ERF(T, p, x) ((T)0.5 * (x) * (1 + m_erf((x) * (T)RSQRT2)))
#define BWD_ERF(T, p, dy, x) \
  ((dy) * ((T)0.5 * (1 + m_erf((x) * (T)RSQRT2)) + (x)*m_exp((T)-0.5 * (x) * (x)) * (T)RSQRT_2PI))

/* P(X <= -|x|) of f32, given e = e^(-x^2 / 2): e times a polynomial in 1 / (1 + 0.3 |x|). Its
 * relative error is below 5e-8 up to |x| = 3 and 1e-6 beyond, where 1 + erf has lost all but a few
 * digits. */
static inline AC_INLINE float tail(float x, float e) {
  float t = 1.0f / (1.0f + 0.3f * m_abs(x));
  float p = 0x1.283734p-5f;
  p = m_fma(p, t, -0x1.4502b2p-3f);
  p = m_fma(p, t, 0x1.a9b5f6p-3f);
  p = m_fma(p, t, -0x1.b9d516p-5f);
  p = m_fma(p, t, 0x1.062292p-3f);
  p = m_fma(p, t, 0x1.9aecep-4f);
  p = m_fma(p, t, 0x1.ee2c06p-4f);
  p = m_fma(p, t, 0x1.ea0a64p-4f);
  return p * t * e;
}
static inline AC_INLINE float gelu_of(float x) {
  float s = tail(x, aci_expf(-0.5f * x * x));
  return x * (x > 0 ? 1.0f - s : s);
}
static inline AC_INLINE float slope_of(float x) {
  float e = aci_expf(-0.5f * x * x), s = tail(x, e);
  return (x > 0 ? 1.0f - s : s) + (e == 0 ? 0 : x * e * (float)RSQRT_2PI);
}
#define FWD_F32(T, p, x) gelu_of(x)
#define BWD_F32(T, p, dy, x) ((dy)*slope_of(x))

/* 1 + tanh u = 2 sigmoid(2u), which costs one exponential. V is 2u, D its derivative */
#define V(T, x) ((T)(2 * SQRT_2_PI) * (x) * (1 + (T)CUBE * (x) * (x)))
#define D(T, x) ((T)(2 * SQRT_2_PI) * (1 + (T)(3 * CUBE) * (x) * (x)))
#define FWD_TANH(T, p, x) ((x)*m_sigmoid(V(T, x)))
/* s + x s (1 - s) dv, from z = e^-|v| so that 1 - s loses nothing */
#define SLOPE(name, T)                                    \
  static inline AC_INLINE T name(T x) {                   \
    T v = V(T, x), z = m_exp(-m_abs(v)), r = 1 / (1 + z); \
    T s = (v >= 0 ? 1 : z) * r;                           \
    return s + (z == 0 ? 0 : x * (z * r * r) * D(T, x));  \
  }
SLOPE(slope_f32, float)
SLOPE(slope_f64, double)
#define BWD_TANH(T, p, dy, x) ((dy)*ACI_VM1(x, slope_f32, slope_f64))

ACI_LOOP1(erf_y, float, f32, FWD_F32)
ACI_LOOP1(erf_y, double, f64, FWD_ERF)
ACI_LOOP1(tanh_y, float, f32, FWD_TANH)
ACI_LOOP1(tanh_y, double, f64, FWD_TANH)
ACI_LOOP2(erf_dx, float, f32, BWD_F32)
ACI_LOOP2(erf_dx, double, f64, BWD_ERF)
ACI_LOOP2(tanh_dx, float, f32, BWD_TANH)
ACI_LOOP2(tanh_dx, double, f64, BWD_TANH)
static const aci_map forward[2] = {{1, erf_y_f32, erf_y_f64, NULL},
                                   {1, tanh_y_f32, tanh_y_f64, NULL}};
static const aci_map backward[2] = {{2, erf_dx_f32, erf_dx_f64, NULL},
                                    {2, tanh_dx_f32, tanh_dx_f64, NULL}};

static ac_status cpu(ac_frame *f, ac_err *e) { return aci_map_run(f, &forward[ARG_I(f, 1)], e); }
static ac_status cpu_backward(ac_frame *f, ac_err *e) {
  return aci_map_run(f, &backward[ARG_I(f, 2)], e);
}

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_gelu_backward(&g->x, g->dout[0], ARG_T(g, 0), (int)ARG_I(g, 1)));
}

static int plain(ac_expr *e, const ac_value *a, ac_tensor **out) {
  ac_tensor *x = a[0].tensor, *half = x_mul(e, T(x), F(0.5)), *t;
  ac_scalar one = aci_float(1);
  if (a[1].i == AC_GELU_APPROXIMATE_NONE) {
    t = x_erf(e, x_mul(e, T(x), F(RSQRT2)));
  } else {
    ac_tensor *cube = x_mul(e, T(x), T(x_mul(e, T(x), T(x))));
    t = x_tanh(e, x_mul(e, T(x_add(e, T(x), T(cube), aci_float(CUBE))), F(SQRT_2_PI)));
  }
  out[0] = x_mul(e, T(half), T(x_add(e, T(t), F(1), one)));
  return 1;
}

AC_OP(gelu, .sig = "gelu(x: tensor, approximate: enum(none|tanh) = none) -> tensor",
      .shape = aci_map_shape, .cpu = cpu, .any_device = true, .data = &forward[0], .grad = grad,
      .composed = plain, .save = AC_SAVE_IN(0), .flops_per_element = 25);
AC_OP(gelu_backward,
      .sig = "gelu_backward(dy: tensor, x: tensor, approximate: enum(none|tanh)) -> tensor",
      .shape = aci_map_shape, .cpu = cpu_backward, .any_device = true, .data = &backward[0],
      .hidden = true, .flops_per_element = 40);
