/* fft_c2r: real numbers of the first half of their discrete Fourier transform along dim, the inverse of fft_r2c but for a
   factor n. The imaginary parts of frequency 0 and, if n is even, of frequency n/2 do not count.
   x (a, n/2 + 1, b, 2), pairs, dim 1, n -> y (a, n, b). halved: frequencies that stand for their conjugate as well are halved.
   gradient: dx = fft_r2c of dy with those frequencies doubled, unless they were halved. */
#include <stdlib.h>

#include "ops/core/on_host.h"
#include "ops/fft/plan.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t s[AC_MAX_DIMS];
  const int64_t d = ARG_I(f, 1), n = ARG_I(f, 2);
  AC_TRY(aci_fft_check(f, x, d, true, e));
  if (n < 1)
    return AC_FAIL(e, SHAPE, "invalid number of data points (%lld) to transform", (long long)n);
  if (x->shape[d] != n / 2 + 1)
    return AC_FAIL(e, SHAPE, "%lld points need %lld frequencies, x has %lld", (long long)n,
                   (long long)(n / 2 + 1), (long long)x->shape[d]);
  memcpy(s, x->shape, (size_t)(x->ndim - 1) * 8);
  s[d] = n;
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim - 1, s, e);
}

/* Even n: z_k = x_k + conj x_(h-k) + i w^-k (x_k - conj x_(h-k)), h = n / 2. The imaginary parts of
 * the ends are left out. */
static void load(const aci_fft_job *j, const char *const *in, int64_t lines, void *re, void *im) {
  const int64_t n = j->n, h = j->plan->n;
  const bool even = n % 2 == 0;
  ACI_FFT_EACH(j, {
    T *r = re;
    T *i = im;
    for (int64_t k = 0; k < h; k++) {
      const int64_t from = even || 2 * k < n ? k : n - k;
      const bool end = from == 0;
      const T by = j->weighted && !end ? (T)0.5 : (T)1;
      const T sign = end ? (T)0 : from == k ? by : -by;
      const T to = j->weighted && k > 0 ? (T)0.5 : (T)1;
      const T wr = even ? (T)j->turn[2 * k] : 0;
      const T wi = even ? -(T)j->turn[2 * k + 1] : 0;
      for (int64_t l = 0; l < lines; l++) {
        const T *x = (const T *)(const void *)in[l];
        const T a = by * x[from * j->in.step];
        const T b = end ? 0 : sign * x[from * j->in.step + 1];
        if (!even) {
          *r++ = a;
          *i++ = b;
          continue;
        }
        const T *z = x + (h - k) * j->in.step;
        const T c = to * z[0];
        const T d = end ? 0 : -to * z[1];
        const T p = a - c;
        const T q = b - d;
        *r++ = a + c - (p * wi + q * wr);
        *i++ = b + d + (p * wr - q * wi);
      }
    }
  });
}

static void store(const aci_fft_job *j, char *const *out, int64_t lines, const void *re,
                  const void *im) {
  const bool even = j->n % 2 == 0;
  ACI_FFT_EACH(j, {
    const T *r = re;
    const T *i = im;
    const T by = (T)j->scale;
    for (int64_t k = 0; k < j->plan->n; k++)
      for (int64_t l = 0; l < lines; l++, r++, i++) {
        T *y = (T *)(void *)out[l] + (even ? 2 * k : k) * j->out.step;
        y[0] = by * *r;
        if (even) y[j->out.step] = by * *i;
      }
  });
}

static ac_status transform(ac_frame *f, ac_err *e) {
  const ac_tensor *y = f->out[0];
  ac_tensor *x = ARG_T(f, 0);
  const int d = (int)ARG_I(f, 1);
  const int64_t n = ARG_I(f, 2);
  aci_fft_plan *p = NULL;
  ac_expr ex;
  if (y->numel == 0) return AC_OK;
  ac_expr_init(&ex, f->ctx, e);
  double *turn = malloc((size_t)(n / 2 + 1) * 2 * sizeof *turn);
  if (turn == NULL) return AC_FAIL(e, OOM, "no memory for a transform of %lld", (long long)n);
  for (int64_t k = 0; k <= n / 2; k++) aci_fft_root(k, n, &turn[2 * k], &turn[2 * k + 1]);
  if (x->stride[x->ndim - 1] != 1) { /* the parts have to be neighbours */
    const bool grad = ac_ctx_set_grad_enabled(f->ctx, false);
    x = x_clone(&ex, x);
    ac_ctx_set_grad_enabled(f->ctx, grad);
  }
  ac_status st = ex.st;
  if (st == AC_OK) st = aci_fft_plan_get(n % 2 == 0 ? n / 2 : n, x->dtype == AC_F64, &p, e);
  if (st == AC_OK) {
    aci_fft_job j = {.plan = p,
                     .load = load,
                     .store = store,
                     .inverse = true,
                     .weighted = ARG_B(f, 4),
                     .n = n,
                     .scale = ARG_F(f, 3),
                     .turn = turn};
    aci_fft_axis_of(x, d, true, &j.in, j.shape, &j.n_lines);
    aci_fft_axis_of(y, d, false, &j.out, j.shape, &j.n_lines);
    st = aci_fft_lines(f, &j, e);
  }
  aci_fft_plan_release(p);
  free(turn);
  ac_expr_end(&ex);
  return st;
}
ACI_ON_HOST(transform)

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_fft_r2c(&g->x, g->dout[0], ARG_I(g, 1), ARG_F(g, 3), !ARG_B(g, 4)));
}

static int64_t flops(const ac_frame *f) {
  int64_t n = 0;
  for (int64_t k = 1; k < ARG_I(f, 2); k *= 2) n++;
  return f->out[0]->numel * 5 * n / 2;
}

AC_OP(
    fft_c2r,
    .sig = "fft_c2r(x: tensor, dim: int, n: int, scale: float = 1, halved: bool = false) -> tensor",
    .shape = shape, .cpu = cpu, .by_vtable = true, .grad = grad, .flops = flops, .hidden = true);
