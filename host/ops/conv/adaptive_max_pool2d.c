/* adaptive_max_pool2d: the largest elements of output_size windows per dim, window o of a dim of size n
   reaching from floor(o n / size) to ceil((o + 1) n / size).
   x (N, C, H, W) | (C, H, W) -> values (N, C, output_size) | (C, output_size), and with return_indices the
   positions of the elements in their plane (i64, row-major, from 0). Floating point only.
   An output size of false keeps the input's.
   gradient: dx = dvalues added at the positions of the elements.
   example: accel.adaptive_max_pool2d(accel.arange(12.0):view(1, 3, 4), { 1, 2 }) --> { { { 9, 11 } } } */
#include "ops/conv/pool.h"

static ac_status shape(ac_frame *f, ac_err *e) { return aci_adaptive_max_pool_shape(f, 2, e); }
static ac_status cpu(ac_frame *f, ac_err *e) { return aci_adaptive_max_pool_run(f, 2, e); }
static void grad(ac_grad *g) { aci_adaptive_max_pool_grad(g, 2); }

AC_OP(adaptive_max_pool2d,
      .sig =
          "adaptive_max_pool2d(x: tensor, output_size: ints|none, return_indices: bool = false) -> "
          "(values: tensor, indices: tensor?)",
      .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(0));
