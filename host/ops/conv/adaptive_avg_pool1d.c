/* adaptive_avg_pool1d: the means of output_size windows per dim, window o of a dim of size n reaching from
   floor(o n / size) to ceil((o + 1) n / size).
   x (N, C, L) | (C, L) -> y (N, C, output_size) | (C, output_size). Floating point only.
   An output size of false keeps the input's.
   gradient: dx = every dy, divided by the size of its window, added to the elements of the window.
   example: accel.adaptive_avg_pool1d(accel.tensor { { 1.0, 3.0, 2.0, 6.0 } }, 2) --> { { 2, 4 } }
   example: accel.adaptive_avg_pool1d(accel.tensor { { 1.0, 3.0, 5.0 } }, 2) --> { { 2, 4 } } */
#include "ops/conv/pool.h"

static ac_status shape(ac_frame *f, ac_err *e) { return aci_adaptive_avg_pool_shape(f, 1, e); }
static ac_status cpu(ac_frame *f, ac_err *e) { return aci_adaptive_avg_pool_run(f, 1, e); }
static void grad(ac_grad *g) { aci_adaptive_avg_pool_grad(g, 1); }

AC_OP(adaptive_avg_pool1d,
      .sig = "adaptive_avg_pool1d(x: tensor, output_size: ints|none) -> tensor", .shape = shape,
      .cpu = cpu, .grad = grad);
