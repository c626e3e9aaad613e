/* cumprod: y = along dim, the product of x up to and including each element.
   x (any shape) -> y (same shape, integers and bool give i64). With dtype, x is read as that dtype.
   gradient: dx_i = (product of x before i) * (sum over j >= i of dy_j times the product of x from i + 1 to j),
   right if some are 0, by cumprod_backward. Products are IEEE 754's: after a zero next to an infinity they are
   NaN, while PyTorch has 0.
   example: accel.tensor { { 1.0, 2.0, 3.0 }, { 4.0, 0.0, 6.0 } }:cumprod(2) --> { { 1, 2, 6 }, { 4, 0, 0 } }
   example: accel.tensor { { 1, 2 }, { 3, 4 } }:cumprod(1) --> { { 1, 2 }, { 3, 8 } } */
#include "ops/reduce/scan.h"
#include "ops/reduce/slots.h"

static int dim_of(int64_t d, int ndim) { return (int)(d < 0 && ndim > 0 ? d + ndim : d); }

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  return aci_scan_run(f, x, dim_of(ARG_I(f, 1), x->ndim), true, false, f->out[0], e);
}

/* ---- gradient: forwards the product before each element, backwards the sum, without a division ---- */
typedef struct cumprod_job {
  aci_reduce_plan dy, x, dx;
  aci_slots *slots; /* three lines of doubles each */
} cumprod_job;

static void lines(void *arg, int64_t begin, int64_t end) {
  const cumprod_job *j = arg;
  const int64_t n = j->x.n_reduced;
  const int slot = aci_slots_take(j->slots);
  double *dy = (double *)(void *)aci_slots_at(j->slots, slot), *x = dy + n, *before = x + n;
  for (int64_t l = begin; l < end; l++) {
    aci_reduce_fetch(&j->dy, aci_reduce_base(&j->dy, l), 0, n, dy);
    aci_reduce_fetch(&j->x, aci_reduce_base(&j->x, l), 0, n, x);
    double p = 1, s = 0;
    for (int64_t i = 0; i < n; i++) {
      before[i] = p;
      p *= x[i];
    }
    for (int64_t i = n - 1; i >= 0; i--) {
      s += dy[i]; /* with the sum from i + 1, already times x there */
      dy[i] = before[i] * s;
      s *= x[i];
    }
    char *to =
        (char *)(uintptr_t)j->dx.ptr + aci_reduce_base(&j->dx, l) * (int64_t)aci_dsize(j->dx.dt);
    aci_store(ACI_C_F64, dy, j->dx.dt, to, j->dx.red_stride[0], n);
  }
  aci_slots_give(j->slots, slot);
}

static ac_status shape_backward(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 1);
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}

static ac_status cpu_backward(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 1);
  const uint32_t mask = x->ndim > 0 ? 1u << ARG_I(f, 2) : 0;
  aci_slots slots;
  cumprod_job j = {.slots = &slots};
  if (x->numel == 0) return AC_OK;
  aci_reduce_plan_make(&j.dy, ARG_T(f, 0), mask, ACI_C_F64);
  aci_reduce_plan_make(&j.x, x, mask, ACI_C_F64);
  aci_reduce_plan_make(&j.dx, f->out[0], mask, ACI_C_F64);
  const int64_t n = j.x.n_reduced, grain = aci_reduce_grain(&j.x);
  AC_TRY(aci_slots_open(&slots, f, (j.x.n_out + grain - 1) / grain, 3 * (size_t)n * sizeof(double),
                        e));
  ac_parallel_for(f->team, j.x.n_out, grain, lines, &j);
  aci_slots_close(&slots);
  return AC_OK;
}

static void grad(ac_grad *g) {
  ac_tensor *dx = x_cumprod_backward(&g->x, g->dout[0], ARG_T(g, 0),
                                     dim_of(ARG_I(g, 1), ac_grad_ndim(g, 0, 0)));
  ac_grad_set(g, 0, dx);
}

/* Doubling: after a step each element holds the product of twice as many. For gradients of
 * gradients. */
static int plain(ac_expr *e, const ac_value *a, ac_tensor **out) {
  ac_tensor *x = a[0].tensor;
  const int d = dim_of(a[1].i, x->ndim);
  if (a[2].kind == AC_T_DTYPE && a[2].dtype != (ac_dtype)x->dtype) x = x_cast(e, x, a[2].dtype);
  const int64_t n = x != NULL && x->ndim > 0 ? x->shape[d] : 1;
  for (int64_t step = 1; step < n && x != NULL; step *= 2) {
    ac_tensor *both[] = {x_narrow(e, x, d, 0, step), x_mul(e, T(x_narrow(e, x, d, step, n - step)),
                                                           T(x_narrow(e, x, d, 0, n - step)))};
    x = x_cat(e, both, 2, d);
  }
  out[0] = n > 1 ? x : x_alias(e, x);
  return 1;
}

AC_OP(cumprod, .sig = "cumprod(x: tensor, dim: dim, dtype: dtype?) -> tensor",
      .shape = aci_scan_shape, .cpu = cpu, .grad = grad, .composed = plain, .save = AC_SAVE_IN(0),
      .flops_per_element = 1, .inplace = true, .copy_back = true);
AC_OP(cumprod_backward, .sig = "cumprod_backward(dy: tensor, x: tensor, dim: int) -> tensor",
      .shape = shape_backward, .cpu = cpu_backward, .hidden = true, .flops_per_element = 4);
