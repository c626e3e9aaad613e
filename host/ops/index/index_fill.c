/* index_fill: x with a value written to the slices along dim that index names.
   x (a, n, b), dim 2, index (m), value (a number, or a tensor of rank 0, which is read) -> y = x, then
   y[:, index[j], :] = value.          Index values count from 0.
   gradient: dx = dy with zeros in those slices, dvalue = the sum of dy over them.
   example: accel.tensor { 1, 2, 3 }:index_fill(1, accel.tensor { 0, 2 }, 9) --> { 9, 2, 9 } */
#include "ops/index/advanced_index.h"
#include "ops/map/fill.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *index = ARG_T(f, 2);
  int d;
  char a[128];
  AC_TRY(ac_frame_dim(f, 1, x->ndim, &d, e));
  AC_TRY(aci_index_dtype(f, 2, e));
  if (index->ndim > 1)
    return AC_FAIL(e, SHAPE, "index must have one dim, got shape %s",
                   aci_shape_str(index->ndim, index->shape, a, sizeof a));
  const ac_value *v = &f->args[3];
  if (v->kind != AC_T_TENSOR) {
    AC_TRY(aci_fill_check(v->scalar, (ac_dtype)x->dtype, e));
  } else if (v->tensor->ndim != 0) {
    return AC_FAIL(e, SHAPE, "value must be a number or a tensor of rank 0, not of shape %s",
                   aci_shape_str(v->tensor->ndim, v->tensor->shape, a, sizeof a));
  }
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  ac_tensor *y = f->out[0];
  aci_advanced_index p;
  const int64_t *offsets;
  int64_t number[1];
  ac_block *block;
  ac_scalar value = f->args[3].scalar;
  if (f->args[3].kind == AC_T_TENSOR) {
    AC_TRY(ac_tensor_item(f->args[3].tensor, 0, &value, e));
    AC_TRY(aci_fill_check(value, (ac_dtype)x->dtype, e));
  }
  AC_TRY(aci_advanced_index_plan(f, 2, 1, x->ndim, x->shape, &p, e));
  AC_TRY(aci_advanced_index_offsets(f, &p, 2, x->shape, y->stride, &offsets, &block, e));
  if (!f->inplace) aci_copy_into(f->team, y, x);
  aci_scalar_bytes(value, (ac_dtype)x->dtype, number);
  aci_advanced_index_put(f, &p, y, number, true, offsets);
  ac_block_free(block);
  return AC_OK;
}

static void grad(ac_grad *g) {
  ac_tensor *dy = g->dout[0];
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0, x_index_fill(&g->x, dy, ARG_I(g, 1), ARG_T(g, 2), F(0)));
  if (!ac_grad_needs(g, 3)) return;
  /* a slice that is named twice counts once */
  ac_tensor *in =
      x_index_fill(&g->x, x_zeros_like(&g->x, dy, NULL, NULL), ARG_I(g, 1), ARG_T(g, 2), F(1));
  ac_grad_set(g, 3, ac_grad_reduce_to(g, 3, x_mul(&g->x, T(dy), T(in))));
}

AC_OP(index_fill, .sig = "index_fill(x: tensor, dim: dim, index: tensor, value: operand) -> tensor",
      .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(2), .inplace = true,
      .on_complex = aci_complex_parts);
