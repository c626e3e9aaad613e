/* fft_r2c: the first half of the discrete Fourier transform of real numbers along dim, whose other half is its conjugate.
   x (a, n, b), dim 1 -> y (a, n/2 + 1, b, 2), pairs. doubled: frequencies that stand for their conjugate as well are doubled.
   gradient: dx = fft_c2r of dy with those frequencies halved, unless they were doubled. */
#include <stdlib.h>

#include "ops/core/on_host.h"
#include "ops/fft/plan.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t s[AC_MAX_DIMS];
  const int64_t d = ARG_I(f, 1);
  AC_TRY(aci_fft_check(f, x, d, false, e));
  if (x->shape[d] < 1) return AC_FAIL(e, SHAPE, "invalid number of data points (0) to transform");
  if (x->ndim == AC_MAX_DIMS) return AC_FAIL(e, SHAPE, "a tensor has at most %d dims", AC_MAX_DIMS);
  memcpy(s, x->shape, (size_t)x->ndim * 8);
  s[d] = x->shape[d] / 2 + 1;
  s[x->ndim] = 2;
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim + 1, s, e);
}

/* Even n: neighbours are the parts of n / 2 complex numbers. */
static void load(const aci_fft_job *j, const char *const *in, int64_t lines, void *re, void *im) {
  const bool even = j->n % 2 == 0;
  ACI_FFT_EACH(j, {
    T *r = re;
    T *i = im;
    for (int64_t k = 0; k < j->plan->n; k++)
      for (int64_t l = 0; l < lines; l++) {
        const T *x = (const T *)(const void *)in[l] + (even ? 2 * k : k) * j->in.step;
        *r++ = x[0];
        *i++ = even ? x[j->in.step] : 0;
      }
  });
}

/* y_k = (z_k + conj z_(h-k)) / 2 - i w^k (z_k - conj z_(h-k)) / 2, h = n / 2 */
static void store(const aci_fft_job *j, char *const *out, int64_t lines, const void *re,
                  const void *im) {
  const int64_t h = j->plan->n, n = j->n;
  const bool even = n % 2 == 0;
  ACI_FFT_EACH(j, {
    const T *r = re;
    const T *i = im;
    for (int64_t k = 0; k <= n / 2; k++) {
      const bool twice = j->weighted && k > 0 && 2 * k < n;
      const T by = (T)(twice ? 2 * j->scale : j->scale);
      const T wr = (T)j->turn[2 * k];
      const T wi = (T)j->turn[2 * k + 1];
      const int64_t at = k % h * lines;
      const int64_t to = (h - k) % h * lines;
      for (int64_t l = 0; l < lines; l++) {
        T *y = (T *)(void *)out[l] + k * j->out.step;
        T a = r[at + l];
        T b = i[at + l];
        if (even) {
          const T c = r[to + l];
          const T d = -i[to + l];
          const T p = (a - c) / 2;
          const T q = (b - d) / 2;
          a = (a + c) / 2 + (p * wi + q * wr);
          b = (b + d) / 2 - (p * wr - q * wi);
        }
        y[0] = by * a;
        y[1] = by * b;
      }
    }
  });
}

static ac_status transform(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *y = f->out[0];
  const int d = (int)ARG_I(f, 1);
  const int64_t n = x->shape[d];
  aci_fft_plan *p;
  if (y->numel == 0) return AC_OK;
  double *turn = malloc((size_t)(n / 2 + 1) * 2 * sizeof *turn);
  if (turn == NULL) return AC_FAIL(e, OOM, "no memory for a transform of %lld", (long long)n);
  for (int64_t k = 0; k <= n / 2; k++) aci_fft_root(k, n, &turn[2 * k], &turn[2 * k + 1]);
  ac_status st = aci_fft_plan_get(n % 2 == 0 ? n / 2 : n, x->dtype == AC_F64, &p, e);
  if (st == AC_OK) {
    aci_fft_job j = {.plan = p,
                     .load = load,
                     .store = store,
                     .weighted = ARG_B(f, 3),
                     .n = n,
                     .scale = ARG_F(f, 2),
                     .turn = turn};
    aci_fft_axis_of(x, d, false, &j.in, j.shape, &j.n_lines);
    aci_fft_axis_of(y, d, true, &j.out, j.shape, &j.n_lines);
    st = aci_fft_lines(f, &j, e);
    aci_fft_plan_release(p);
  }
  free(turn);
  return st;
}
ACI_ON_HOST(transform)

static void grad(ac_grad *g) {
  const int64_t d = ARG_I(g, 1);
  ac_grad_set(
      g, 0, x_fft_c2r(&g->x, g->dout[0], d, ac_grad_shape(g, 0, 0)[d], ARG_F(g, 2), !ARG_B(g, 3)));
}

static int64_t flops(const ac_frame *f) {
  int64_t n = 0;
  for (int64_t k = 1; k < ARG_T(f, 0)->shape[ARG_I(f, 1)]; k *= 2) n++;
  return ARG_T(f, 0)->numel * 5 * n / 2;
}

AC_OP(fft_r2c,
      .sig = "fft_r2c(x: tensor, dim: int, scale: float = 1, doubled: bool = false) -> tensor",
      .shape = shape, .cpu = cpu, .by_vtable = true, .grad = grad, .flops = flops, .hidden = true);
