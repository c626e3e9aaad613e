/* grid_sample_backward_input: dx of grid_sample: dy added to the elements of x that its position
   looked at, with their weights. size is the shape of x. dy (N, C, positions), grid -> dx (size).
   grid_sample_backward_grid: dgrid: dy times the slopes of the weights by every coordinate. dy, x,
   grid -> dgrid (like grid). gradient: grid_sample is differentiated twice through its composed
   form. */
#include "ops/index/grid_sample.h"

static ac_status fits(const ac_tensor *dy, const int64_t *x, int ndim, const ac_tensor *grid,
                      ac_err *e) {
  bool ok = dy->ndim == ndim && dy->shape[0] == x[0] && dy->shape[1] == x[1];
  for (int d = 2; ok && d < ndim; d++) ok = dy->shape[d] == grid->shape[d - 1];
  return ok ? AC_OK : AC_FAIL(e, SHAPE, "dy does not fit x and grid");
}

static ac_status shape_input(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, 0), *grid = ARG_T(f, 1);
  const ac_value *size = &f->args[2];
  AC_TRY(aci_grid_check(f, size->ints, size->n, grid, 3, e));
  AC_TRY(fits(dy, size->ints, size->n, grid, e));
  return ac_frame_out(f, (ac_dtype)dy->dtype, size->n, size->ints, e);
}
static ac_status cpu_input(ac_frame *f, ac_err *e) {
  const ac_value *size = &f->args[2];
  const aci_grid g = aci_grid_of(f, size->ints, size->n, ARG_T(f, 1)->shape, 3);
  return aci_grid_backward_input(f, &g, ARG_T(f, 0), ARG_T(f, 1), f->out[0], e);
}

static ac_status shape_grid(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, 0), *x = ARG_T(f, 1), *grid = ARG_T(f, 2);
  AC_TRY(aci_grid_check(f, x->shape, x->ndim, grid, 3, e));
  AC_TRY(fits(dy, x->shape, x->ndim, grid, e));
  return ac_frame_out(f, (ac_dtype)grid->dtype, grid->ndim, grid->shape, e);
}
static ac_status cpu_grid(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 1), *grid = ARG_T(f, 2);
  const aci_grid g = aci_grid_of(f, x->shape, x->ndim, grid->shape, 3);
  return aci_grid_backward_grid(f, &g, ARG_T(f, 0), x, grid, f->out[0], e);
}

AC_OP(
    grid_sample_backward_input,
    .sig =
        "grid_sample_backward_input(dy: tensor, grid: tensor, size: shape, mode: int, padding_mode: int, "
        "align_corners: bool) -> tensor",
    .shape = shape_input, .cpu = cpu_input, .hidden = true);
AC_OP(
    grid_sample_backward_grid,
    .sig =
        "grid_sample_backward_grid(dy: tensor, x: tensor, grid: tensor, mode: int, padding_mode: int, "
        "align_corners: bool) -> tensor",
    .shape = shape_grid, .cpu = cpu_grid, .hidden = true);
