/* conv_backward_weight: dweight of conv1d to conv3d, the correlation of x with dy. size is the shape of the
   weight.
   dy (N, O, space'), x (N, C, space) -> dweight (O, C / groups, kernel). The batch dim may be missing.
   gradient: ddy = the convolution of x with ddweight, dx = the transposed convolution of dy with ddweight. */
#include "ops/conv/conv.h"
#include "ops/index/index.h"

enum { DY, X, SIZE, STRIDE, PADDING, DILATION, GROUPS };

static ac_status describe(const ac_frame *f, aci_conv *c, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, DY), *x = ARG_T(f, X);
  const aci_conv_operands o = {x->shape, f->args[SIZE].ints, dy->shape,
                               x->ndim,  f->args[SIZE].n,    dy->ndim,
                               STRIDE,   DILATION,           GROUPS};
  return aci_conv_describe(f, &o, c, e);
}

static ac_status shape(ac_frame *f, ac_err *e) {
  aci_conv c;
  AC_TRY(describe(f, &c, e));
  return ac_frame_out(f, (ac_dtype)ARG_T(f, DY)->dtype, f->args[SIZE].n, f->args[SIZE].ints, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  ac_block *block[2] = {NULL, NULL};
  const void *dy, *x;
  aci_conv c;
  AC_TRY(describe(f, &c, e));
  ac_status st = aci_contiguous_data(f, ARG_T(f, DY), &dy, &block[0], e);
  if (st == AC_OK) st = aci_contiguous_data(f, ARG_T(f, X), &x, &block[1], e);
  if (st == AC_OK) st = aci_conv_backward_weight(f->team, &c, dy, x, aci_data(f->out[0]), e);
  ac_block_free(block[0]);
  ac_block_free(block[1]);
  return st;
}

static int64_t flops(const ac_frame *f) {
  const ac_tensor *w = f->out[0];
  return w->shape[0] > 0 ? 2 * ARG_T(f, DY)->numel * (w->numel / w->shape[0]) : 0;
}

static void grad(ac_grad *g) {
  const aci_conv_lists l = {&g->args[STRIDE], &g->args[PADDING], &g->args[DILATION],
                            ARG_I(g, GROUPS)};
  ac_tensor *ddw = g->dout[0];
  if (ac_grad_needs(g, DY))
    ac_grad_set(g, DY,
                aci_conv_expr(&g->x, ddw->ndim - 2, ARG_T(g, X), ddw, &l, ac_grad_shape(g, DY, 0),
                              ac_grad_ndim(g, DY, 0)));
  if (ac_grad_needs(g, X))
    ac_grad_set(g, X,
                aci_conv_input_expr(&g->x, ARG_T(g, DY), ddw, &l, ac_grad_shape(g, X, 0),
                                    ac_grad_ndim(g, X, 0)));
}

AC_OP(conv_backward_weight,
      .sig =
          "conv_backward_weight(dy: tensor, x: tensor, size: shape, stride: ints, padding: ints, "
          "dilation: ints, groups: int) -> tensor",
      .shape = shape, .cpu = cpu, .grad = grad, .flops = flops,
      .save = AC_SAVE_IN(DY) | AC_SAVE_IN(X), .save_for = {1 << X, 1 << DY}, .hidden = true);
