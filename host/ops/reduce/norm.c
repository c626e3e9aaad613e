/* norm: y = (sum of |x|^p)^(1/p) over dim (all dims when none are given): p = 2 the length, 1 the sum of magnitudes,
   inf and -inf the largest and smallest magnitude, 0 the number of elements that are not 0.
   x (floating point, any shape) -> y (without those dims, or 1 with keepdim)
   gradient: dx = dy sign(x) (|x| / y)^(p - 1), 0 if y or x is 0. For p = inf and -inf it is dy sign(x) shared
   equally by the elements whose magnitude is y. For p = 0 none.
   example: accel.tensor { { 3.0, 4.0 }, { 0.0, -2.0 } }:norm { dim = 2 } --> { 5, 2 }
   example: accel.tensor { 3.0, -4.0 }:norm(1) --> 7
   example: accel.tensor { 3.0, -4.0 }:norm(math.huge) --> 4 */
#include "ops/core/fuse.h"
#include "ops/map/map.h"
#include "ops/reduce/minmax.h"
#include "ops/reduce/reduction.h"

/* Sums are double, in which squares of floats do not overflow. */
#define JOIN(a, b) ((a) + (b))
#define JOIN_MAX(a, b) m_max(b, a)
#define JOIN_MIN(a, b) m_min(b, a)
#define COUNT(a, v) ((a) + ((v) != 0 ? 1.0 : 0.0))
#define COUNT_X(a, i) COUNT(a, x[i])
#define ONE(a, v) ((a) + (double)m_abs(v))
#define ONE_X(a, i) ONE(a, x[i])
#define TWO(a, v) m_fma((double)(v), (double)(v), a)
#define TWO_X(a, i) TWO(a, x[i])
#define LARGEST(a, v) m_max((double)m_abs(v), a)
#define LARGEST_X(a, i) LARGEST(a, x[i])
#define SMALLEST(a, v) m_min((double)m_abs(v), a)
#define SMALLEST_X(a, i) SMALLEST(a, x[i])
#define POWER_F32(a, v) ((a) + (double)aci_powf(m_abs(v), (float)p))
#define POWER_F32_X(a, i) POWER_F32(a, x[i])
#define POWER_F64(a, v) ((a) + pow(m_abs(v), p))
#define POWER_F64_X(a, i) POWER_F64(a, x[i])
ACI_REDUCTION_ONE(zero_f32, float, double, f, 0, COUNT, JOIN)
ACI_REDUCTION_ONE(zero_f64, double, double, f, 0, COUNT, JOIN)
ACI_REDUCTION_ONE(one_f32, float, double, f, 0, ONE, JOIN)
ACI_REDUCTION_ONE(one_f64, double, double, f, 0, ONE, JOIN)
ACI_REDUCTION_ONE(two_f32, float, double, f, 0, TWO, JOIN)
ACI_REDUCTION_ONE(two_f64, double, double, f, 0, TWO, JOIN)
ACI_REDUCTION_ONE(largest_f32, float, double, f, 0, LARGEST, JOIN_MAX)
ACI_REDUCTION_ONE(largest_f64, double, double, f, 0, LARGEST, JOIN_MAX)
ACI_REDUCTION_ONE(smallest_f32, float, double, f, INFINITY, SMALLEST, JOIN_MIN)
ACI_REDUCTION_ONE(smallest_f64, double, double, f, INFINITY, SMALLEST, JOIN_MIN)
ACI_REDUCTION_ONE(power_f32, float, double, f, 0, POWER_F32, JOIN)
ACI_REDUCTION_ONE(power_f64, double, double, f, 0, POWER_F64, JOIN)

static void root2(aci_word *y, const aci_word *s, int64_t n, int64_t count, double p) {
  (void)count, (void)p;
  for (int64_t i = 0; i < n; i++) y[i].f = sqrt(s[i].f);
}
static void root(aci_word *y, const aci_word *s, int64_t n, int64_t count, double p) {
  (void)count;
  for (int64_t i = 0; i < n; i++) y[i].f = pow(s[i].f, 1 / p);
}

#define REDUCTION(name, READS, START, FINISH)                                 \
  {                                                                           \
    .reads = READS, .words = 1, .start = {{.f = START}}, .rows = name##_rows, \
    .columns = name##_columns, .join = name##_join, .finish = FINISH          \
  }
enum { P_ZERO, P_ONE, P_TWO, P_INF, P_NEG_INF, P_OTHER };
static const aci_reduction reductions[2][6] = {
    {REDUCTION(zero_f32, AC_F32, 0, NULL), REDUCTION(one_f32, AC_F32, 0, NULL),
     REDUCTION(two_f32, AC_F32, 0, root2), REDUCTION(largest_f32, AC_F32, 0, NULL),
     REDUCTION(smallest_f32, AC_F32, INFINITY, NULL), REDUCTION(power_f32, AC_F32, 0, root)},
    {REDUCTION(zero_f64, AC_F64, 0, NULL), REDUCTION(one_f64, AC_F64, 0, NULL),
     REDUCTION(two_f64, AC_F64, 0, root2), REDUCTION(largest_f64, AC_F64, 0, NULL),
     REDUCTION(smallest_f64, AC_F64, INFINITY, NULL), REDUCTION(power_f64, AC_F64, 0, root)}};

static int kind_of(double p) {
  if (p == 0 || p == 1 || p == 2) return p == 0 ? P_ZERO : p == 1 ? P_ONE : P_TWO;
  return p == INFINITY ? P_INF : p == -INFINITY ? P_NEG_INF : P_OTHER;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const double p = aci_scalar_f(f->args[1].scalar);
  uint32_t mask;
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "is for floating point, not %s; cast the tensor first",
                   ac_dtype_name((ac_dtype)x->dtype));
  if (p != p) return AC_FAIL(e, INVALID, "p is NaN");
  AC_TRY(ac_frame_dims(f, 2, x->ndim, &mask, e));
  if (p < 0 || p == INFINITY) AC_TRY(aci_minmax_check(f, aci_reduce_mask(&f->args[2], x->ndim), e));
  return aci_reduce_out(f, 2, 3, (ac_dtype)x->dtype, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const double p = aci_scalar_f(f->args[1].scalar);
  return aci_reduction_run(f, x, aci_reduce_mask(&f->args[2], x->ndim),
                           &reductions[x->dtype == AC_F64][kind_of(p)], p, f->out[0], NULL, e);
}

/* ---- gradient for finite p other than 0 ---- */
#define SIGN(T, x) ((T)((x) > 0) - (T)((x) < 0))
#define BWD_ONE(T, p, dy, x, y) ((y) == 0 ? 0 : (dy)*SIGN(T, x))
#define BWD_TWO(T, p, dy, x, y) ((y) == 0 ? 0 : (dy) * ((x) / (y)))
#define BWD(T, p, dy, x, y) \
  ((y) == 0 || (x) == 0 ? 0 : (dy)*SIGN(T, x) * m_pow(m_abs(x) / (y), p[0] - 1))
ACI_LOOP3(one, float, dx_f32, BWD_ONE)
ACI_LOOP3(one, double, dx_f64, BWD_ONE)
ACI_LOOP3(two, float, dx_f32, BWD_TWO)
ACI_LOOP3(two, double, dx_f64, BWD_TWO)
ACI_LOOP3(other, float, dx_f32, BWD)
ACI_LOOP3(other, double, dx_f64, BWD)
static const aci_map maps[] = {{3, one_dx_f32, one_dx_f64, NULL},
                               {3, two_dx_f32, two_dx_f64, NULL},
                               {3, other_dx_f32, other_dx_f64, NULL}};

static ac_status cpu_backward(ac_frame *f, ac_err *e) {
  const double p = ARG_F(f, 3);
  return aci_map_run(f, &maps[p == 1 ? 0 : p == 2 ? 1 : 2], e);
}

static int plain_backward(ac_expr *e, const ac_value *a, ac_tensor **out) {
  ac_tensor *dy = a[0].tensor, *x = a[1].tensor, *flat = x_eq(e, T(a[2].tensor), F(0));
  ac_tensor *y = x_masked_fill(e, a[2].tensor, flat, F(1)), *q;
  if (a[3].f == 1) {
    q = x_sign(e, x);
  } else if (a[3].f == 2) {
    q = x_div(e, T(x), T(y));
  } else { /* the sign of 0 is 0, so the replacement for x does not matter */
    ac_tensor *size = x_masked_fill(e, x_abs(e, x), x_eq(e, T(x), F(0)), F(1));
    q = x_mul(e, T(x_sign(e, x)), T(x_pow(e, T(x_div(e, T(size), T(y))), F(a[3].f - 1))));
  }
  out[0] = x_masked_fill(e, x_mul(e, T(dy), T(q)), flat, F(0));
  return 1;
}

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  const ac_value *d = &g->args[2];
  const int64_t *list = d->kind == AC_T_NONE ? NULL : d->ints;
  const double p = aci_scalar_f(g->args[1].scalar);
  ac_tensor *in = ARG_T(g, 0), *dy = aci_reduce_unsqueeze(g, d, g->dout[0]);
  ac_tensor *y = aci_reduce_unsqueeze(g, d, g->out[0]);
  if (p == 0) {
    ac_grad_set(g, 0, x_zeros_like(x, in, NULL, NULL));
  } else if (p == INFINITY || p == -INFINITY) {
    ac_tensor *is = x_eq(x, T(x_abs(x, in)), T(y)),
              *n = x_sum(x, is, list, list == NULL ? 0 : d->n, true, NULL);
    ac_tensor *share = x_mul(x, T(x_sign(x, in)), T(x_div(x, T(dy), T(n))));
    ac_grad_set(g, 0, x_where(x, is, T(share), F(0)));
  } else {
    ac_grad_set(g, 0, x_norm_backward(x, dy, in, y, p));
  }
}

/* of the magnitudes */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  out[0] = aci_complex_again(x, op, a, x_abs(x, a[0].tensor));
  return 1;
}

AC_OP(norm, .sig = "norm(x: tensor, p: scalar = 2, dim: dims?, keepdim: bool = false) -> tensor",
      .shape = shape, .cpu = cpu, .data = &aci_fuse_reduces, .grad = grad,
      .save = AC_SAVE_IN(0) | AC_SAVE_OUT(0), .flops_per_element = 2, .on_complex = on_complex);
AC_OP(norm_backward, .sig = "norm_backward(dy: tensor, x: tensor, y: tensor, p: float) -> tensor",
      .shape = aci_map_shape, .cpu = cpu_backward, .any_device = true, .elementwise = true,
      .data = &maps[0], .composed = plain_backward, .hidden = true, .flops_per_element = 3);
