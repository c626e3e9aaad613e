/* bernoulli_: x := 1 with probability p, else 0, independently.          x (any shape)! -> x
   p: a number, 0.5 if it is not given, or a tensor of floats that broadcasts to x.
   gradient: none to the old values.
   example: accel.empty(3):bernoulli_(1) --> { 1, 1, 1 }
   example: local m = accel.empty(10000):bernoulli_(0.25):mean():item() return m > 0.2 and m < 0.3 --> true */
#include "ops/map/map.h"
#include "ops/random/draw.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor;
  ac_generator *g = a[2].kind == AC_T_NONE ? NULL : a[2].generator;
  if (a[1].kind != AC_T_TENSOR) {
    out[0] = x_bernoulli_fill_(x, t, a[1].kind == AC_T_NONE ? 0.5 : aci_scalar_f(a[1].scalar), g);
    return 1;
  }
  ac_tensor *p = x_expand(x, a[1].tensor, t->shape, t->ndim);
  if (p != NULL && p->dtype != t->dtype)
    out[0] = x_copy_(x, t, x_bernoulli_each_(x, x_zeros_like(x, p, NULL, NULL), p, g));
  else out[0] = x_bernoulli_each_(x, t, p, g);
  return 1;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  if (ARG_T(f, 0)->dtype > AC_BOOL)
    return AC_FAIL(e, DTYPE, "%s is a storage dtype", ac_dtype_name((ac_dtype)ARG_T(f, 0)->dtype));
  if (f->args[1].kind == AC_T_TENSOR) {
    const ac_tensor *p = ARG_T(f, 1);
    if (!ac_dtype_is_float((ac_dtype)p->dtype))
      return AC_FAIL(e, DTYPE, "p must hold floats, got %s; cast it",
                     ac_dtype_name((ac_dtype)p->dtype));
    if (p->dtype != ARG_T(f, 0)->dtype || !aci_same_shape(p, ARG_T(f, 0)))
      return AC_FAIL(e, SHAPE, "p must have the shape and the dtype of x");
  } else if (!(ARG_F(f, 1) >= 0 && ARG_F(f, 1) <= 1)) {
    return AC_FAIL(e, INVALID, "p must lie between 0 and 1, got %g", ARG_F(f, 1));
  }
  return ac_frame_alias(f, 0, e);
}

static void draw(int64_t n, const uint32_t *w, const void *params, void *row) {
  uint64_t below = *(const uint64_t *)params;
  int64_t *y = row;
  for (int64_t i = 0; i < n; i++) y[i] = w[i] < below;
}

static ac_status fill(ac_frame *f, ac_err *e) {
  uint64_t below = (uint64_t)(ARG_F(f, 1) * 0x1p32);
  (void)e;
  aci_draw_fill(f, f->out[0], ACI_C_I64, 4, draw, &below);
  return AC_OK;
}

/* The word of element i is below p[i] 2^32. */
static ac_status each(ac_frame *f, ac_err *e) {
  enum { ROW = 256 };
  const ac_tensor *x = f->out[0], *p = ARG_T(f, 1);
  const aci_draw d = aci_draw_of(&f->rng_counter);
  uint32_t w[ROW];
  double row[ROW];
  for (int64_t b = 0; b < p->numel; b += ROW) { /* before anything is written */
    const int64_t n = p->numel - b < ROW ? p->numel - b : ROW;
    aci_elems_load(p, ACI_C_F64, b, n, row);
    for (int64_t i = 0; i < n; i++)
      if (!(row[i] >= 0 && row[i] <= 1))
        return AC_FAIL(e, INVALID, "p must lie between 0 and 1, got %g at element %lld", row[i],
                       (long long)ac_frame_show(f, b + i));
  }
  for (int64_t b = 0; b < x->numel; b += ROW) {
    const int64_t n = x->numel - b < ROW ? x->numel - b : ROW;
    aci_draw_words(&d, (uint64_t)(b / 4), (n + 3) / 4, w);
    aci_elems_load(p, ACI_C_F64, b, n, row);
    for (int64_t i = 0; i < n; i++) row[i] = (double)w[i] < row[i] * 0x1p32;
    aci_elems_store(x, ACI_C_F64, b, n, row);
  }
  return AC_OK;
}

AC_OP(bernoulli_, .sig = "bernoulli_(x!: tensor, p: operand?, generator: generator?) -> tensor",
      .composed = composed);
AC_OP(bernoulli_fill_,
      .sig = "bernoulli_fill_(x!: tensor, p: float, generator: generator?) -> tensor",
      .shape = shape, .cpu = fill, .grad = aci_draw_no_grad, .hidden = true);
AC_OP(bernoulli_each_,
      .sig = "bernoulli_each_(x!: tensor, p: tensor, generator: generator?) -> tensor",
      .shape = shape, .cpu = each, .grad = aci_draw_no_grad, .hidden = true);
