/* unfold: the patches that a sliding window sees, one column per position (im2col), as
   torch.nn.functional.unfold.
   x (N, C, H, W) | (C, H, W) -> y (N, C kh kw, positions) | (C kh kw, positions): row (c, i, j) holds x at tap (i,
   j) of channel c, zero in the padding. Positions run over the rows of windows. Lists are one number or one per
   dim. Floating point only.
   gradient: dx = fold of dy.
   example: accel.unfold(accel.tensor { { { 1.0, 2.0, 3.0 } } }, { 1, 2 }) --> { { 1, 2 }, { 2, 3 } }
   example: accel.unfold(accel.ones(1, 1, 2), 1, { padding = 1 }) --> { { 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0 } } */
#include "ops/conv/patches.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  aci_patches p;
  AC_TRY(aci_window_input(f, x, 2, e));
  AC_TRY(aci_patches_make(f, 1, x->shape, x->ndim, &p, e));
  return aci_patches_out(f, &p, x->ndim, (ac_dtype)x->dtype, e);
}
static ac_status cpu(ac_frame *f, ac_err *e) {
  aci_patches p;
  AC_TRY(aci_patches_make(f, 1, ARG_T(f, 0)->shape, ARG_T(f, 0)->ndim, &p, e));
  return aci_patches_unfold(f, &p, ARG_T(f, 0), f->out[0], e);
}

#define LIST(v) (v)->ints, (v)->n

static void grad(ac_grad *g) {
  const int64_t *size = aci_space(ac_grad_shape(g, 0, 0), ac_grad_ndim(g, 0, 0), 2);
  ac_grad_set(g, 0,
              x_fold(&g->x, g->dout[0], size, 2, LIST(&g->args[1]), LIST(&g->args[2]),
                     LIST(&g->args[3]), LIST(&g->args[4])));
}

AC_OP(
    unfold,
    .sig =
        "unfold(x: tensor, kernel_size: ints, dilation: ints = [1], padding: ints = [0], stride: ints = "
        "[1]) -> "
        "tensor",
    .shape = shape, .cpu = cpu, .grad = grad, .on_complex = aci_complex_parts);
