/* adaptive_avg_pool2d: the means of output_size windows per dim, window o of a dim of size n reaching from
   floor(o n / size) to ceil((o + 1) n / size).
   x (N, C, H, W) | (C, H, W) -> y (N, C, output_size) | (C, output_size). Floating point only.
   An output size of false keeps the input's.
   gradient: dx = every dy, divided by the size of its window, added to the elements of the window.
   example: accel.adaptive_avg_pool2d(accel.arange(12.0):view(1, 3, 4), 1) --> { { { 5.5 } } }
   example: accel.adaptive_avg_pool2d(accel.arange(12.0):view(1, 3, 4), { 1, 2 }) --> { { { 4.5, 6.5 } } }
   example: accel.adaptive_avg_pool2d(accel.ones(1, 3, 4), { 1, false }).shape --> { 1, 1, 4 } */
#include "ops/conv/pool.h"

static ac_status shape(ac_frame *f, ac_err *e) { return aci_adaptive_avg_pool_shape(f, 2, e); }
static ac_status cpu(ac_frame *f, ac_err *e) { return aci_adaptive_avg_pool_run(f, 2, e); }
static void grad(ac_grad *g) { aci_adaptive_avg_pool_grad(g, 2); }

AC_OP(adaptive_avg_pool2d,
      .sig = "adaptive_avg_pool2d(x: tensor, output_size: ints|none) -> tensor", .shape = shape,
      .cpu = cpu, .grad = grad);
