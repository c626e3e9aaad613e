/* linear_quantized: y = x W^T + bias with W quantised, read in packed form. 4 bits: sums in f32. int8: rows of x
   become int8 as well, and the product of integers is exact. Columns of x with a value of at least threshold (0:
   none) are multiplied unquantised.
   x (..., in), weight (quantised, with values of shape (out, in)), bias (out)? -> y (..., out, dtype of x)
   gradient: dx = dy W, dbias = the sum of dy over all rows. The weight takes none.
   example: accel.linear_quantized(accel.tensor { 1.0, 1 }, accel.quantize_int8(accel.tensor { { 127.0, 127 }, { 0, 127 } })) --> { 254, 127 }
   example: local w = accel.quantize_4bit(accel.eye(64), "nf4") return accel.linear_quantized(accel.ones(2, 64), w):sum():item() --> 128 */
#include "ops/matmul/product.h"
#include "ops/core/on_host.h"
#include "ops/quant/linear.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *w = ARG_T(f, 1);
  const ac_layout *l = ac_tensor_layout(w);
  char a[128], b[128];
  int64_t s[AC_MAX_DIMS];
  if (l == NULL)
    return AC_FAIL(
        e, INVALID,
        "weight is not quantised: quantize_4bit or quantize_int8 make one of it, linear multiplies as it is");
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "x must be a float tensor, got %s", ac_dtype_name((ac_dtype)x->dtype));
  if (x->ndim == 0 || l->ndim != 2 || x->shape[x->ndim - 1] != l->shape[1])
    return AC_FAIL(
        e, SHAPE,
        "x of shape %s times the transpose of a quantised weight of shape %s: the last dims must be equal",
        aci_shape_str(x->ndim, x->shape, a, sizeof a),
        aci_shape_str(l->ndim, l->shape, b, sizeof b));
  if (!ARG_NONE(f, 2)) {
    const ac_tensor *bias = ARG_T(f, 2);
    if (bias->ndim != 1 || bias->shape[0] != l->shape[0] ||
        !ac_dtype_is_float((ac_dtype)bias->dtype))
      return AC_FAIL(e, SHAPE, "a weight of shape %s needs a float bias of shape (%lld), got %s",
                     aci_shape_str(2, l->shape, b, sizeof b), (long long)l->shape[0],
                     aci_tensor_str(bias, a, sizeof a));
  }
  if (!(ARG_F(f, 3) >= 0))
    return AC_FAIL(e, INVALID, "threshold must not be negative, got %g", ARG_F(f, 3));
  memcpy(s, x->shape, (size_t)x->ndim * 8);
  s[x->ndim - 1] = l->shape[0];
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, s, e);
}

static ac_status run(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const ac_layout *l = ac_tensor_layout(ARG_T(f, 1));
  aci_qlinear p = {
      .f = f, .x = x, .w = ARG_T(f, 1), .l = l, .y = f->out[0], .n = l->shape[0], .k = l->shape[1]};
  ac_block *bias = NULL;
  if (f->out[0]->numel == 0) return AC_OK;
  p.m = f->out[0]->numel / p.n;
  if (!ARG_NONE(f, 2)) {
    const bool wide = x->dtype == AC_F64 && l->type != AC_QUANT_INT8;
    AC_TRY(ac_block_alloc(f->device, (size_t)p.n * sizeof(double), AC_MEM_ACTIVATION, f->stream,
                          &bias, e));
    aci_elems_load(ARG_T(f, 2), wide ? ACI_C_F64 : ACI_C_F32, 0, p.n, bias->ptr);
    p.bias = wide ? NULL : bias->ptr;
    p.wide = wide ? bias->ptr : NULL;
  }
  ac_status st;
  if (l->type == AC_QUANT_INT8) st = aci_linear_int8(&p, (float)ARG_F(f, 3), e);
  else if (aci_linear_4bit_fits(&p)) st = aci_linear_4bit(&p, e);
  else st = aci_linear_panels(&p, e);
  ac_block_free(bias);
  return st;
}
ACI_ON_HOST(run)

static int64_t flops(const ac_frame *f) {
  return 2 * f->out[0]->numel * ac_tensor_layout(ARG_T(f, 1))->shape[1];
}

static void grad(ac_grad *g) {
  ac_expr *ex = &g->x;
  ac_tensor *dy = g->dout[0];
  const ac_dtype dt = ac_grad_dtype(g, 0, 0);
  if (ac_grad_needs(g, 0)) ac_grad_set(g, 0, x_matmul(ex, dy, x_dequantize(ex, ARG_T(g, 1), &dt)));
  if (!ac_grad_needs(g, 2)) return;
  const ac_dtype of_bias = ac_grad_dtype(g, 2, 0);
  ac_tensor *flat = aci_product_flat(ex, dy);
  int64_t rows = 0;
  ac_grad_set(g, 2, x_sum(ex, flat, &rows, 1, false, &of_bias));
}

AC_OP(
    linear_quantized,
    .sig =
        "linear_quantized(x: tensor, weight: tensor, bias: tensor?, threshold: float = 0) -> tensor",
    .shape = shape, .cpu = cpu, .by_vtable = true, .grad = grad, .flops = flops,
    .save = AC_SAVE_IN(1), .save_for = {0, 1 << 0}, .quantized = 1 << 1);
