/* tile: x repeated as a whole, repeats[d] times along dim d, as torch.Tensor.repeat and torch.tile.
   x (a, b), repeats (r, s) -> y (r * a, s * b)
   More repeats than dims add dims in front, fewer leave the first dims as they are. expand repeats without copying.
   gradient: dx = dy summed over the repeats.
   example: accel.tensor { 1, 2 }:tile { 2 } --> { 1, 2, 1, 2 }
   example: accel.tensor { 1, 2 }:tile { 2, 2 } --> { { 1, 2, 1, 2 }, { 1, 2, 1, 2 } } */
#include "ops/index/remap.h"
#include "ops/index/repeats.h"

/* x's shape and the repeats, both with n dims. */
static int align(int ndim, const int64_t *x_shape, const ac_value *repeats, int64_t *shape,
                 int64_t *times) {
  const int n = repeats->n > ndim ? repeats->n : ndim;
  for (int d = 0; d < n; d++) {
    shape[d] = d < n - ndim ? 1 : x_shape[d - (n - ndim)];
    times[d] = d < n - repeats->n ? 1 : repeats->ints[d - (n - repeats->n)];
  }
  return n;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t s[AC_MAX_DIMS], times[AC_MAX_DIMS];
  char a[128], b[128];
  if (f->args[1].n > AC_MAX_DIMS)
    return AC_FAIL(e, SHAPE, "a tensor has at most %d dims", AC_MAX_DIMS);
  const int n = align(x->ndim, x->shape, &f->args[1], s, times);
  bool ok = true;
  for (int d = 0; d < n; d++)
    ok = ok && times[d] >= 0 && !__builtin_mul_overflow(s[d], times[d], &s[d]);
  if (!ok)
    return AC_FAIL(e, INVALID, "repeats %s cannot be taken of a tensor of shape %s",
                   aci_shape_str(f->args[1].n, f->args[1].ints, a, sizeof a),
                   aci_shape_str(x->ndim, x->shape, b, sizeof b));
  return ac_frame_out(f, (ac_dtype)x->dtype, n, s, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t s[AC_MAX_DIMS], times[AC_MAX_DIMS], many = 0;
  aci_remap m;
  ac_block *block = NULL;
  const int n = align(x->ndim, x->shape, &f->args[1], s, times);
  if (f->out[0]->numel == 0) return AC_OK;
  for (int d = 0; d < n; d++)
    if (s[d] > 1 && times[d] > 1) many += times[d];
  AC_TRY(ac_block_alloc(f->device, (size_t)(many + 1) * sizeof(aci_run), AC_MEM_ACTIVATION,
                        f->stream, &block, e));
  aci_run *run = ac_block_ptr(block);
  aci_remap_init(&m, x->ndim, x->shape, x->stride, n - x->ndim);
  for (int d = 0; d < n; d++) {
    if (times[d] == 1) continue;
    aci_dim_map *k = &m.dim[d];
    if (s[d] > 1) {
      k->run = run;
      run += times[d];
    }
    aci_remap_begin(k, s[d] * times[d]);
    if (s[d] == 1) aci_remap_add(k, 0, 0, 0, times[d]);
    for (int64_t i = 0; s[d] > 1 && i < times[d]; i++) aci_remap_add(k, i * s[d], 0, 1, s[d]);
  }
  const ac_status st = aci_remap_run(f, f->out[0], aci_data(x), &m, NULL, e);
  ac_block_free(block);
  return st;
}

static void grad(ac_grad *g) {
  int64_t s[AC_MAX_DIMS], times[AC_MAX_DIMS];
  const int nd = ac_grad_ndim(g, 0, 0),
            n = align(nd, ac_grad_shape(g, 0, 0), &g->args[1], s, times);
  ac_tensor *d = aci_sum_repeats(&g->x, g->dout[0], n, s, times, true);
  ac_grad_set(g, 0, n > nd ? x_reshape(&g->x, d, ac_grad_shape(g, 0, 0), nd) : d);
}

AC_OP(tile, .sig = "tile(x: tensor, repeats: ints) -> tensor", .shape = shape, .cpu = cpu,
      .grad = grad, .alias = "repeat", .on_complex = aci_complex_parts);
