/* Broadcasting loops over pairs: see pairs.h. */
#include "ops/complex/pairs.h"

#include "ops/core/ctx_impl.h"

enum { GRAIN = 16384 };

ac_status aci_pairs_shape(ac_frame *f, ac_err *e) {
  int nd = 0;
  int64_t s[AC_MAX_DIMS];
  for (int i = 0; i < 2; i++) {
    const ac_tensor *t = ARG_T(f, i);
    if (t->dtype != ARG_T(f, 0)->dtype || (t->dtype != AC_F32 && t->dtype != AC_F64))
      return AC_FAIL(e, DTYPE, "x and y must be f32 or both f64, y is %s",
                     ac_dtype_name((ac_dtype)t->dtype));
    if (t->ndim == 0 || t->shape[t->ndim - 1] != 2)
      return AC_FAIL(e, SHAPE, "the last dim must be pairs of real and imaginary part");
    AC_TRY(aci_broadcast(&nd, s, t, e));
  }
  return ac_frame_out(f, (ac_dtype)ARG_T(f, 0)->dtype, nd, s, e);
}

typedef struct job {
  aci_pairs_fn run;
  int ndim; /* without the pairs */
  bool conj;
  size_t bytes; /* of a float */
  const char *in[2];
  char *out;
  int64_t shape[AC_MAX_DIMS], stride[2][AC_MAX_DIMS];
} job;

/* Rows of the last dim. */
static void range(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  const int last = j->ndim - 1;
  while (begin < end) {
    int64_t r = begin, off[2] = {0, 0}, n = j->shape[last] - begin % j->shape[last];
    for (int d = last; d >= 0; d--) {
      for (int k = 0; k < 2; k++) off[k] += r % j->shape[d] * j->stride[k][d];
      r /= j->shape[d];
    }
    if (n > end - begin) n = end - begin;
    j->run(n, j->out + begin * 2 * (int64_t)j->bytes, j->in[0] + off[0] * (int64_t)j->bytes,
           j->stride[0][last], j->in[1] + off[1] * (int64_t)j->bytes, j->stride[1][last], j->conj);
    begin += n;
  }
}

/* Neighbouring dims that both walk as one are joined. */
static void coalesce(job *j) {
  int w = 0;
  for (int d = 1; d < j->ndim; d++) {
    bool join = true;
    for (int k = 0; k < 2; k++) join = join && j->stride[k][w] == j->stride[k][d] * j->shape[d];
    if (join) j->shape[w] *= j->shape[d];
    else j->shape[++w] = j->shape[d];
    for (int k = 0; k < 2; k++) j->stride[k][w] = j->stride[k][d];
  }
  j->ndim = w + 1;
}

/* The two floats of a number next to each other, or a copy in which they are. */
static ac_status plain(ac_frame *f, const ac_tensor *t, ac_expr *x, const ac_tensor **out) {
  *out = t;
  if (t->stride[t->ndim - 1] == 1) return AC_OK;
  *out = x_clone(x, (ac_tensor *)(uintptr_t)t);
  (void)f;
  return x->st;
}

ac_status aci_pairs_run(ac_frame *f, aci_pairs_fn f32, aci_pairs_fn f64, ac_err *e) {
  const ac_tensor *o = f->out[0], *in[2];
  ac_expr x;
  ac_expr_init(&x, f->ctx, e);
  const bool grad = ac_ctx_set_grad_enabled(f->ctx, false);
  ac_status st = plain(f, ARG_T(f, 0), &x, &in[0]);
  if (st == AC_OK) st = plain(f, ARG_T(f, 1), &x, &in[1]);
  ac_ctx_set_grad_enabled(f->ctx, grad);
  if (st == AC_OK && o->numel > 0) {
    job j = {.run = o->dtype == AC_F64 ? f64 : f32,
             .ndim = o->ndim - 1,
             .conj = ARG_B(f, 2),
             .bytes = aci_dsize((ac_dtype)o->dtype),
             .out = aci_data(o)};
    memcpy(j.shape, o->shape, (size_t)j.ndim * 8);
    for (int k = 0; k < 2; k++) {
      const ac_tensor *t = in[k];
      const int lead = o->ndim - t->ndim;
      j.in[k] = aci_data(t);
      for (int d = 0; d < j.ndim; d++)
        j.stride[k][d] =
            d < lead || (t->shape[d - lead] == 1 && o->shape[d] != 1) ? 0 : t->stride[d - lead];
    }
    if (j.ndim == 0) { /* one number */
      j.ndim = 1;
      j.shape[0] = 1;
      j.stride[0][0] = j.stride[1][0] = 2;
    }
    coalesce(&j);
    ac_parallel_for(f->team, o->numel / 2, GRAIN, range, &j);
  }
  ac_expr_end(&x);
  return st;
}
