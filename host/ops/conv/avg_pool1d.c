/* avg_pool1d: the mean of every window of kernel_size. stride defaults to kernel_size. padding counts as zeros
   unless count_include_pad is false. With ceil_mode a window may reach over the end.
   x (N, C, L) | (C, L) -> y (N, C, L') | (C, L'). Lists are one number or one per dim. Floating point only.
   gradient: dx = every dy, divided likewise, added to the elements of its window.
   example: accel.avg_pool1d(accel.tensor { { 1.0, 3.0, 2.0, 6.0 } }, 2) --> { { 2, 4 } }
   example: accel.avg_pool1d(accel.ones(1, 3), 3, 2, 1, { count_include_pad = false }) --> { { 1, 1 } } */
#include "ops/conv/pool.h"

static ac_status shape(ac_frame *f, ac_err *e) { return aci_avg_pool_shape(f, 1, e); }
static ac_status cpu(ac_frame *f, ac_err *e) { return aci_avg_pool_run(f, 1, e); }
static void grad(ac_grad *g) { aci_avg_pool_grad(g, 1); }

AC_OP(
    avg_pool1d,
    .sig =
        "avg_pool1d(x: tensor, kernel_size: ints, stride: ints?, padding: ints = [0], ceil_mode: bool = "
        "false, "
        "count_include_pad: bool = true) -> tensor",
    .shape = shape, .cpu = cpu, .grad = grad);
