/* pow: y = x ^ exponent, broadcast. Integers stay integers (and wrap).
   x, exponent (any shapes that broadcast) -> y
   gradient: dx = dy * exponent * x^(exponent - 1), 0 if exponent is 0. dexponent = dy * y * ln x, 0 if x = 0 and
   exponent >= 0, each summed over the dims that were broadcast.
   example: accel.tensor { 2.0, 3 }:pow(2) --> { 4, 9 }
   example: accel.pow(2, accel.tensor { 1.0, 3, -1 }) --> { 2, 8, 0.5 } */
#include "ops/map/map.h"

static inline AC_INLINE int64_t power_i64(int64_t x, int64_t e) {
  uint64_t r = 1, b = (uint64_t)x;
  if (e < 0) return x == 1 ? 1 : x == -1 ? (e & 1 ? -1 : 1) : 0;
  for (uint64_t n = (uint64_t)e; n != 0; n >>= 1, b *= b)
    if (n & 1) r *= b;
  return (int64_t)r;
}
#define FWD(T, p, x, y) m_pow(x, y)
#define FWD_INT(T, p, x, y) power_i64(x, y)
#define SQUARE(T, p, x, y) ((void)(y), (x) * (x))
#define CUBE(T, p, x, y) ((void)(y), (x) * (x) * (x))
ACI_LOOP2(pow, float, f32, FWD)
ACI_LOOP2(pow, double, f64, FWD)
ACI_LOOP2(pow, int64_t, i64, FWD_INT)
ACI_LOOP2(square, float, f32, SQUARE)
ACI_LOOP2(square, double, f64, SQUARE)
ACI_LOOP2(cube, float, f32, CUBE)
ACI_LOOP2(cube, double, f64, CUBE)
static const aci_map pow_map = {2, pow_f32, pow_f64, pow_i64};
static const aci_map square_map = {2, square_f32, square_f64, pow_i64};
static const aci_map cube_map = {2, cube_f32, cube_f64, pow_i64};

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_value *x = &f->args[0], *p = &f->args[1];
  if (p->kind == AC_T_SCALAR && p->scalar.kind == AC_SCALAR_INT && p->scalar.i < 0 &&
      x->kind == AC_T_TENSOR && !ac_dtype_is_float((ac_dtype)x->tensor->dtype))
    return AC_FAIL(
        e, INVALID,
        "an integer tensor (%s) has no power of exponent %lld; cast it to a float dtype first",
        ac_dtype_name((ac_dtype)x->tensor->dtype), (long long)p->scalar.i);
  return aci_map_shape(f, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_value *p = &f->args[1];
  double v = p->kind == AC_T_SCALAR ? aci_scalar_f(p->scalar) : 0;
  return aci_map_run(f, v == 2 ? &square_map : v == 3 ? &cube_map : &pow_map, e);
}

static ac_tensor *grad_x(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0];
  ac_operand base = aci_grad_operand(g, 0), ex = aci_grad_operand(g, 1);
  if (ex.tensor == NULL) {
    double v = aci_scalar_f(ex.scalar);
    if (v == 0) return x_zeros_like(x, dy, NULL, NULL);
    return x_mul(x, T(dy), T(x_mul(x, T(x_pow(x, base, F(v - 1))), F(v))));
  }
  ac_tensor *slope = x_mul(x, ex, T(x_pow(x, base, T(x_sub(x, ex, F(1), aci_float(1))))));
  return x_where(x, x_eq(x, ex, F(0)), F(0), T(x_mul(x, T(dy), T(slope))));
}

static ac_tensor *grad_exponent(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_operand base = aci_grad_operand(g, 0);
  ac_tensor *ex = ARG_T(g, 1), *dy = g->dout[0], *y = g->out[0];
  if (base.tensor == NULL) {
    double b = aci_scalar_f(base.scalar);
    ac_tensor *d = x_mul(x, T(dy), T(x_mul(x, T(y), F(log(b)))));
    return b == 0 ? x_where(x, x_ge(x, T(ex), F(0)), F(0), T(d)) : d;
  }
  ac_tensor *flat = x_mul(x, T(x_eq(x, base, F(0))), T(x_ge(x, T(ex), F(0))));
  return x_mul(x, T(dy), T(x_where(x, flat, F(0), T(x_mul(x, T(y), T(x_log(x, base.tensor)))))));
}

static void grad(ac_grad *g) {
  if (ac_grad_needs(g, 0)) ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, grad_x(g)));
  if (ac_grad_needs(g, 1)) ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, grad_exponent(g)));
}

/* |z|^p at p times the angle, or e^(w ln z) */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  const ac_operand z = aci_value_operand(&a[0]), w = aci_value_operand(&a[1]);
  const double p = w.tensor == NULL ? aci_scalar_f(w.scalar) : NAN;
  if (p == 2) out[0] = x_square(x, z.tensor);
  else if (p == 3) out[0] = x_mul(x, T(x_square(x, z.tensor)), z);
  else if (p == -1) out[0] = x_reciprocal(x, z.tensor);
  else if (w.tensor == NULL)
    out[0] = x_polar(x, x_pow(x, T(x_abs(x, z.tensor)), w), x_mul(x, T(x_angle(x, z.tensor)), w));
  else out[0] = aci_complex_power(x, z, w);
  return 1;
}

AC_OP(pow, .sig = "pow(x: operand, exponent: operand) -> tensor", .shape = shape, .cpu = cpu,
      .any_device = true, .data = &pow_map, .grad = grad,
      .save = AC_SAVE_IN(0) | AC_SAVE_IN(1) | AC_SAVE_OUT(0), .save_out_for = {1 << 1},
      .inplace = true, .flops_per_element = 20, .on_complex = on_complex);
