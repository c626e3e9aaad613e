/* host/ops/loss: cross_entropy against plain loops over reductions, weights, smoothing, layouts and dtypes;
 * logits of any size; gradients against differences; memory; what bad targets say. */
#include "host/ops/opcheck.h"

enum { N = 6, C = 5, INNER = 2 };

typedef struct options {
  ac_tensor *target, *weight;
  int64_t ignore;
  int reduction;
  double smooth;
  bool prob;
} options;

/* The loss of row i, and what it counts in a mean. Logits (N, C, INNER). */
static double row(const ac_tensor *x, const options *o, int64_t i, double *count) {
  double m = -INFINITY, s = 0, l = 0;
  int64_t first = i / INNER * C * INNER + i % INNER;
  for (int64_t c = 0; c < C; c++) m = fmax(m, oc_at(x, first + c * INNER));
  for (int64_t c = 0; c < C; c++) s += exp(oc_at(x, first + c * INNER) - m);
  int64_t y = o->prob ? -1 : (int64_t)oc_at(o->target, i);
  *count = o->prob ? 1 : y == o->ignore ? 0 : o->weight != NULL ? oc_at(o->weight, y) : 1;
  if (!o->prob && y == o->ignore) return 0;
  for (int64_t c = 0; c < C; c++) {
    double q = o->prob ? oc_at(o->target, first + c * INNER) : c == y;
    q = (1 - o->smooth) * q + o->smooth / C;
    l -= (o->weight != NULL ? oc_at(o->weight, c) : 1) * q * (oc_at(x, first + c * INNER) - m - log(s));
  }
  return l;
}

static void check(oc_rig *r, ac_tensor *x, const options *o, double tol) {
  ac_tensor *y = NULL;
  double sum = 0, total = 0;
  assert_ok(ac_cross_entropy(r->c, x, o->target, o->weight, o->ignore, o->reduction, o->smooth, &y, &r->e),
            r->e);
  assert_int_equal(ac_tensor_dtype(y), ac_tensor_dtype(x));
  for (int64_t i = 0; i < N * INNER; i++) {
    double count, l = row(x, o, i, &count);
    if (o->reduction == AC_CROSS_ENTROPY_REDUCTION_NONE) {
      double got = oc_at(y, i);
      assert_close(&got, &l, 1, tol, tol);
    }
    sum += l;
    total += count;
  }
  if (o->reduction != AC_CROSS_ENTROPY_REDUCTION_NONE) {
    double got = oc_at(y, 0), want = o->reduction == AC_CROSS_ENTROPY_REDUCTION_MEAN ? sum / total : sum;
    assert_int_equal(y->ndim, 0);
    assert_close(&got, &want, 1, tol, tol);
  }
  ac_tensor_release(y);
}

static void test_values(void **state) {
  static const ac_dtype dts[] = {AC_F64, AC_F32, AC_BF16};
  static const double tol[] = {1e-13, 2e-6, 1e-2};
  static const int64_t classes[N * INNER] = {0, 4, 2, -100, 1, 1, 3, 0, -100, 4, 2, 2};
  const int64_t swap[] = {1, 2, 0};
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  ac_tensor *target = oc_ints(&r, OC_SHAPE(N, INNER), classes);
  ac_dtype narrow = AC_I32;
  ac_tensor *target32 = NULL;
  assert_ok(ac_to(r.c, target, &narrow, NULL, &target32, &r.e), r.e);
  for (int d = 0; d < 3; d++) {
    ac_tensor *raw = oc_rand(&r, dts[d], OC_SHAPE(INNER, N, C)), *big = NULL, *x = NULL, *q = NULL,
              *w = oc_rand(&r, dts[d], OC_SHAPE(C)), *weight = NULL;
    assert_ok(ac_mul(r.c, T(raw), F(4), &big, &r.e), r.e);
    assert_ok(ac_permute(r.c, big, swap, 3, &x, &r.e), r.e); /* (N, C, INNER), strided */
    assert_ok(ac_softmax(r.c, x, 1, NULL, &q, &r.e), r.e);
    assert_ok(ac_abs(r.c, w, &weight, &r.e), r.e);
    for (int k = 0; k < 24; k++) {
      options o = {.weight = k & 1 ? weight : NULL,
                   .smooth = k & 2 ? 0.2 : 0,
                   .prob = k & 4,
                   .reduction = k / 8,
                   .ignore = -100};
      o.target = o.prob ? q : k & 2 ? target32 : target;
      check(&r, x, &o, tol[d]);
      if (!o.prob) {
        o.target = target; /* a class can be the one that is left out; then -100 must not occur */
        ac_tensor *all_classes = NULL;
        const ac_operand zero = ac_operand_int(0);
        assert_ok(ac_clamp(r.c, target, &zero, NULL, &all_classes, &r.e), r.e);
        o.target = all_classes;
        o.ignore = 2;
        check(&r, x, &o, tol[d]);
        ac_tensor_release(all_classes);
      }
    }
    ac_tensor *all[] = {raw, big, x, q, w, weight};
    for (int k = 0; k < 6; k++) ac_tensor_release(all[k]);
  }
  ac_tensor_release(target);
  ac_tensor_release(target32);
  oc_close(&r);
}

/* e^x of these overflows by far; what is left out gets a gradient of exactly 0. */
static void test_extreme(void **state) {
  static const float logits[] = {30000, 0, -30000, -5, 90000, 89999, 1, 2, 3};
  oc_rig r;
  ac_tensor *x = NULL, *l = NULL, *g = NULL;
  (void)state;
  oc_open(&r, 1);
  assert_ok(ac_tensor_from_host(ac_ctx_default_device(r.c), AC_F32, OC_SHAPE(3, 3), logits, &x, &r.e), r.e);
  ac_tensor *t = oc_ints(&r, OC_SHAPE(3), (int64_t[]){2, 2, -100});
  assert_ok(ac_tensor_set_requires_grad(x, true, &r.e), r.e);
  assert_ok(ac_cross_entropy(r.c, x, t, NULL, -100, AC_CROSS_ENTROPY_REDUCTION_MEAN, 0, &l, &r.e), r.e);
  double want = (60000 + 1 + log1p(exp(-1))) / 2, got = oc_at(l, 0);
  assert_close(&got, &want, 1, 1e-7, 0);
  assert_ok(ac_gradients(r.c, 1, &l, NULL, 1, &x, false, NULL, &g, &r.e), r.e);
  double p = 1 / (1 + exp(-1)), slope[] = {0.5, 0, -0.5, 0, p / 2, (1 - p) / 2 - 0.5, 0, 0, 0},
         *v = oc_values(g);
  assert_close(v, slope, 9, 1e-6, 1e-9);
  free(v);
  ac_tensor_release(g);
  ac_tensor_release(l);

  ac_tensor *none = oc_ints(&r, OC_SHAPE(3), (int64_t[]){-100, -100, -100});
  assert_ok(ac_cross_entropy(r.c, x, none, NULL, -100, AC_CROSS_ENTROPY_REDUCTION_MEAN, 0, &l, &r.e), r.e);
  assert_true(isnan(oc_at(l, 0))); /* a mean over nothing */
  ac_tensor *all[] = {x, t, none, l};
  for (int k = 0; k < 4; k++) ac_tensor_release(all[k]);
  oc_close(&r);
}

/* The forward keeps logits and targets, nothing of their size besides, and the backward adds the gradient
 * alone. */
static void test_memory(void **state) {
  enum { ROWS = 2048, CLASSES = 1000 };
  oc_rig r;
  ac_mem_stats before, after;
  ac_tensor *l = NULL, *g = NULL;
  int64_t *classes = calloc(ROWS, sizeof *classes);
  (void)state;
  oc_open(&r, 2);
  ac_device *cpu = ac_ctx_default_device(r.c);
  ac_tensor *x = oc_rand(&r, AC_BF16, OC_SHAPE(ROWS, CLASSES)), *t = oc_ints(&r, OC_SHAPE(ROWS), classes);
  assert_ok(ac_tensor_set_requires_grad(x, true, &r.e), r.e);
  const size_t logits = (size_t)ROWS * CLASSES * 2;
  ac_mem_stats_get(cpu, &before);
  ac_mem_peak_reset(cpu);
  assert_ok(ac_cross_entropy(r.c, x, t, NULL, -100, AC_CROSS_ENTROPY_REDUCTION_MEAN, 0.1, &l, &r.e), r.e);
  ac_mem_stats_get(cpu, &after);
  assert_true(after.peak_bytes - before.live_bytes < logits / 20);
  assert_ok(ac_gradients(r.c, 1, &l, NULL, 1, &x, false, NULL, &g, &r.e), r.e);
  ac_mem_stats_get(cpu, &after);
  assert_true(after.peak_bytes - before.live_bytes < logits + logits / 20);
  free(classes);
  ac_tensor *all[] = {x, t, l, g};
  for (int k = 0; k < 4; k++) ac_tensor_release(all[k]);
  oc_close(&r);
}

/* ---- gradients ---- */
static ac_tensor *g_loss(ac_expr *x, ac_tensor *const *in, const void *user) {
  const options *o = user;
  ac_tensor *logits = x_square(x, in[0]), *t = o->prob ? x_softmax(x, in[1], 1, NULL) : o->target;
  return x_cross_entropy(x, logits, t, o->weight, o->ignore, o->reduction, o->smooth);
}

static void test_gradients(void **state) {
  static const int64_t classes[] = {0, 3, 2, 1, 2, 2};
  oc_rig r;
  (void)state;
  oc_open(&r, 1);
  ac_tensor *target = oc_ints(&r, OC_SHAPE(3, 2), classes), *w = oc_rand(&r, AC_F64, OC_SHAPE(4)),
            *weight = NULL;
  assert_ok(ac_abs(r.c, w, &weight, &r.e), r.e);
  for (int k = 0; k < 24; k++) {
    options o = {.target = target,
                 .weight = k & 1 ? weight : NULL,
                 .smooth = k & 2 ? 0.2 : 0,
                 .prob = k & 4,
                 .reduction = k / 8};
    o.ignore = o.prob ? -100 : 2;
    ac_tensor *a = oc_rand(&r, AC_F64, OC_SHAPE(3, 4, 2));
    if (o.prob) oc_check(&r, g_loss, &o, a, oc_rand(&r, AC_F64, OC_SHAPE(3, 4, 2)));
    else oc_check(&r, g_loss, &o, a);
  }
  ac_tensor *all[] = {target, w, weight};
  for (int k = 0; k < 3; k++) ac_tensor_release(all[k]);
  oc_close(&r);
}

static void test_errors(void **state) {
  oc_rig r;
  ac_tensor *y = NULL;
  const int mean = AC_CROSS_ENTROPY_REDUCTION_MEAN;
  (void)state;
  oc_open(&r, 1);
  ac_ctx_set_index_base(r.c, 1);
  ac_tensor *x = oc_rand(&r, AC_F32, OC_SHAPE(3, 4)), *w = oc_rand(&r, AC_F32, OC_SHAPE(3)),
            *t = oc_ints(&r, OC_SHAPE(3), (int64_t[]){0, 4, 1});
  ac_tensor *low = oc_ints(&r, OC_SHAPE(3), (int64_t[]){0, 1, -1}),
            *two = oc_ints(&r, OC_SHAPE(2), (int64_t[]){0, 1});
  ac_tensor *ok = oc_ints(&r, OC_SHAPE(3), (int64_t[]){0, 1, 3}), *b = oc_full(&r, AC_BOOL, 1, OC_SHAPE(3));
  assert_fails(ac_cross_entropy(r.c, x, t, NULL, -100, mean, 0, &y, &r.e), INDEX,
               "target 4 at position 2 is not one of the 4 classes", r.e);
  assert_fails(ac_cross_entropy(r.c, x, low, NULL, -100, mean, 0, &y, &r.e), INDEX, "target -1 at position 3",
               r.e);
  assert_fails(ac_cross_entropy(r.c, x, two, NULL, -100, mean, 0, &y, &r.e), SHAPE,
               "(2) does not fit input of shape (3, 4)", r.e);
  assert_fails(ac_cross_entropy(r.c, x, ok, w, -100, mean, 0, &y, &r.e), SHAPE,
               "weight of shape (3) does not fit 4 classes", r.e);
  assert_fails(ac_cross_entropy(r.c, x, ok, NULL, -100, mean, 1.5, &y, &r.e), INVALID, "label_smoothing 1.5",
               r.e);
  assert_fails(ac_cross_entropy(r.c, x, b, NULL, -100, mean, 0, &y, &r.e), DTYPE, "not bool", r.e);
  assert_fails(ac_cross_entropy(r.c, ok, ok, NULL, -100, mean, 0, &y, &r.e), DTYPE, "not i64", r.e);
  ac_tensor *all[] = {x, w, t, low, two, ok, b};
  for (int k = 0; k < 7; k++) ac_tensor_release(all[k]);
  oc_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_extreme),
                                     cmocka_unit_test(test_memory), cmocka_unit_test(test_gradients),
                                     cmocka_unit_test(test_errors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
