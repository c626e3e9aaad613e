/* max_pool_backward: dx of max_pool1d, max_pool2d and the adaptive ones: dy added to the positions
   of x whose elements were the largest of their windows, which are found again. space counts the
   pooled dims. adaptive: kernel_size is the output size. max_pool_take is the reverse: t (like x)
   at those positions. Each is the other's adjoint. dy (like the pool's result), x (N, C, space) ->
   dx (like x). gradient: ddy = ddx taken at the positions. */
#include "ops/conv/pool.h"

static ac_status make(const ac_frame *f, aci_pool *p, ac_err *e) {
  const aci_pool_args a = aci_max_pool_back_args();
  const ac_tensor *x = ARG_T(f, 1);
  return aci_pool_make(f, &a, (ac_dtype)x->dtype, x->shape, x->ndim, p, e);
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 1);
  aci_pool p;
  AC_TRY(make(f, &p, e));
  AC_TRY(aci_pool_fits(&p, ARG_T(f, 0), x->shape, x->ndim, e));
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}
static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 1);
  aci_pool p;
  AC_TRY(make(f, &p, e));
  return aci_pool_max_backward(f, &p, ARG_T(f, 0), x, f->out[0], e);
}

#define LIST(v) (v)->ints, (v)->n
#define WINDOW(g)                                                                                  \
  LIST(&(g)->args[2]), LIST(&(g)->args[3]), LIST(&(g)->args[4]), LIST(&(g)->args[5]), ARG_B(g, 6), \
      ARG_B(g, 7), ARG_I(g, 8)

static void grad(ac_grad *g) {
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0, x_max_pool_take(&g->x, g->dout[0], ARG_T(g, 1), WINDOW(g)));
}

static ac_status shape_take(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 1);
  aci_pool p;
  AC_TRY(make(f, &p, e));
  if (!aci_same_shape(ARG_T(f, 0), x)) return AC_FAIL(e, SHAPE, "t and x differ in shape");
  return aci_pool_push(f, &p, x->shape, x->ndim, (ac_dtype)x->dtype, e);
}
static ac_status cpu_take(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 1);
  aci_pool p;
  AC_TRY(make(f, &p, e));
  return aci_pool_max_take(f, &p, ARG_T(f, 0), x, f->out[0], e);
}
static void grad_take(ac_grad *g) {
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0, x_max_pool_backward(&g->x, g->dout[0], ARG_T(g, 1), WINDOW(g)));
}

AC_OP(
    max_pool_backward,
    .sig =
        "max_pool_backward(dy: tensor, x: tensor, kernel_size: ints|none, stride: ints, padding: ints, "
        "dilation: ints, "
        "ceil_mode: bool, adaptive: bool, space: int) -> tensor",
    .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(1), .hidden = true);
AC_OP(
    max_pool_take,
    .sig =
        "max_pool_take(t: tensor, x: tensor, kernel_size: ints|none, stride: ints, padding: ints, dilation: ints, "
        "ceil_mode: bool, adaptive: bool, space: int) -> tensor",
    .shape = shape_take, .cpu = cpu_take, .grad = grad_take, .save = AC_SAVE_IN(1), .hidden = true);
