/* conv1d: y[n, o] = bias[o] + sum over channels c and taps t of weight[o, c, t] * x[n, c, q * stride -
   padding + t * dilation] at every position q, x being 0 outside. With groups, output channels read their own
   group's channels only.
   x (N, C, L) | (C, L), weight (O, C / groups, k), bias (O)? -> y (N, O, L') | (O, L'), with an extent of
   floor((in + 2 padding - dilation (k - 1) - 1) / stride) + 1. stride, padding and dilation are one number or one
   per dim.
   gradient: dx = the transposed convolution of dy, dweight = the correlation of x with dy, dbias = the sum of
   dy over all but the channels. Floating point only.
   example: accel.conv1d(accel.tensor { { 1.0, 2.0, 3.0, 4.0 } }, accel.tensor { { { 1.0, 10.0 } } }) --> { { 21, 32, 43 } }
   example: accel.conv1d(accel.arange(4.0):view(1, 4), accel.ones(1, 1, 3), { padding = 1, stride = 2 }) --> { { 1, 6 } } */
#include "ops/conv/conv.h"

static ac_status shape(ac_frame *f, ac_err *e) { return aci_conv_shape(f, 1, e); }
static ac_status cpu(ac_frame *f, ac_err *e) { return aci_conv_run(f, 1, e); }
static void grad(ac_grad *g) { aci_conv_grad(g, 1); }

AC_OP(
    conv1d,
    .sig =
        "conv1d(x: tensor, weight: tensor, bias: tensor?, stride: ints = [1], padding: ints = [0], "
        "dilation: ints = [1], groups: int = 1) -> tensor",
    .shape = shape, .cpu = cpu, .grad = grad, .flops = aci_conv_flops,
    .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .save_for = {1 << 1, 1 << 0}, .autocast = AC_CAST_LOWER);
