/* fft_c2c: discrete Fourier transforms of complex numbers over dims, y_k = scale sum_j x_j e^(-2 pi i j k / n), with
   inverse e^(+2 pi i j k / n).
   x (a, b, 2), pairs of real and imaginary part, dims of (a, b) -> y (a, b, 2)
   gradient: dx = the same of dy with the other sign. */
#include "ops/core/on_host.h"
#include "ops/fft/plan.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  for (int i = 0; i < f->args[1].n; i++) {
    AC_TRY(aci_fft_check(f, x, f->args[1].ints[i], true, e));
    if (x->shape[f->args[1].ints[i]] < 1)
      return AC_FAIL(e, SHAPE, "invalid number of data points (0) to transform");
  }
  return aci_shape_like0(f, e);
}

static void load(const aci_fft_job *j, const char *const *in, int64_t lines, void *re, void *im) {
  ACI_FFT_EACH(j, {
    T *r = re;
    T *i = im;
    for (int64_t k = 0; k < j->n; k++)
      for (int64_t l = 0; l < lines; l++) {
        const T *x = (const T *)(const void *)in[l] + k * j->in.step;
        *r++ = x[0];
        *i++ = x[1];
      }
  });
}

static void store(const aci_fft_job *j, char *const *out, int64_t lines, const void *re,
                  const void *im) {
  ACI_FFT_EACH(j, {
    const T *r = re;
    const T *i = im;
    const T by = (T)j->scale;
    for (int64_t k = 0; k < j->n; k++)
      for (int64_t l = 0; l < lines; l++) {
        T *y = (T *)(void *)out[l] + k * j->out.step;
        y[0] = by * *r++;
        y[1] = by * *i++;
      }
  });
}

static ac_status transform(ac_frame *f, ac_err *e) {
  ac_tensor *x = ARG_T(f, 0), *y = f->out[0], *copy = NULL;
  const int n = f->args[1].n;
  ac_expr ex;
  if (y->numel == 0) return AC_OK;
  ac_expr_init(&ex, f->ctx, e);
  if (x->stride[x->ndim - 1] != 1) { /* the parts have to be neighbours */
    const bool grad = ac_ctx_set_grad_enabled(f->ctx, false);
    copy = x = x_clone(&ex, x);
    ac_ctx_set_grad_enabled(f->ctx, grad);
  }
  ac_status st = ex.st;
  for (int i = 0; i < n && st == AC_OK; i++) {
    const int d = (int)f->args[1].ints[i];
    aci_fft_plan *p;
    st = aci_fft_plan_get(x->shape[d], x->dtype == AC_F64, &p, e);
    if (st != AC_OK) break;
    aci_fft_job j = {.plan = p,
                     .load = load,
                     .store = store,
                     .inverse = ARG_B(f, 2),
                     .n = x->shape[d],
                     .scale = i == n - 1 ? ARG_F(f, 3) : 1};
    aci_fft_axis_of(i == 0 ? x : y, d, true, &j.in, j.shape, &j.n_lines);
    aci_fft_axis_of(y, d, true, &j.out, j.shape, &j.n_lines);
    st = aci_fft_lines(f, &j, e);
    aci_fft_plan_release(p);
  }
  (void)copy;
  ac_expr_end(&ex);
  return st;
}
ACI_ON_HOST(transform)

static void grad(ac_grad *g) {
  const ac_value *d = &g->args[1];
  ac_grad_set(g, 0, x_fft_c2c(&g->x, g->dout[0], d->ints, d->n, !ARG_B(g, 2), ARG_F(g, 3)));
}

/* 5 n log2 n */
static int64_t flops(const ac_frame *f) {
  int64_t n = 0;
  for (int i = 0; i < f->args[1].n; i++)
    for (int64_t k = 1; k < f->out[0]->shape[f->args[1].ints[i]]; k *= 2) n++;
  return f->out[0]->numel / 2 * 5 * n;
}

AC_OP(fft_c2c, .sig = "fft_c2c(x: tensor, dims: ints, inverse: bool, scale: float = 1) -> tensor",
      .shape = shape, .cpu = cpu, .by_vtable = true, .grad = grad, .flops = flops, .hidden = true);
