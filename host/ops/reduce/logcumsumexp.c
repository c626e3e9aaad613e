/* logcumsumexp: y = along dim, the logarithm of the sum of e^x up to and including each element, without overflow.
   x (floating point, any shape) -> y (same shape)
   gradient: dx_j = sum over i >= j of dy_i e^(x_j - y_i), by logcumsumexp from the end of ln |dy| - y, for the positive and the
   negative dy apart.
   example: accel.tensor { 0.0, 0, 0 }:logcumsumexp(1):exp() --> { 1, 2, 3 }
   example: accel.tensor { 1000.0, 1000 }:logcumsumexp(1) --> { 1000, 1000.693147 } */
#include <math.h>

#include "ops/core/on_host.h"
#include "ops/reduce/composed.h"
#include "ops/reduce/reduce.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int d;
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "is for floating point, not %s; cast the tensor first",
                   ac_dtype_name((ac_dtype)x->dtype));
  AC_TRY(ac_frame_dim(f, 1, x->ndim, &d, e));
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}

typedef struct scan_job {
  aci_reduce_plan x, y;
} scan_job;

/* A line keeps its largest element m and the sum of e^(x - m), in double. */
static void lines(void *arg, int64_t begin, int64_t end) {
  const scan_job *j = arg;
  double in[ACI_RED_BLOCK];
  const int64_t n = j->x.n_reduced, es = (int64_t)aci_dsize(j->y.dt);
  for (int64_t o = begin; o < end; o++) {
    const int64_t xb = aci_reduce_base(&j->x, o), yb = aci_reduce_base(&j->y, o);
    double m = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i += ACI_RED_BLOCK) {
      const int64_t c = n - i < ACI_RED_BLOCK ? n - i : ACI_RED_BLOCK;
      aci_reduce_fetch(&j->x, xb, i, c, in);
      for (int64_t k = 0; k < c; k++) {
        const double v = in[k];
        if (v != v || m != m) {
          m = NAN;
        } else if (v > m) {
          sum = m == -INFINITY || v == INFINITY ? 1 : sum * exp(m - v) + 1;
          m = v;
        } else if (m != INFINITY && v != -INFINITY) {
          sum += exp(v - m);
        }
        in[k] = m - m != 0 ? m : m + log(sum);
      }
      aci_store(ACI_C_F64, in, j->y.dt,
                (char *)(uintptr_t)j->y.ptr + (yb + i * j->y.red_stride[0]) * es,
                j->y.red_stride[0], c);
    }
  }
}

static ac_status scan(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  ac_tensor *y = f->out[0];
  scan_job j;
  (void)e;
  if (y->numel == 0) return AC_OK;
  const int64_t d = ARG_I(f, 1) < 0 ? ARG_I(f, 1) + y->ndim : ARG_I(f, 1);
  const uint32_t mask = y->ndim > 0 ? 1u << d : 0;
  aci_reduce_plan_make(&j.x, x, mask, ACI_C_F64);
  aci_reduce_plan_make(&j.y, y, mask, ACI_C_F64);
  ac_parallel_for(f->team, j.y.n_out, 1 + 1024 / j.x.n_reduced, lines, &j);
  return AC_OK;
}
ACI_ON_HOST(scan)

/* ln |dy| - y from the end, of the elements of dy with this sign. */
static ac_tensor *part(ac_expr *x, ac_tensor *dy, ac_tensor *y, ac_tensor *in, int64_t d,
                       double sign) {
  ac_tensor *own = x_gt(x, T(x_mul(x, T(dy), F(sign))), F(0));
  ac_tensor *size = x_where(x, own, T(x_mul(x, T(dy), F(sign))), F(1));
  ac_tensor *w = x_sub(x, T(x_log(x, size)), T(y), aci_float(1));
  w = x_masked_fill(x, w, x_logical_not(x, own), F(-INFINITY));
  w = x_flip(x, x_logcumsumexp(x, x_flip(x, w, &d, 1), d), &d, 1);
  return x_exp(x, x_add(x, T(w), T(in), aci_float(1)));
}

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0], *y = g->out[0], *in = ARG_T(g, 0);
  if (dy->ndim == 0) {
    ac_grad_set(g, 0, dy);
    return;
  }
  const int64_t d = ARG_I(g, 1) < 0 ? ARG_I(g, 1) + dy->ndim : ARG_I(g, 1);
  ac_tensor *up = part(x, dy, y, in, d, 1), *down = part(x, dy, y, in, d, -1);
  ac_grad_set(g, 0, x_sub(x, T(up), T(down), aci_float(1)));
}

AC_OP(logcumsumexp, .sig = "logcumsumexp(x: tensor, dim: dim) -> tensor", .shape = shape,
      .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(0) | AC_SAVE_OUT(0), .flops_per_element = 20,
      .by_vtable = true);
