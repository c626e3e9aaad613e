/* roll: the elements of x shifted along dims. Elements shifted beyond the end come back at the front.
   x (any shape) -> y (same shape), y[i] = x[i - shift] along each dim. Without dims x is flattened for it.
   gradient: dx = dy rolled back.
   example: accel.tensor { 1, 2, 3, 4 }:roll(1) --> { 4, 1, 2, 3 }
   example: accel.tensor { { 1, 2, 3 }, { 4, 5, 6 } }:roll({ 1, -1 }, { 1, 2 }) --> { { 5, 6, 4 }, { 2, 3, 1 } } */
#include "ops/index/remap.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_value *shifts = &f->args[1], *dims = &f->args[2];
  uint32_t mask;
  if (dims->kind == AC_T_NONE) {
    if (shifts->n != 1)
      return AC_FAIL(
          e, INVALID,
          "%d shifts without dims; without dims the tensor counts as one row, which has one shift",
          shifts->n);
  } else {
    AC_TRY(ac_frame_dims(f, 2, ARG_T(f, 0)->ndim, &mask, e));
    if (shifts->n != dims->n)
      return AC_FAIL(e, INVALID, "%d shifts for %d dims", shifts->n, dims->n);
  }
  return aci_shape_like0(f, e);
}

static void turn(aci_dim_map *d, int64_t shift) {
  const int64_t n = d->n_in;
  if (n == 0) return;
  shift %= n;
  if (shift < 0) shift += n;
  aci_remap_begin(d, n);
  aci_remap_add(d, 0, n - shift, 1, shift);
  aci_remap_add(d, shift, 0, 1, n - shift);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const ac_value *shifts = &f->args[1], *dims = &f->args[2];
  const void *data = aci_data(x);
  ac_block *block = NULL;
  aci_remap m;
  if (dims->kind != AC_T_NONE) {
    aci_remap_init(&m, x->ndim, x->shape, x->stride, 0);
    for (int i = 0; i < dims->n && x->ndim > 0; i++)
      turn(&m.dim[aci_wrap_dim(dims->ints[i], x->ndim)], shifts->ints[i]);
  } else {
    AC_TRY(aci_contiguous_data(f, x, &data, &block, e));
    aci_remap_init(&m, 1, &x->numel, (const int64_t[]){1}, 0);
    turn(&m.dim[0], shifts->ints[0]);
  }
  const ac_status st = aci_remap_run(f, f->out[0], data, &m, NULL, e);
  ac_block_free(block);
  return st;
}

static void grad(ac_grad *g) {
  const ac_tensor *dy = g->dout[0];
  int64_t back[AC_MAX_DIMS];
  const ac_value *shifts = &g->args[1], *dims = &g->args[2];
  const bool row = dims->kind == AC_T_NONE;
  for (int i = 0; i < shifts->n && i < AC_MAX_DIMS; i++) {
    int64_t n = row            ? dy->numel
                : dy->ndim > 0 ? dy->shape[aci_wrap_dim(dims->ints[i], dy->ndim)]
                               : 1;
    back[i] = n > 0 ? -(shifts->ints[i] % n) : 0;
  }
  ac_grad_set(g, 0, x_roll(&g->x, g->dout[0], back, shifts->n, row ? NULL : dims->ints, dims->n));
}

AC_OP(roll, .sig = "roll(x: tensor, shifts: ints, dims: dims?) -> tensor", .shape = shape,
      .cpu = cpu, .any_device = true, .grad = grad, .on_complex = aci_complex_parts);
