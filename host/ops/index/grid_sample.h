/* grid_sample on the CPU: checks, kernels (grid_sample_kernel.c) and the formula in plain ops
 * (grid_sample_plain.c). Called by grid_sample.c and grid_sample_backward_input.c. */
#ifndef ACI_OPS_GRID_SAMPLE_H
#define ACI_OPS_GRID_SAMPLE_H
#include "ops/core/op.h"
#include "ops/index/grid.h"

/* SHAPE unless grid gives positions in x. Arguments mode and so on begin at `at`. */
ac_status aci_grid_check(const ac_frame *f, const int64_t *x_shape, int ndim, const ac_tensor *grid,
                         int at, ac_err *e);

/* y and dx and dgrid are contiguous outputs. The others have any strides and a dtype of floats. */
ac_status aci_grid_sample(ac_frame *f, const aci_grid *g, const ac_tensor *x, const ac_tensor *grid,
                          ac_tensor *y, ac_err *e);
ac_status aci_grid_backward_input(ac_frame *f, const aci_grid *g, const ac_tensor *dy,
                                  const ac_tensor *grid, ac_tensor *dx, ac_err *e);
ac_status aci_grid_backward_grid(ac_frame *f, const aci_grid *g, const ac_tensor *dy,
                                 const ac_tensor *x, const ac_tensor *grid, ac_tensor *dgrid,
                                 ac_err *e);

/* The arguments of grid_sample. */
int aci_grid_composed(ac_expr *x, const ac_value *a, ac_tensor **out);

#endif
