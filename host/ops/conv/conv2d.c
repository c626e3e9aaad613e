/* conv2d: y[n, o] = bias[o] + sum over channels c and taps t of weight[o, c, t] * x[n, c, q * stride -
   padding + t * dilation] at every position q, x being 0 outside. With groups, output channels read their own
   group's channels only.
   x (N, C, H, W) | (C, H, W), weight (O, C / groups, kh, kw), bias (O)? -> y (N, O, H', W') | (O, H', W'),
   with an extent of floor((in + 2 padding - dilation (k - 1) - 1) / stride) + 1. stride, padding and dilation are
   one number or one per dim.
   gradient: dx = the transposed convolution of dy, dweight = the correlation of x with dy, dbias = the sum of
   dy over all but the channels. Floating point only. Large 3 x 3 convolutions of f32 with stride 1 use Winograd's
   method, and so do bf16 and f16 if the CPU multiplies them as f32. For values of similar size it is as exact.
   Otherwise errors are relative to the largest value in the 4 x 4 that a result's tile reads, and infinities and
   values above 8e37 there make NaN (ACCEL_WINOGRAD=0: never).
   example: accel.conv2d(accel.ones(1, 3, 3), accel.ones(1, 1, 2, 2)) --> { { { 4, 4 }, { 4, 4 } } }
   example: accel.conv2d(accel.ones(1, 2, 2), accel.ones(1, 1, 3, 3), accel.tensor { 0.5 }, 1, 1) --> { { { 4.5, 4.5 }, { 4.5, 4.5 } } } */
#include "ops/conv/conv.h"

static ac_status shape(ac_frame *f, ac_err *e) { return aci_conv_shape(f, 2, e); }
static ac_status cpu(ac_frame *f, ac_err *e) { return aci_conv_run(f, 2, e); }
static void grad(ac_grad *g) { aci_conv_grad(g, 2); }

AC_OP(
    conv2d,
    .sig =
        "conv2d(x: tensor, weight: tensor, bias: tensor?, stride: ints = [1], padding: ints = [0], "
        "dilation: ints = [1], groups: int = 1) -> tensor",
    .shape = shape, .cpu = cpu, .grad = grad, .flops = aci_conv_flops,
    .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .save_for = {1 << 1, 1 << 0}, .autocast = AC_CAST_LOWER);
