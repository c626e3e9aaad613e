/* host/ops/opcheck.h - what the tests of ops share: a context, tensors with known values, and gradients of
 * first and second order against central differences in f64. Included by the test_*.c below this folder. */
#ifndef ACCEL_TESTS_OPCHECK_H
#define ACCEL_TESTS_OPCHECK_H
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "accel/autograd.h"
#include "ops/core/op.h"

enum { OC_MAX_IN = 6 };

typedef struct oc_rig {
  ac_ctx *c;
  ac_err e;
  uint64_t random;
} oc_rig;

__attribute__((unused)) static void oc_open(oc_rig *r, int threads) {
  ac_ctx_options o = AC_CTX_OPTIONS_INIT;
  o.n_threads = threads;
  o.seed = 17;
  r->random = 99;
  assert_ok(ac_ctx_new(&o, &r->c, &r->e), r->e);
  ac_autograd_open(r->c);
}

/* Closes, and nothing may be left over. */
__attribute__((unused)) static void oc_close(oc_rig *r) {
  ac_ctx_free(r->c);
  assert_int_equal(ac_tensor_live(), 0);
}

#define OC_SHAPE(...) \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (const int64_t[]) { __VA_ARGS__ }

/* Uniform in [-1, 1). */
__attribute__((unused)) static ac_tensor *oc_rand(oc_rig *r, ac_dtype dt, int ndim, const int64_t *shape) {
  ac_tensor *t = NULL, *y = NULL;
  assert_ok(ac_tensor_new(ac_ctx_default_device(r->c), AC_F64, ndim, shape, &t, &r->e), r->e);
  double *v = ac_tensor_data(t);
  for (int64_t i = 0; i < t->numel; i++) v[i] = 2 * ac_test_uniform(&r->random) - 1;
  if (dt == AC_F64) return t;
  assert_ok(ac_to(r->c, t, &dt, NULL, &y, &r->e), r->e);
  ac_tensor_release(t);
  return y;
}

__attribute__((unused)) static ac_tensor *oc_ints(oc_rig *r, int ndim, const int64_t *shape,
                                                  const int64_t *v) {
  ac_tensor *t = NULL;
  assert_ok(ac_tensor_from_host(ac_ctx_default_device(r->c), AC_I64, ndim, shape, v, &t, &r->e), r->e);
  return t;
}

__attribute__((unused)) static ac_tensor *oc_full(oc_rig *r, ac_dtype dt, double v, int ndim,
                                                  const int64_t *shape) {
  ac_tensor *t = NULL;
  assert_ok(ac_tensor_new(ac_ctx_default_device(r->c), dt, ndim, shape, &t, &r->e), r->e);
  ac_tensor *same = NULL;
  assert_ok(ac_fill_(r->c, t, aci_float(v), &same, &r->e), r->e);
  ac_tensor_release(same);
  return t;
}

/* Element i in row-major order. */
__attribute__((unused)) static double oc_at(const ac_tensor *t, int64_t i) {
  ac_scalar s;
  ac_err e;
  assert_ok(ac_tensor_item(t, i, &s, &e), e);
  return aci_scalar_f(s);
}

__attribute__((unused)) static double *oc_values(const ac_tensor *t) {
  double *v = malloc((size_t)(t->numel + 1) * sizeof *v);
  for (int64_t i = 0; i < t->numel; i++) v[i] = oc_at(t, i);
  return v;
}

/* a and b have one shape and agree element by element. */
#define oc_same(a, b, rtol, atol) oc_same_at((a), (b), (rtol), (atol), __FILE__, __LINE__)
__attribute__((unused)) static void oc_same_at(const ac_tensor *a, const ac_tensor *b, double rtol,
                                               double atol, const char *file, int line) {
  if (!aci_same_shape(a, b)) {
    char p[128], q[128];
    print_error("shapes %s and %s\n", aci_shape_str(a->ndim, a->shape, p, sizeof p),
                aci_shape_str(b->ndim, b->shape, q, sizeof q));
    _fail(file, line);
  }
  double *x = oc_values(a), *y = oc_values(b);
  ac_test_close(x, y, a->numel, rtol, atol, file, line);
  free(x);
  free(y);
}

/* The function under test, built from x_<op> calls; in: its differentiable inputs, user: whatever else it
 * needs. */
typedef ac_tensor *(*oc_fn)(ac_expr *x, ac_tensor *const *in, const void *user);

typedef struct oc_case {
  oc_rig *r;
  oc_fn fn;
  const void *user;
  int n;
  ac_tensor *in[OC_MAX_IN];
  ac_tensor *v[OC_MAX_IN]; /* directions of the second derivative */
  ac_tensor *w;            /* cotangent */
} oc_case;

/* sum(w * fn(in)), and with out its value as a tensor that has a history. */
static double oc_loss(oc_case *k, ac_expr *x, ac_tensor **out) {
  ac_tensor *y = k->fn(x, k->in, k->user);
  assert_ok(x->st, k->r->e);
  if (k->w == NULL) k->w = oc_rand(k->r, AC_F64, y->ndim, y->shape);
  ac_tensor *s = x_sum(x, x_mul(x, T(y), T(k->w)), NULL, 0, false, NULL);
  assert_ok(x->st, k->r->e);
  if (out != NULL) *out = s;
  return oc_at(s, 0);
}

/* sum over inputs of sum(v_i * dloss/din_i); with d the gradients of that (second) or with g only the first
 * ones. */
static double oc_slope(oc_case *k, ac_tensor **g, ac_tensor **d) {
  ac_expr x;
  ac_tensor *s, *first[OC_MAX_IN] = {0}, *sum = NULL;
  ac_backward_options o = {sizeof o, true, d != NULL};
  double value = 0;
  ac_expr_init(&x, k->r->c, &k->r->e);
  oc_loss(k, &x, &s);
  assert_ok(ac_gradients(k->r->c, 1, &s, NULL, k->n, k->in, false, &o, first, &k->r->e), k->r->e);
  for (int i = 0; i < k->n; i++) {
    ac_tensor *part = x_sum(&x, x_mul(&x, T(first[i]), T(k->v[i])), NULL, 0, false, NULL);
    assert_ok(x.st, k->r->e);
    value += oc_at(part, 0);
    sum = sum == NULL ? part : x_add(&x, T(sum), T(part), (ac_scalar){.kind = AC_SCALAR_INT, .i = 1});
  }
  if (d != NULL && ac_tensor_grad_fn(sum) != NULL) {
    ac_backward_options last = {sizeof last, false, false};
    assert_ok(ac_gradients(k->r->c, 1, &sum, NULL, k->n, k->in, true, &last, d, &k->r->e), k->r->e);
  }
  for (int i = 0; i < k->n; i++) {
    if (g != NULL) g[i] = first[i];
    else ac_tensor_release(first[i]);
  }
  ac_expr_end(&x);
  return value;
}

static double oc_value(oc_case *k) {
  ac_expr x;
  ac_expr_init(&x, k->r->c, &k->r->e);
  double v = oc_loss(k, &x, NULL);
  ac_expr_end(&x);
  return v;
}

/* Gradients of first and second order of fn at the inputs (f64, taken over), against central differences. */
#define oc_check(r, fn, user, ...)                                                                  \
  oc_check_at((r), (fn), (user), (int)(sizeof((ac_tensor *[]){__VA_ARGS__}) / sizeof(ac_tensor *)), \
              (ac_tensor *[]){__VA_ARGS__}, #fn)
__attribute__((unused)) static void oc_check_at(oc_rig *r, oc_fn fn, const void *user, int n, ac_tensor **in,
                                                const char *name) {
  oc_case k = {.r = r, .fn = fn, .user = user, .n = n};
  ac_tensor *g[OC_MAX_IN] = {0}, *d[OC_MAX_IN] = {0};
  const double h = 1e-5;
  for (int i = 0; i < n; i++) {
    k.in[i] = in[i];
    k.v[i] = oc_rand(r, AC_F64, in[i]->ndim, in[i]->shape);
    assert_ok(ac_tensor_set_requires_grad(in[i], true, &r->e), r->e);
  }
  oc_slope(&k, g, NULL);
  oc_slope(&k, NULL, d);
  for (int i = 0; i < n; i++) {
    double *x = ac_tensor_data(in[i]);
    for (int64_t j = 0; j < in[i]->numel; j++) { /* inputs are contiguous */
      double old = x[j], up, down, slope_up, slope_down;
      x[j] = old + h;
      up = oc_value(&k);
      slope_up = oc_slope(&k, NULL, NULL);
      x[j] = old - h;
      down = oc_value(&k);
      slope_down = oc_slope(&k, NULL, NULL);
      x[j] = old;
      double first = (up - down) / (2 * h), second = (slope_up - slope_down) / (2 * h);
      double got = oc_at(g[i], j), got2 = d[i] != NULL ? oc_at(d[i], j) : 0;
      if (fabs(got - first) > 1e-7 * (1 + fabs(first)))
        fail_msg("%s: gradient %d[%d] is %.12g, differences say %.12g", name, i, (int)j, got, first);
      if (fabs(got2 - second) > 1e-6 * (1 + fabs(second)))
        fail_msg("%s: second derivative %d[%d] is %.12g, differences say %.12g", name, i, (int)j, got2,
                 second);
    }
  }
  for (int i = 0; i < n; i++) {
    ac_tensor_release(g[i]);
    ac_tensor_release(d[i]);
    ac_tensor_release(k.v[i]);
    ac_tensor_release(in[i]);
  }
  ac_tensor_release(k.w);
}

#endif
