/* index_put: x with values written to (accumulate: added at) the positions that index tensors name, see index.
   x (a, b, c), indices {i, j} that broadcast to (m, n), values (broadcasts to (m, n, c)) or a number -> y (as x)
   If two indices are equal, the last value stays. With accumulate they are added in their order.
   gradient: dx = dy with zeros at the positions written (accumulate: dy). dvalues = dy at its positions, zeros if
   a later value was written.
   example: accel.zeros(2, 2):index_put({ accel.tensor { 0, 1 }, accel.tensor { 1, 0 } }, 5) --> { { 0, 5 }, { 5, 0 } }
   example: accel.zeros(3):index_put({ accel.tensor { 2, 0, 2 } }, accel.tensor { 1.0, 2.0, 3.0 }, true) --> { 2, 0, 4 } */
#include "ops/index/index_last.h"
#include "ops/index/mask.h"
#include "ops/index/advanced_index.h"
#include "ops/map/fill.h"
#include "ops/map/map.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  aci_advanced_index p;
  int64_t s[AC_MAX_DIMS];
  char a[128], b[128];
  AC_TRY(aci_advanced_index_plan(f, 1, 4, x->ndim, x->shape, &p, e));
  const int n = aci_advanced_index_shape(&p, x->shape, s);
  if (f->args[2].kind == AC_T_SCALAR) {
    AC_TRY(aci_fill_check(f->args[2].scalar, (ac_dtype)x->dtype, e));
  } else {
    const ac_tensor *v = ARG_T(f, 2);
    const int lead = n - v->ndim;
    if (v->dtype != x->dtype)
      return AC_FAIL(e, DTYPE, "values is %s and x is %s; convert it with to",
                     ac_dtype_name((ac_dtype)v->dtype), ac_dtype_name((ac_dtype)x->dtype));
    bool ok = lead >= 0;
    for (int d = 0; ok && d < v->ndim; d++) ok = v->shape[d] == 1 || v->shape[d] == s[lead + d];
    if (!ok)
      return AC_FAIL(e, SHAPE, "values of shape %s do not fit the positions, which have shape %s",
                     aci_shape_str(v->ndim, v->shape, a, sizeof a),
                     aci_shape_str(n, s, b, sizeof b));
  }
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  ac_tensor *y = f->out[0];
  aci_advanced_index p;
  int64_t number[1], shape_of[AC_MAX_DIMS];
  const void *values = number;
  const int64_t *offsets;
  ac_block *b1 = NULL, *b2 = NULL;
  const ac_tensor *v = f->args[2].kind == AC_T_TENSOR ? ARG_T(f, 2) : NULL;
  ac_status st = AC_OK;
  AC_TRY(aci_advanced_index_plan(f, 1, 4, x->ndim, x->shape, &p, e));
  if (v == NULL) aci_scalar_bytes(f->args[2].scalar, (ac_dtype)x->dtype, number);
  else if (v->numel == 1) values = aci_data(v);
  else
    AC_TRY(aci_broadcast_data(f, v, aci_advanced_index_shape(&p, x->shape, shape_of), shape_of,
                              &values, &b1, e));
  const bool single = v == NULL || v->numel == 1;
  /* offsets first: nothing may be written when a value is out of range */
  AC_GOTO(done, st, aci_advanced_index_offsets(f, &p, 1, x->shape, y->stride, &offsets, &b2, e));
  if (!f->inplace) aci_copy_into(f->team, y, x);
  if (ARG_B(f, 3)) st = aci_advanced_index_add(f, &p, 1, y, values, single, e);
  else aci_advanced_index_put(f, &p, y, values, single, offsets);
done:
  ac_block_free(b2);
  ac_block_free(b1);
  return st;
}

static void grad(ac_grad *g) {
  ac_expr *ex = &g->x;
  ac_tensor *dy = g->dout[0];
  const ac_value *v = &g->args[1], *dims = &g->args[4];
  const int64_t *list = dims->kind == AC_T_NONE ? NULL : dims->ints;
  const bool add = ARG_B(g, 3);
  if (ac_grad_needs(g, 0))
    ac_grad_set(
        g, 0,
        add ? dy : x_index_put(ex, dy, v->tensors, v->n, ac_operand_int(0), false, list, dims->n));
  if (g->args[2].kind != AC_T_TENSOR || !ac_grad_needs(g, 2)) return;
  ac_tensor *d = x_index(ex, dy, v->tensors, v->n, list, dims->n);
  if (!add && d != NULL) {
    int64_t extents[AC_MAX_DIMS], lo = AC_MAX_DIMS, hi = 0;
    for (int i = 0; i < v->n; i++) {
      const int64_t at = list == NULL ? i : aci_wrap_dim(list[i], dy->ndim);
      extents[i] = dy->shape[at];
      lo = at < lo ? at : lo;
      hi = at > hi ? at : hi;
    }
    const int inner = hi - lo == v->n - 1 ? dy->ndim - 1 - (int)hi : dy->ndim - v->n;
    d = aci_where_last(ex, d, v->tensors, v->n, extents, inner);
  }
  ac_grad_set(g, 2, ac_grad_reduce_to(g, 2, d));
}

AC_OP(
    index_put,
    .sig =
        "index_put(x: tensor, indices: tensors, values: operand, accumulate: bool = false, dims: dims?) "
        "-> tensor",
    .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(1), .inplace = true,
    .on_complex = aci_complex_parts);
