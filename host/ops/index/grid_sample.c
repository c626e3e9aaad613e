/* grid_sample: y = x sampled at the positions of grid, whose coordinates are (x, y) or (x, y, z) from -1 to 1 over x.
   mode: bilinear (in three dims trilinear), nearest, or bicubic
   padding_mode: outside is zero (zeros), the nearest edge (border), or mirrored at the edges (reflection)
   align_corners: -1 and 1 are the centres of the outer elements, instead of their outer edges
   x (N, C, H, W), grid (N, H', W', 2) -> y (N, C, H', W'); x (N, C, D, H, W), grid (N, D', H', W', 3) likewise.
   Floats of one dtype.
   gradient: dx = dy added with the same weights, dgrid = dy times the slope of the weights (0 of nearest).
   example: accel.ones(1, 1, 2, 2):grid_sample(accel.zeros(1, 1, 1, 2)) --> { { { { 1 } } } }
   example: accel.arange(4.0):view(1, 1, 2, 2):grid_sample(accel.tensor { { { { 1.0, -1.0 } } } }, { align_corners = true }) --> { { { { 1 } } } } */
#include "ops/index/grid_sample.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *grid = ARG_T(f, 1);
  int64_t s[AC_MAX_DIMS];
  AC_TRY(aci_grid_check(f, x->shape, x->ndim, grid, 2, e));
  if (x->dtype != grid->dtype || !ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "x and grid must be floats of one dtype, got %s and %s",
                   ac_dtype_name((ac_dtype)x->dtype), ac_dtype_name((ac_dtype)grid->dtype));
  memcpy(s, x->shape, 2 * 8);
  memcpy(s + 2, grid->shape + 1, (size_t)(x->ndim - 2) * 8);
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, s, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *grid = ARG_T(f, 1);
  const aci_grid g = aci_grid_of(f, x->shape, x->ndim, grid->shape, 2);
  return aci_grid_sample(f, &g, x, grid, f->out[0], e);
}

static void grad(ac_grad *g) {
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0,
                x_grid_sample_backward_input(&g->x, g->dout[0], ARG_T(g, 1), ac_grad_shape(g, 0, 0),
                                             ac_grad_ndim(g, 0, 0), ARG_I(g, 2), ARG_I(g, 3),
                                             ARG_B(g, 4)));
  if (ac_grad_needs(g, 1))
    ac_grad_set(g, 1,
                x_grid_sample_backward_grid(&g->x, g->dout[0], ARG_T(g, 0), ARG_T(g, 1),
                                            ARG_I(g, 2), ARG_I(g, 3), ARG_B(g, 4)));
}

static int64_t flops(const ac_frame *f) {
  const ac_tensor *x = ARG_T(f, 0);
  const aci_grid g = aci_grid_of(f, x->shape, x->ndim, ARG_T(f, 1)->shape, 2);
  return 2 * g.taps * f->out[0]->numel;
}

AC_OP(
    grid_sample,
    .sig =
        "grid_sample(x: tensor, grid: tensor, mode: enum(bilinear|nearest|bicubic) = bilinear, "
        "padding_mode: enum(zeros|border|reflection) = zeros, align_corners: bool = false) -> tensor",
    .shape = shape, .cpu = cpu, .grad = grad, .composed = aci_grid_composed,
    .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .flops = flops, .autocast = AC_CAST_PROMOTE);
