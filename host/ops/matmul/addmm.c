/* addmm: y = beta * input + alpha * mat1 mat2, in one product.
   input (broadcasts to the result), mat1 (..., m, k), mat2 (k, n) -> y (..., m, n). GPT-2's Conv1D uses it. With
   beta 0 input is not read.
   gradient: dinput = beta * dy summed. dmat1 = alpha * dy mat2^T, dmat2 = alpha * mat1^T dy over all rows.
   example: accel.addmm(accel.ones(2), accel.ones(1, 2), accel.ones(2, 2), { beta = 0.5 }) --> { { 2.5, 2.5 } } */
#include "ops/index/index.h"
#include "ops/matmul/product.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *in = ARG_T(f, 0), *x = ARG_T(f, 1), *w = ARG_T(f, 2);
  char a[128], b[128];
  int64_t s[AC_MAX_DIMS], t[AC_MAX_DIMS];
  if (x->ndim < 2 || w->ndim != 2)
    return AC_FAIL(e, SHAPE, "needs matrices, got shapes %s and %s",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a),
                   aci_shape_str(w->ndim, w->shape, b, sizeof b));
  AC_TRY(aci_product_dtypes(f, 0, 2, e));
  if (x->shape[x->ndim - 1] != w->shape[0])
    return aci_product_mismatch(x, w, x->shape[x->ndim - 1], w->shape[0], e);
  memcpy(s, x->shape, (size_t)x->ndim * 8);
  s[x->ndim - 1] = w->shape[1];
  memcpy(t, s, sizeof t);
  int nd = x->ndim;
  if (aci_broadcast(&nd, t, in, NULL) != AC_OK || nd != x->ndim ||
      memcmp(s, t, (size_t)nd * 8) != 0)
    return AC_FAIL(e, SHAPE, "an input of shape %s does not broadcast to the product, %s",
                   aci_shape_str(in->ndim, in->shape, a, sizeof a),
                   aci_shape_str(x->ndim, s, b, sizeof b));
  AC_TRY(aci_factor_check(f, 3, (ac_dtype)x->dtype, e));
  AC_TRY(aci_factor_check(f, 4, (ac_dtype)x->dtype, e));
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, s, e);
}

/* beta * input as the bias of the product: one row, shared by all. */
static ac_status make_bias(ac_frame *f, const ac_tensor *in, double beta, aci_product *p,
                           ac_block **block, ac_err *e) {
  aci_ctype c = aci_ctype_of((ac_dtype)in->dtype);
  AC_TRY(ac_block_alloc(f->device, (size_t)p->n * 8, AC_MEM_ACTIVATION, f->stream, block, e));
  void *row = ac_block_ptr(*block);
  aci_elems_load(in, c, 0, p->n, row);
  for (int64_t i = 0; i < p->n; i++) {
    if (c == ACI_C_F32) ((float *)row)[i] *= (float)beta;
    else ((double *)row)[i] *= beta;
  }
  p->bias = row;
  p->bias_dtype = c == ACI_C_F32 ? AC_F32 : AC_F64;
  return AC_OK;
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *in = ARG_T(f, 0), *x = ARG_T(f, 1), *w = ARG_T(f, 2), *y = f->out[0];
  const int nd = x->ndim;
  const double beta = aci_scalar_f(f->args[3].scalar);
  ac_block *block = NULL;
  aci_product p = {.dtype = (ac_dtype)x->dtype,
                   .n_batch_dims = nd - 2,
                   .m = x->shape[nd - 2],
                   .n = w->shape[1],
                   .k = w->shape[0],
                   .a = aci_data(x),
                   .b = aci_data(w),
                   .c = aci_data(y),
                   .a_rs = x->stride[nd - 2],
                   .a_cs = x->stride[nd - 1],
                   .b_rs = w->stride[0],
                   .b_cs = w->stride[1],
                   .alpha = aci_scalar_f(f->args[4].scalar),
                   .round_b = w->dtype != x->dtype};
  for (int d = 0; d < nd - 2; d++) {
    p.batch[d] = x->shape[d];
    p.a_batch[d] = x->stride[d];
  }
  if (y->numel == 0) return AC_OK;
  if (f->device->kind == AC_DEV_CPU && beta != 0 && in->numel == p.n && in->ndim > 0 &&
      in->shape[in->ndim - 1] == p.n && ac_dtype_is_float(p.dtype)) {
    AC_TRY(make_bias(f, in, beta, &p, &block, e));
  } else if (beta != 0) {
    aci_range dst = {.ptr = aci_data(y), .dtype = p.dtype},
              src = {.ptr = aci_data(in), .dtype = p.dtype};
    memcpy(dst.stride, y->stride, (size_t)nd * 8);
    for (int d = 0; d < nd; d++) {
      int i = d - (nd - in->ndim);
      src.stride[d] = i < 0 || in->shape[i] == 1 ? 0 : in->stride[i];
    }
    AC_TRY(aci_range_copy(f, nd, y->shape, &dst, &src, e));
    p.beta = beta;
  }
  ac_status st = aci_product_run(f, &p, e);
  ac_block_free(block);
  return st;
}

static int64_t flops(const ac_frame *f) { return 2 * f->out[0]->numel * ARG_T(f, 2)->shape[0]; }

static ac_tensor *scaled(ac_expr *ex, ac_tensor *t, double by) {
  return by == 1 || t == NULL ? t : x_mul(ex, T(t), F(by));
}

static void grad(ac_grad *g) {
  ac_expr *ex = &g->x;
  ac_tensor *x = ARG_T(g, 1), *w = ARG_T(g, 2), *dy = g->dout[0];
  double beta = aci_scalar_f(g->args[3].scalar), alpha = aci_scalar_f(g->args[4].scalar);
  if (ac_grad_needs(g, 0)) ac_grad_set(g, 0, scaled(ex, ac_grad_reduce_to(g, 0, dy), beta));
  if (ac_grad_needs(g, 1))
    ac_grad_set(g, 1,
                scaled(ex, aci_product_as(ex, dy, x_t(ex, w), ac_grad_dtype(g, 1, 0)), alpha));
  if (!ac_grad_needs(g, 2)) return;
  ac_tensor *rows = x_t(ex, aci_product_flat(ex, x));
  ac_grad_set(g, 2,
              scaled(ex, aci_product_as(ex, rows, aci_product_flat(ex, dy), ac_grad_dtype(g, 2, 0)),
                     alpha));
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
    addmm,
    .sig =
        "addmm(input: tensor, mat1: tensor, mat2: tensor, beta: scalar = 1, alpha: scalar = 1) -> tensor",
    .shape = shape, .cpu = cpu, .any_device = true, .grad = grad, .flops = flops,
    .save = AC_SAVE_IN(1) | AC_SAVE_IN(2), .save_for = {0, 1 << 2, 1 << 1}, .weights = 1 << 2,
    .autocast = AC_CAST_LOWER, .inplace = true, .copy_back = true, .on_complex = on_complex);
