/* fold: patches added up at their positions (col2im), the adjoint of unfold, as torch.nn.functional.fold.
   x (N, C kh kw, positions) | (C kh kw, positions) -> y (N, C, H, W) | (C, H, W) with output_size = (H, W). Lists
   are one number or one per dim. Floating point only.
   gradient: dx = unfold of dy.
   example: accel.fold(accel.tensor { { 1.0, 2.0 }, { 10.0, 20.0 } }, { 1, 3 }, { 1, 2 }) --> { { { 1, 12, 20 } } }
   example: accel.fold(accel.ones(4, 1), { 2, 2 }, 2) --> { { { 1, 1 }, { 1, 1 } } } */
#include "ops/conv/patches.h"

/* The tensor that the patches were cut from. */
static ac_status make(const ac_frame *f, aci_patches *p, int64_t *s, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t size[2], k[2];
  char a[128];
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(
        e, DTYPE,
        "works on floating point (f64, f32, f16, bf16), not %s; cast it with x:to(\"f32\")",
        ac_dtype_name((ac_dtype)x->dtype));
  if (x->ndim != 2 && x->ndim != 3)
    return AC_FAIL(
        e, SHAPE,
        "needs patches of shape (N, C * kernel, positions) or (C * kernel, positions), got %s",
        aci_shape_str(x->ndim, x->shape, a, sizeof a));
  AC_TRY(aci_window_ints(f, 1, 2, 1, size, e));
  AC_TRY(aci_window_ints(f, 2, 2, 1, k, e));
  const int64_t rows = x->shape[x->ndim - 2];
  if (rows % (k[0] * k[1]) != 0)
    return AC_FAIL(e, SHAPE, "%lld rows of patches %s do not divide by the %lld taps of the kernel",
                   (long long)rows, aci_shape_str(x->ndim, x->shape, a, sizeof a),
                   (long long)(k[0] * k[1]));
  if (x->ndim == 3) s[0] = x->shape[0];
  s[x->ndim - 2] = rows / (k[0] * k[1]);
  s[x->ndim - 1] = size[0];
  s[x->ndim] = size[1];
  AC_TRY(aci_patches_make(f, 2, s, x->ndim + 1, p, e));
  if (p->out[0] * p->out[1] == x->shape[x->ndim - 1]) return AC_OK;
  return AC_FAIL(
      e, SHAPE,
      "an output of (%lld, %lld) has %lld x %lld positions of the window, the patches %s have %lld",
      (long long)size[0], (long long)size[1], (long long)p->out[0], (long long)p->out[1],
      aci_shape_str(x->ndim, x->shape, a, sizeof a), (long long)x->shape[x->ndim - 1]);
}

static ac_status shape(ac_frame *f, ac_err *e) {
  int64_t s[AC_MAX_DIMS];
  aci_patches p;
  AC_TRY(make(f, &p, s, e));
  return ac_frame_out(f, (ac_dtype)ARG_T(f, 0)->dtype, ARG_T(f, 0)->ndim + 1, s, e);
}
static ac_status cpu(ac_frame *f, ac_err *e) {
  int64_t s[AC_MAX_DIMS];
  aci_patches p;
  AC_TRY(make(f, &p, s, e));
  return aci_patches_fold(f, &p, ARG_T(f, 0), f->out[0], e);
}

#define LIST(v) (v)->ints, (v)->n

static void grad(ac_grad *g) {
  ac_grad_set(g, 0,
              x_unfold(&g->x, g->dout[0], LIST(&g->args[2]), LIST(&g->args[3]), LIST(&g->args[4]),
                       LIST(&g->args[5])));
}

AC_OP(
    fold,
    .sig =
        "fold(x: tensor, output_size: ints, kernel_size: ints, dilation: ints = [1], padding: ints = [0], "
        "stride: ints = [1]) -> tensor",
    .shape = shape, .cpu = cpu, .grad = grad, .on_complex = aci_complex_parts);
