/* conv_transpose1d: the adjoint of conv1d. Every x[n, c, q] adds weight[c, o, t] * x[n, c, q] to y[n, o, q *
   stride - padding + t * dilation]. Bias is added to all.
   x (N, C, L) | (C, L), weight (C, O / groups, k), bias (O)? -> y (N, O, L') | (O, L'), with an extent of
   (in - 1) stride - 2 padding + dilation (k - 1) + output_padding + 1. Lists are one number or one per dim.
   gradient: dx = conv1d of dy, dweight = the correlation of dy with x, dbias = the sum of dy over all but the
   channels. Floating point only.
   example: accel.conv_transpose1d(accel.tensor { { 1.0, 2.0 } }, accel.tensor { { { 1.0, 10.0 } } }) --> { { 1, 12, 20 } }
   example: accel.conv_transpose1d(accel.ones(1, 2), accel.ones(1, 1, 2), { stride = 2 }) --> { { 1, 1, 1, 1 } } */
#include "ops/conv/conv.h"

static ac_status shape(ac_frame *f, ac_err *e) { return aci_conv_transpose_shape(f, 1, e); }
static ac_status cpu(ac_frame *f, ac_err *e) { return aci_conv_transpose_run(f, 1, e); }
static void grad(ac_grad *g) { aci_conv_transpose_grad(g, 1); }

AC_OP(
    conv_transpose1d,
    .sig =
        "conv_transpose1d(x: tensor, weight: tensor, bias: tensor?, stride: ints = [1], padding: ints = [0], "
        "output_padding: ints = [0], groups: int = 1, dilation: ints = [1]) -> tensor",
    .shape = shape, .cpu = cpu, .grad = grad, .flops = aci_conv_transpose_flops,
    .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .save_for = {1 << 1, 1 << 0}, .autocast = AC_CAST_LOWER);
