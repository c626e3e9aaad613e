/* avg_pool_backward: dx of avg_pool1d, avg_pool2d and the adaptive ones: every dy, divided as its
   window's sum was, added to the elements of its window. size is the shape of x. space counts the
   pooled dims. adaptive: kernel_size is the output size. dy (like the pool's result) -> dx (size).
   gradient: ddy = the pool of ddx. */
#include "ops/conv/pool.h"

static ac_status make(const ac_frame *f, aci_pool *p, ac_err *e) {
  const aci_pool_args a = aci_avg_pool_back_args();
  return aci_pool_make(f, &a, (ac_dtype)ARG_T(f, 0)->dtype, f->args[1].ints, f->args[1].n, p, e);
}

static ac_status shape(ac_frame *f, ac_err *e) {
  aci_pool p;
  AC_TRY(make(f, &p, e));
  AC_TRY(aci_pool_fits(&p, ARG_T(f, 0), f->args[1].ints, f->args[1].n, e));
  return ac_frame_out(f, p.dtype, f->args[1].n, f->args[1].ints, e);
}
static ac_status cpu(ac_frame *f, ac_err *e) {
  aci_pool p;
  AC_TRY(make(f, &p, e));
  return aci_pool_avg_backward(f, &p, ARG_T(f, 0), f->out[0], e);
}

#define LIST(v) (v)->ints, (v)->n

static void grad(ac_grad *g) {
  ac_expr *ex = &g->x;
  ac_tensor *t = g->dout[0];
  const ac_value *k = &g->args[2], *stride = &g->args[3], *pad = &g->args[4];
  const bool one = ARG_I(g, 9) == 1, ceil_mode = ARG_B(g, 5), count = ARG_B(g, 6);
  if (ARG_B(g, 8))
    t = one ? x_adaptive_avg_pool1d(ex, t, LIST(k)) : x_adaptive_avg_pool2d(ex, t, LIST(k));
  else if (one) t = x_avg_pool1d(ex, t, LIST(k), LIST(stride), LIST(pad), ceil_mode, count);
  else
    t = x_avg_pool2d(ex, t, LIST(k), LIST(stride), LIST(pad), ceil_mode, count,
                     ARG_NONE(g, 7) ? NULL : &g->args[7].i);
  ac_grad_set(g, 0, t);
}

AC_OP(
    avg_pool_backward,
    .sig =
        "avg_pool_backward(dy: tensor, size: shape, kernel_size: ints|none, stride: ints, padding: ints, "
        "ceil_mode: bool, "
        "count_include_pad: bool, divisor_override: int?, adaptive: bool, space: int) -> tensor",
    .shape = shape, .cpu = cpu, .grad = grad, .hidden = true);
