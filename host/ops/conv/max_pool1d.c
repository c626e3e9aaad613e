/* max_pool1d: the largest element of every window of kernel_size. NaN is larger than any number. stride defaults
   to kernel_size. padding, at most half of the window, never wins. With ceil_mode a window may reach over the end.
   x (N, C, L) | (C, L) -> values (N, C, L') | (C, L'), and with return_indices the positions of the elements in
   their plane (i64, row-major, from 0). Lists are one number or one per dim. Floating point only.
   gradient: dx = dvalues added at the positions of the elements.
   example: accel.max_pool1d(accel.tensor { { 1.0, 3.0, 2.0, 5.0 } }, 2) --> { { 3, 5 } }
   example: accel.max_pool1d(accel.tensor { { 1.0, 5.0, 2.0 } }, 2, { return_indices = true }) --> { { 5 } }, { { 1 } } */
#include "ops/conv/pool.h"

static ac_status shape(ac_frame *f, ac_err *e) { return aci_max_pool_shape(f, 1, e); }
static ac_status cpu(ac_frame *f, ac_err *e) { return aci_max_pool_run(f, 1, e); }
static void grad(ac_grad *g) { aci_max_pool_grad(g, 1); }

AC_OP(
    max_pool1d,
    .sig =
        "max_pool1d(x: tensor, kernel_size: ints, stride: ints?, padding: ints = [0], dilation: ints = [1], "
        "ceil_mode: bool = false, return_indices: bool = false) -> (values: tensor, indices: tensor?)",
    .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(0));
