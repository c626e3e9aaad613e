/* softcap: y = cap * tanh(x / cap), which keeps logits within (-cap, cap).      x (any shape) -> y (same shape)
 * gradient: dx = dy * (1 - (y / cap)^2).
 *
 * An op as an outsider would write it, with public headers only. check/dropin_op.sh drops this file into a copy of
 * host/ops; plugin_softcap.c makes a shared library of it. */
#include "accel/opdef.h"
#include <math.h>

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  if (!ac_dtype_is_float(ac_tensor_dtype(x)))
    return AC_FAIL(e, DTYPE, "softcap: x must be floating point, not %s", ac_dtype_name(ac_tensor_dtype(x)));
  if (!(f->args[1].f > 0)) return AC_FAIL(e, INVALID, "softcap: cap must be above 0, not %g", f->args[1].f);
  return ac_frame_out(f, ac_tensor_dtype(x), ac_tensor_ndim(x), ac_tensor_shape(x), e);
}

/* Offset of row-major position i in a strided tensor, in elements. */
static int64_t offset_of(const ac_tensor *t, int64_t i) {
  const int64_t *extent = ac_tensor_shape(t), *stride = ac_tensor_stride(t);
  int64_t offset = 0;
  for (int d = ac_tensor_ndim(t) - 1; d >= 0; d--) {
    offset += i % extent[d] * stride[d];
    i /= extent[d];
  }
  return offset;
}

typedef struct softcap_job {
  const ac_tensor *x;
  ac_tensor *y;
  double cap;
} softcap_job;

static void run(void *arg, int64_t begin, int64_t end) {
  const softcap_job *j = arg;
  const void *x = ac_tensor_data(j->x);
  void *y = ac_tensor_data(j->y);
  if (ac_tensor_dtype(j->x) == AC_F64) {
    for (int64_t i = begin; i < end; i++)
      ((double *)y)[offset_of(j->y, i)] = j->cap * tanh(((const double *)x)[offset_of(j->x, i)] / j->cap);
  } else {
    float cap = (float)j->cap;
    for (int64_t i = begin; i < end; i++)
      ((float *)y)[offset_of(j->y, i)] = cap * tanhf(((const float *)x)[offset_of(j->x, i)] / cap);
  }
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  softcap_job j = {f->args[0].tensor, f->out[0], f->args[1].f};
  ac_dtype dt = ac_tensor_dtype(j.x);
  if (dt != AC_F32 && dt != AC_F64)
    return AC_FAIL(e, UNSUPPORTED, "softcap: no kernel for %s on the CPU", ac_dtype_name(dt));
  ac_parallel_for(f->team, ac_tensor_numel(j.x), 4096, run, &j);
  return AC_OK;
}

/* Calls to other ops by name: what a library outside the tree can do. Every parameter is given: mul has two, sub takes
 * a factor as its third. */
static ac_value number(double v) {
  return (ac_value){.kind = AC_T_SCALAR, .scalar = {.kind = AC_SCALAR_FLOAT, .f = v}};
}
static ac_value tensor(ac_tensor *t) { return (ac_value){.kind = AC_T_TENSOR, .tensor = t}; }
static ac_tensor *call(ac_expr *x, const char *name, ac_tensor *a, ac_value b) {
  ac_value args[3] = {tensor(a), b, number(1)};
  return ac_expr_call(x, ac_op_find(x->ctx, name), args, NULL, 0);
}

static void grad(ac_grad *g) {
  ac_tensor *scaled = call(&g->x, "mul", g->out[0], number(1 / g->args[1].f));
  ac_tensor *square = scaled == NULL ? NULL : call(&g->x, "mul", scaled, tensor(scaled));
  ac_tensor *part = square == NULL ? NULL : call(&g->x, "mul", g->dout[0], tensor(square));
  if (part != NULL) ac_grad_set(g, 0, call(&g->x, "sub", g->dout[0], tensor(part)));
}

AC_OP(softcap, .sig = "softcap(x: tensor, cap: float = 30) -> tensor", .shape = shape, .cpu = cpu,
      .grad = grad, .save = AC_SAVE_OUT(0), .flops_per_element = 3);
