/* baddbmm: y = beta * input + alpha * batch1 batch2, for the matrices of two batches pair by pair, in one product.
   input (broadcasts to the result), batch1 (b, m, k), batch2 (b, k, n) -> y (b, m, n). With beta 0 input is not read.
   Dtypes: floats and integers.
   gradient: dinput = beta * dy summed. dbatch1 = alpha * dy batch2^T, dbatch2 = alpha * batch1^T dy.
   example: accel.baddbmm(accel.ones(1, 1, 1), accel.ones(1, 1, 2), accel.ones(1, 2, 1), { beta = 2 }) --> { { { 4 } } } */
#include "ops/index/index.h"
#include "ops/matmul/product.h"

enum { INPUT, BATCH1, BATCH2, BETA, ALPHA };

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *in = ARG_T(f, INPUT), *x = ARG_T(f, BATCH1), *w = ARG_T(f, BATCH2);
  char a[128], b[128];
  if (x->ndim != 3 || w->ndim != 3 || x->shape[0] != w->shape[0])
    return AC_FAIL(e, SHAPE,
                   "needs two batches of as many matrices, got shapes %s and %s; matmul broadcasts",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a),
                   aci_shape_str(w->ndim, w->shape, b, sizeof b));
  AC_TRY(aci_product_dtypes(f, INPUT, BATCH2, e));
  if (x->shape[2] != w->shape[1]) return aci_product_mismatch(x, w, x->shape[2], w->shape[1], e);
  int64_t s[3] = {x->shape[0], x->shape[1], w->shape[2]}, t[AC_MAX_DIMS];
  int nd = 3;
  memcpy(t, s, sizeof s);
  if (aci_broadcast(&nd, t, in, NULL) != AC_OK || nd != 3 || memcmp(s, t, sizeof s) != 0)
    return AC_FAIL(e, SHAPE, "an input of shape %s does not broadcast to the product, %s",
                   aci_shape_str(in->ndim, in->shape, a, sizeof a),
                   aci_shape_str(3, s, b, sizeof b));
  AC_TRY(aci_factor_check(f, BETA, (ac_dtype)x->dtype, e));
  AC_TRY(aci_factor_check(f, ALPHA, (ac_dtype)x->dtype, e));
  return ac_frame_out(f, (ac_dtype)x->dtype, 3, s, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *in = ARG_T(f, INPUT), *x = ARG_T(f, BATCH1), *w = ARG_T(f, BATCH2),
                  *y = f->out[0];
  aci_product p = {.dtype = (ac_dtype)x->dtype,
                   .n_batch_dims = 1,
                   .batch = {x->shape[0]},
                   .a_batch = {x->stride[0]},
                   .b_batch = {w->stride[0]},
                   .m = x->shape[1],
                   .n = w->shape[2],
                   .k = x->shape[2],
                   .a = aci_data(x),
                   .b = aci_data(w),
                   .c = aci_data(y),
                   .a_rs = x->stride[1],
                   .a_cs = x->stride[2],
                   .b_rs = w->stride[1],
                   .b_cs = w->stride[2],
                   .alpha = aci_scalar_f(f->args[ALPHA].scalar),
                   .beta = aci_scalar_f(f->args[BETA].scalar)};
  if (y->numel == 0) return AC_OK;
  if (p.beta != 0) {
    aci_range dst = {.ptr = aci_data(y), .dtype = p.dtype},
              src = {.ptr = aci_data(in), .dtype = p.dtype};
    memcpy(dst.stride, y->stride, 3 * sizeof *dst.stride);
    for (int d = 0; d < 3; d++) {
      int i = d - (3 - in->ndim);
      src.stride[d] = i < 0 || in->shape[i] == 1 ? 0 : in->stride[i];
    }
    AC_TRY(aci_range_copy(f, 3, y->shape, &dst, &src, e));
  }
  return aci_product_run(f, &p, e);
}

static int64_t flops(const ac_frame *f) {
  return 2 * f->out[0]->numel * ARG_T(f, BATCH1)->shape[2];
}

static ac_tensor *scaled(ac_expr *x, ac_tensor *t, double by) {
  return by == 1 ? t : x_mul(x, T(t), F(by));
}

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0];
  const double beta = aci_scalar_f(g->args[BETA].scalar),
               alpha = aci_scalar_f(g->args[ALPHA].scalar);
  if (ac_grad_needs(g, INPUT))
    ac_grad_set(g, INPUT, scaled(x, ac_grad_reduce_to(g, INPUT, dy), beta));
  if (ac_grad_needs(g, BATCH1))
    ac_grad_set(g, BATCH1,
                scaled(x, x_matmul(x, dy, x_transpose(x, ARG_T(g, BATCH2), -2, -1)), alpha));
  if (ac_grad_needs(g, BATCH2))
    ac_grad_set(g, BATCH2,
                scaled(x, x_matmul(x, x_transpose(x, ARG_T(g, BATCH1), -2, -1), dy), alpha));
}

/* beta input + alpha mat1 mat2 */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  ac_tensor *y = x_matmul(x, a[1].tensor, a[2].tensor);
  ac_tensor *z = aci_scalar_f(a[3].scalar) == 1
                     ? a[0].tensor
                     : x_mul(x, T(a[0].tensor), (ac_operand){.scalar = a[3].scalar});
  out[0] = aci_scalar_f(a[3].scalar) == 0 ? x_mul(x, T(y), (ac_operand){.scalar = a[4].scalar})
                                          : x_add(x, T(z), T(y), a[4].scalar);
  return 1;
}

AC_OP(
    baddbmm,
    .sig =
        "baddbmm(input: tensor, batch1: tensor, batch2: tensor, beta: scalar = 1, alpha: scalar = 1) -> "
        "tensor",
    .shape = shape, .cpu = cpu, .any_device = true, .grad = grad, .flops = flops,
    .save = AC_SAVE_IN(1) | AC_SAVE_IN(2), .save_for = {0, 1 << 2, 1 << 1},
    .autocast = AC_CAST_LOWER, .inplace = true, .copy_back = true, .on_complex = on_complex);
