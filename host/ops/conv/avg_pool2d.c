/* avg_pool2d: the mean of every window of kernel_size. stride defaults to kernel_size. padding counts as zeros
   unless count_include_pad is false. With ceil_mode a window may reach over the end. divisor_override is used
   instead of the number of elements.
   x (N, C, H, W) | (C, H, W) -> y (N, C, H', W') | (C, H', W'). Lists are one number or one per dim. Floating
   point only.
   gradient: dx = every dy, divided likewise, added to the elements of its window.
   example: accel.avg_pool2d(accel.arange(16.0):view(1, 4, 4), 2) --> { { { 2.5, 4.5 }, { 10.5, 12.5 } } }
   example: accel.avg_pool2d(accel.ones(1, 2, 2), 2, { padding = 1, divisor_override = 2 }) --> { { { 0.5, 0.5 }, { 0.5, 0.5 } } } */
#include "ops/conv/pool.h"

static ac_status shape(ac_frame *f, ac_err *e) { return aci_avg_pool_shape(f, 2, e); }
static ac_status cpu(ac_frame *f, ac_err *e) { return aci_avg_pool_run(f, 2, e); }
static void grad(ac_grad *g) { aci_avg_pool_grad(g, 2); }

AC_OP(
    avg_pool2d,
    .sig =
        "avg_pool2d(x: tensor, kernel_size: ints, stride: ints?, padding: ints = [0], ceil_mode: bool = "
        "false, "
        "count_include_pad: bool = true, divisor_override: int?) -> tensor",
    .shape = shape, .cpu = cpu, .grad = grad);
