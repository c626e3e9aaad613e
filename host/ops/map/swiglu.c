/* swiglu: z = silu(x) y = x sigmoid(x) y, the gate of Llama's feed-forward block.
   x, y (any shapes that broadcast) -> z
   gradient: dx = dz y s (1 + x (1 - s)), dy = dz x s with s = sigmoid(x), both in one pass by swiglu_backward, each
   summed over the dims that were broadcast.
   example: accel.tensor { 1.0, -2.0 }:swiglu(accel.tensor { 3.0, 1.0 }) --> { 2.193176, -0.238406 } */
#include "ops/map/map.h"
#include "ops/reduce/reduce.h"

#define FWD(T, p, x, y) ((x)*m_sigmoid(x) * (y))

#define BACK(T, sfx)                                                                    \
  AC_ISA_FN(back_##sfx,                                                                 \
            (int64_t n, const T *restrict dz, const T *restrict x, const T *restrict y, \
             T *restrict dx, T *restrict dy),                                           \
            (n, dz, x, y, dx, dy)) {                                                    \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {                              \
      T s = m_sigmoid(x[i]), z = dz[i] * s, a = x[i], b = y[i];                         \
      dx[i] = z * b * (1 + a * (1 - s));                                                \
      dy[i] = z * a;                                                                    \
    }                                                                                   \
  }
BACK(float, f32)
BACK(double, f64)

typedef struct swiglu_job {
  aci_reduce_plan in[3]; /* dz, x, y, each as one list */
  char *out[2];
  ac_dtype dt;
} swiglu_job;

static void range(void *arg, int64_t begin, int64_t end) {
  const swiglu_job *j = arg;
  const aci_ctype ct = j->in[0].ct;
  const bool direct = aci_ctype_bytes(ct) == aci_dsize(j->dt);
  _Alignas(64) double buf[5][ACI_RED_BLOCK];
  for (int64_t i = begin; i < end; i += ACI_RED_BLOCK) {
    const int64_t n = end - i < ACI_RED_BLOCK ? end - i : ACI_RED_BLOCK,
                  at = i * (int64_t)aci_dsize(j->dt);
    const void *v[3];
    void *o[2];
    for (int k = 0; k < 3; k++) v[k] = aci_reduce_block(&j->in[k], 0, i, n, buf[k]);
    for (int k = 0; k < 2; k++) o[k] = direct ? (void *)(j->out[k] + at) : (void *)buf[3 + k];
    if (ct == ACI_C_F32) back_f32(n, v[0], v[1], v[2], o[0], o[1]);
    else back_f64(n, v[0], v[1], v[2], o[0], o[1]);
    for (int k = 0; k < 2 && !direct; k++) aci_store(ct, buf[3 + k], j->dt, j->out[k] + at, 1, n);
  }
}

static ac_status shape_backward(ac_frame *f, ac_err *e) {
  const ac_tensor *dz = ARG_T(f, 0);
  for (int k = 1; k < 3; k++)
    if (!aci_same_shape(dz, ARG_T(f, k)))
      return AC_FAIL(e, SHAPE, "argument %d is not of the gradient's shape", k + 1);
  for (int k = 0; k < 2; k++) AC_TRY(ac_frame_out(f, (ac_dtype)dz->dtype, dz->ndim, dz->shape, e));
  return AC_OK;
}

static ac_status cpu_backward(ac_frame *f, ac_err *e) {
  swiglu_job j = {.dt = (ac_dtype)f->out[0]->dtype};
  (void)e;
  if (f->out[0]->numel == 0) return AC_OK;
  for (int k = 0; k < 3; k++)
    aci_reduce_plan_make(&j.in[k], ARG_T(f, k), ACI_ALL_DIMS, aci_ctype_of(j.dt));
  for (int k = 0; k < 2; k++) j.out[k] = aci_data(f->out[k]);
  ac_parallel_for(f->team, f->out[0]->numel, 32 * ACI_RED_BLOCK, range, &j);
  return AC_OK;
}

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dz = g->dout[0], *dy = NULL, *in[2];
  for (int k = 0; k < 2; k++) {
    in[k] = ARG_T(g, k);
    if (!aci_same_shape(in[k], dz)) in[k] = x_expand(x, in[k], dz->shape, dz->ndim);
  }
  ac_tensor *dx = x_swiglu_backward(x, dz, in[0], in[1], &dy);
  ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, dx));
  ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, dy));
}

static int plain(ac_expr *x, const ac_value *a, ac_tensor **out) {
  out[0] = x_mul(x, T(x_silu(x, a[0].tensor)), T(a[1].tensor));
  return 1;
}

AC_MAP2(swiglu, FWD, .sig = "swiglu(x: tensor, y: tensor) -> tensor", .grad = grad,
        .composed = plain, .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .flops_per_element = 12);
AC_OP(swiglu_backward,
      .sig = "swiglu_backward(dz: tensor, x: tensor, y: tensor) -> (dx: tensor, dy: tensor)",
      .shape = shape_backward, .cpu = cpu_backward, .hidden = true, .flops_per_element = 18);
