/* prod: y = product of x over dim (all dims when none are given). 1 over nothing.
   x (any shape) -> y (without those dims, or 1 with keepdim, integers and bool give i64)
   gradient: dx = dy times the product of the other elements under the output, right if some are 0. As in PyTorch
   with a dim, the product of other elements is NaN if one of them is 0 and another is not finite. So is
   the product of the others of an infinity.
   example: accel.tensor { { 1.0, 2.0 }, { 3.0, 4.0 } }:prod(2) --> { 2, 12 }
   example: accel.tensor { 2, 3, 4 }:prod() --> 24 */
#include "ops/core/fuse.h"
#include "ops/map/map.h"
#include "ops/reduce/prod.h"
#include "ops/reduce/reduction.h"

#define TIMES(a, v) ((a) * (double)(v))
#define TIMES_X(a, i) TIMES(a, x[i])
#define TIMES_INT(a, v) ((a) * (uint64_t)(v))
#define TIMES_INT_X(a, i) TIMES_INT(a, x[i])
#define JOIN(a, b) ((a) * (b))
ACI_REDUCTION_ONE(prod_f32, float, double, f, 1, TIMES, JOIN)
ACI_REDUCTION_ONE(prod_f64, double, double, f, 1, TIMES, JOIN)
ACI_REDUCTION_ONE(prod_i64, int64_t, uint64_t, u, 1, TIMES_INT, JOIN)
static const aci_reduction reductions[] = {{.reads = AC_F32,
                                            .words = 1,
                                            .start = {{.f = 1}},
                                            .rows = prod_f32_rows,
                                            .columns = prod_f32_columns,
                                            .join = prod_f32_join},
                                           {.reads = AC_F64,
                                            .words = 1,
                                            .start = {{.f = 1}},
                                            .rows = prod_f64_rows,
                                            .columns = prod_f64_columns,
                                            .join = prod_f64_join},
                                           {.reads = AC_I64,
                                            .words = 1,
                                            .whole = true,
                                            .start = {{.u = 1}},
                                            .rows = prod_i64_rows,
                                            .columns = prod_i64_columns,
                                            .join = prod_i64_join}};

static ac_status shape(ac_frame *f, ac_err *e) {
  ac_dtype dt = ARG_NONE(f, 3) ? (ac_dtype)ARG_T(f, 0)->dtype : f->args[3].dtype;
  AC_TRY(aci_reduction_check(f, e));
  return aci_reduce_out(f, 1, 2, ARG_NONE(f, 3) && !ac_dtype_is_float(dt) ? AC_I64 : dt, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const aci_reduction *reduction = &reductions[aci_ctype_of((ac_dtype)f->out[0]->dtype)];
  return aci_reduction_run(f, x, aci_reduce_mask(&f->args[1], x->ndim), reduction, 0, f->out[0],
                           NULL, e);
}

#define OTHERS_X(a, i) ((a) * (x[i] == 0 ? 1.0 : (double)x[i]))
#define ZEROS_X(a, i) ((a) + ACI_PROD_COUNT(x[i]))
#define T float
#define sfx f32
#include "ops/reduce/prod_parts.h"

#define T double
#define sfx f64
#include "ops/reduce/prod_parts.h"

static void parts_join(aci_word *s, const aci_word *t, int64_t n, double p) {
  (void)p;
  for (int64_t i = 0; i < n; i++) {
    s[i].f *= t[i].f;
    s[ACI_REDUCTION_TILE + i].f += t[ACI_REDUCTION_TILE + i].f;
  }
}
static const aci_reduction parts[] = {{.reads = AC_F32,
                                       .words = 2,
                                       .start = {{.f = 1}},
                                       .rows = parts_f32_rows,
                                       .columns = parts_f32_columns,
                                       .join = parts_join},
                                      {.reads = AC_F64,
                                       .words = 2,
                                       .start = {{.f = 1}},
                                       .rows = parts_f64_rows,
                                       .columns = parts_f64_columns,
                                       .join = parts_join}};

static ac_status shape_parts(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t shape[AC_MAX_DIMS];
  int n = aci_reduce_shape(x, aci_reduce_mask(&f->args[1], x->ndim), true, shape);
  AC_TRY(ac_frame_out(f, AC_F64, n, shape, e));
  return ac_frame_out(f, AC_F64, n, shape, e);
}

static ac_status cpu_parts(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  return aci_reduction_run(f, x, aci_reduce_mask(&f->args[1], x->ndim), &parts[x->dtype == AC_F64],
                           0, f->out[0], f->out[1], e);
}

/* counts: up to 2 zeros, and 4 for each of up to 2 elements that are not finite. The others decide
 * the result if there is a zero among them. */
#define NOT_FINITE(x) ((x) - (x) != 0)
#define BESIDE(x, counts) ((int)(counts) / 4 - (NOT_FINITE(x) ? 1 : 0))
#define BWD(T, p, dy, x, others, counts)                          \
  ((int)(counts) % 4 == 0               ? (dy) * ((others) / (x)) \
   : (int)(counts) % 4 == 1 && (x) == 0 ? (dy) * (others)         \
   : BESIDE(x, counts) > 0              ? (dy) * (T)NAN           \
                                        : (T)0)
ACI_LOOP4(backward, float, f32, BWD)
ACI_LOOP4(backward, double, f64, BWD)
static const aci_map backward_map = {4, backward_f32, backward_f64, NULL};

static ac_status shape_backward(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 1);
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  const ac_value *d = &g->args[1];
  const int64_t *list = d->kind == AC_T_NONE ? NULL : d->ints;
  ac_tensor *in = ARG_T(g, 0), *dy = aci_reduce_unsqueeze(g, d, g->dout[0]), *zeros = NULL, *others;
  others = x_prod_parts(x, in, list, list == NULL ? 0 : d->n, &zeros);
  const ac_operand two = F(2); /* counts that f32 can hold: more than two make no difference */
  ac_tensor *odd = x_floor(x, x_mul(x, T(zeros), F(1 / ACI_PROD_ODD)));
  zeros = x_clamp(x, x_sub(x, T(zeros), T(odd), aci_float(ACI_PROD_ODD)), NULL, &two);
  ac_tensor *counts = x_add(x, T(zeros), T(x_clamp(x, odd, NULL, &two)), aci_float(4));
  ac_grad_set(g, 0, x_prod_backward(x, dy, in, others, counts));
}

/* Halves of each dim times each other until one element is left: for gradients of gradients. */
static int plain(ac_expr *e, const ac_value *a, ac_tensor **out) {
  ac_tensor *x = a[0].tensor;
  const uint32_t mask = aci_reduce_mask(&a[1], x->ndim);
  int64_t shape[AC_MAX_DIMS];
  const int n = aci_reduce_shape(x, mask, a[2].b, shape);
  if (a[3].kind == AC_T_DTYPE && a[3].dtype != (ac_dtype)x->dtype) x = x_cast(e, x, a[3].dtype);
  for (int d = 0; x != NULL && d < x->ndim; d++) {
    if (!(mask >> d & 1)) continue;
    if (x->shape[d] == 0) /* nothing to multiply: ones */
      x = x_add(e, T(x_sum(e, x, (const int64_t[]){d}, 1, true, NULL)), F(1), aci_float(1));
    while (x != NULL && x->shape[d] > 1) {
      const int64_t half = x->shape[d] / 2;
      ac_tensor *y = x_mul(e, T(x_narrow(e, x, d, 0, half)), T(x_narrow(e, x, d, half, half)));
      ac_tensor *both[] = {y, x->shape[d] % 2 != 0 ? x_narrow(e, x, d, 2 * half, 1) : NULL};
      x = both[1] != NULL ? x_cat(e, both, 2, d) : y;
    }
  }
  out[0] = x_view(e, x, shape, n);
  return 1;
}

AC_OP(prod, .sig = "prod(x: tensor, dim: dims?, keepdim: bool = false, dtype: dtype?) -> tensor",
      .shape = shape, .cpu = cpu, .data = &aci_fuse_reduces, .grad = grad, .composed = plain,
      .save = AC_SAVE_IN(0), .flops_per_element = 1);
AC_OP(prod_parts, .sig = "prod_parts(x: tensor, dim: dims?) -> (others: tensor, zeros: tensor)",
      .shape = shape_parts, .cpu = cpu_parts, .nondiff = true, .hidden = true);
AC_OP(prod_backward,
      .sig = "prod_backward(dy: tensor, x: tensor, others: tensor, counts: tensor) -> tensor",
      .shape = shape_backward, .cpu = aci_map_cpu, .elementwise = true, .data = &backward_map,
      .hidden = true);
