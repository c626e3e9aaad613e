/* conv_backward_input: dx of conv1d to conv3d, which is their transposed convolution. size is the shape of x.
   dy (N, O, space'), weight (O, C / groups, kernel) -> dx (N, C, space). The batch dim may be missing.
   gradient: ddy = the convolution of ddx, dweight = the correlation of ddx with dy. */
#include "ops/conv/conv.h"
#include "ops/index/index.h"

enum { DY, WEIGHT, SIZE, STRIDE, PADDING, DILATION, GROUPS };

static ac_status describe(const ac_frame *f, aci_conv *c, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, DY), *w = ARG_T(f, WEIGHT);
  const aci_conv_operands o = {f->args[SIZE].ints, w->shape, dy->shape, f->args[SIZE].n, w->ndim,
                               dy->ndim,           STRIDE,   DILATION,  GROUPS};
  return aci_conv_describe(f, &o, c, e);
}

static ac_status shape(ac_frame *f, ac_err *e) {
  aci_conv c;
  AC_TRY(describe(f, &c, e));
  return ac_frame_out(f, (ac_dtype)ARG_T(f, DY)->dtype, f->args[SIZE].n, f->args[SIZE].ints, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  ac_block *block[2] = {NULL, NULL};
  const void *dy, *w;
  aci_conv c;
  AC_TRY(describe(f, &c, e));
  ac_status st = aci_contiguous_data(f, ARG_T(f, DY), &dy, &block[0], e);
  if (st == AC_OK) st = aci_contiguous_data(f, ARG_T(f, WEIGHT), &w, &block[1], e);
  if (st == AC_OK) st = aci_conv_backward_input(f->team, &c, dy, w, NULL, aci_data(f->out[0]), e);
  ac_block_free(block[0]);
  ac_block_free(block[1]);
  return st;
}

static void grad(ac_grad *g) {
  const aci_conv_lists l = {&g->args[STRIDE], &g->args[PADDING], &g->args[DILATION],
                            ARG_I(g, GROUPS)};
  ac_tensor *ddx = g->dout[0];
  const int n = ac_grad_ndim(g, WEIGHT, 0) - 2;
  if (ac_grad_needs(g, DY))
    ac_grad_set(g, DY,
                aci_conv_expr(&g->x, n, ddx, ARG_T(g, WEIGHT), &l, ac_grad_shape(g, DY, 0),
                              ac_grad_ndim(g, DY, 0)));
  if (ac_grad_needs(g, WEIGHT))
    ac_grad_set(
        g, WEIGHT,
        aci_conv_weight_expr(&g->x, ARG_T(g, DY), ddx, &l, ac_grad_shape(g, WEIGHT, 0), n + 2));
}

AC_OP(
    conv_backward_input,
    .sig =
        "conv_backward_input(dy: tensor, weight: tensor, size: shape, stride: ints, padding: ints, "
        "dilation: ints, groups: int) -> tensor",
    .shape = shape, .cpu = cpu, .grad = grad, .flops = aci_conv_transpose_flops,
    .save = AC_SAVE_IN(DY) | AC_SAVE_IN(WEIGHT), .save_for = {1 << WEIGHT, 1 << DY},
    .hidden = true);
