/* host/ops/norm: layer_norm and rms_norm against plain loops over dtypes and strides; the same gradients for
 * any number of threads;
 * gradients against differences; what bad arguments say. */
#include "host/ops/opcheck.h"

static void check(oc_rig *r, ac_tensor *x, int n_dims, ac_tensor *w, ac_tensor *b, double tol) {
  const int64_t *shape = x->shape + x->ndim - n_dims;
  const double eps = 1e-3;
  int64_t n = 1;
  ac_tensor *y = NULL, *z = NULL;
  for (int d = 0; d < n_dims; d++) n *= shape[d];
  assert_ok(ac_layer_norm(r->c, x, shape, n_dims, w, b, eps, &y, &r->e), r->e);
  assert_ok(ac_rms_norm(r->c, x, shape, n_dims, w, &eps, &z, &r->e), r->e);
  assert_int_equal(ac_tensor_dtype(y), ac_tensor_dtype(x));
  for (int64_t row = 0; row < x->numel; row += n) {
    double mean = 0, var = 0, square = 0;
    for (int64_t i = 0; i < n; i++) mean += oc_at(x, row + i) / (double)n;
    for (int64_t i = 0; i < n; i++) {
      double v = oc_at(x, row + i);
      var += (v - mean) * (v - mean) / (double)n;
      square += v * v / (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
      double v = oc_at(x, row + i), g = w != NULL ? oc_at(w, i) : 1, c = b != NULL ? oc_at(b, i) : 0;
      double want[] = {(v - mean) / sqrt(var + eps) * g + c, v / sqrt(square + eps) * g},
             got[] = {oc_at(y, row + i), oc_at(z, row + i)};
      assert_close(got, want, 2, tol, tol);
    }
  }
  ac_tensor_release(y);
  ac_tensor_release(z);
}

static void test_values(void **state) {
  static const ac_dtype dts[] = {AC_F64, AC_F32, AC_BF16, AC_F16};
  static const double tol[] = {1e-13, 2e-6, 1e-2, 2e-3};
  const int64_t swap[] = {0, 2, 1};
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  for (int d = 0; d < 4; d++) {
    ac_tensor *x = oc_rand(&r, dts[d], OC_SHAPE(6, 5, 67)), *t = NULL;
    ac_tensor *w = oc_rand(&r, dts[d], OC_SHAPE(67)), *b = oc_rand(&r, dts[d], OC_SHAPE(67));
    ac_tensor *w2 =
        oc_rand(&r, d == 0 ? AC_F64 : AC_F32, OC_SHAPE(67, 5)); /* f32 weights with 16-bit inputs */
    assert_ok(ac_permute(r.c, x, swap, 3, &t, &r.e), r.e);
    check(&r, x, 1, w, b, tol[d]);
    check(&r, x, 2, NULL, NULL, tol[d]);
    check(&r, x, 1, NULL, b, tol[d]);
    check(&r, t, 2, w2, NULL, tol[d]);
    ac_tensor *big = oc_rand(&r, dts[d], OC_SHAPE(2, 3001));
    check(&r, big, 1, NULL, NULL, tol[d]);
    ac_tensor *all[] = {x, t, w, b, w2, big};
    for (int k = 0; k < 6; k++) ac_tensor_release(all[k]);
  }
  /* a small deviation on a large mean, which f32 cannot hold exactly */
  ac_tensor *x = oc_rand(&r, AC_F32, OC_SHAPE(4, 128)), *shifted = NULL;
  assert_ok(ac_add(r.c, T(x), F(1000), aci_float(1), &shifted, &r.e), r.e);
  check(&r, shifted, 1, NULL, NULL, 2e-6);
  ac_tensor_release(x);
  ac_tensor_release(shifted);
  oc_close(&r);
}

/* dx, dweight and dbias of many rows do not depend on how many threads share them out. */
static void test_threads(void **state) {
  double *first[3] = {NULL, NULL, NULL};
  (void)state;
  for (int threads = 1; threads <= 4; threads++) {
    oc_rig r;
    ac_expr x;
    ac_tensor *g[3];
    oc_open(&r, threads);
    ac_tensor *in[] = {oc_rand(&r, AC_F32, OC_SHAPE(1000, 70)), oc_rand(&r, AC_F32, OC_SHAPE(70)),
                       oc_rand(&r, AC_F32, OC_SHAPE(70))};
    for (int k = 0; k < 3; k++) assert_ok(ac_tensor_set_requires_grad(in[k], true, &r.e), r.e);
    ac_expr_init(&x, r.c, &r.e);
    ac_tensor *y = x_layer_norm(&x, in[0], (const int64_t[]){70}, 1, in[1], in[2], 1e-5);
    ac_tensor *s = x_sum(&x, x_square(&x, y), NULL, 0, false, NULL);
    assert_ok(x.st, r.e);
    assert_ok(ac_gradients(r.c, 1, &s, NULL, 3, in, false, NULL, g, &r.e), r.e);
    for (int k = 0; k < 3; k++) {
      double *v = oc_values(g[k]);
      if (first[k] != NULL) assert_memory_equal(v, first[k], (size_t)g[k]->numel * 8);
      free(first[k]);
      first[k] = v;
      ac_tensor_release(g[k]);
      ac_tensor_release(in[k]);
    }
    ac_expr_end(&x);
    oc_close(&r);
  }
  for (int k = 0; k < 3; k++) free(first[k]);
}

static const int64_t two[] = {3, 4}, one[] = {4};
#define FN(name, expr)                                                         \
  static ac_tensor *name(ac_expr *x, ac_tensor *const *in, const void *user) { \
    (void)user;                                                                \
    return expr;                                                               \
  }
FN(g_layer, x_layer_norm(x, in[0], one, 1, in[1], in[2], 1e-2))
FN(g_layer_plain, x_square(x, x_layer_norm(x, in[0], two, 2, NULL, NULL, 1e-2)))
FN(g_layer_bias, x_square(x, x_layer_norm(x, in[0], one, 1, NULL, in[1], 1e-2)))
FN(g_rms, x_square(x, x_rms_norm(x, in[0], one, 1, in[1], &(const double){1e-2})))
FN(g_rms_plain, x_square(x, x_rms_norm(x, x_transpose(x, in[0], 0, 1), two, 2, NULL, &(const double){1e-2})))

static void test_gradients(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 1);
#define IN(...) oc_rand(&r, AC_F64, OC_SHAPE(__VA_ARGS__))
  oc_check(&r, g_layer, NULL, IN(2, 3, 4), IN(4), IN(4));
  oc_check(&r, g_layer_plain, NULL, IN(2, 3, 4));
  oc_check(&r, g_layer_bias, NULL, IN(2, 3, 4), IN(4));
  oc_check(&r, g_rms, NULL, IN(2, 3, 4), IN(4));
  oc_check(&r, g_rms_plain, NULL, IN(3, 2, 4));
  oc_close(&r);
}

static void test_errors(void **state) {
  oc_rig r;
  ac_tensor *y = NULL;
  const int64_t five[] = {5};
  (void)state;
  oc_open(&r, 1);
  ac_tensor *x = oc_rand(&r, AC_F32, OC_SHAPE(2, 4)), *w = oc_rand(&r, AC_F32, OC_SHAPE(5)),
            *d = oc_rand(&r, AC_F64, OC_SHAPE(4));
  ac_tensor *i = oc_ints(&r, OC_SHAPE(4), (int64_t[]){1, 2, 3, 4}),
            *none = oc_full(&r, AC_F32, 0, OC_SHAPE(0, 4));
  assert_fails(ac_layer_norm(r.c, x, five, 1, NULL, NULL, 1e-5, &y, &r.e), SHAPE,
               "(2, 4) does not end in normalized_shape (5)", r.e);
  assert_fails(ac_layer_norm(r.c, x, one, 1, w, NULL, 1e-5, &y, &r.e), SHAPE, "weight has shape (5)", r.e);
  assert_fails(ac_layer_norm(r.c, x, one, 1, NULL, d, 1e-5, &y, &r.e), DTYPE, "bias is f64, but x is f32",
               r.e);
  assert_fails(ac_layer_norm(r.c, x, one, 0, NULL, NULL, 1e-5, &y, &r.e), SHAPE, "normalized_shape ()", r.e);
  assert_fails(ac_rms_norm(r.c, i, one, 1, NULL, NULL, &y, &r.e), DTYPE, "not i64", r.e);
  assert_ok(ac_rms_norm(r.c, none, one, 1, NULL, NULL, &y, &r.e), r.e);
  assert_int_equal(y->numel, 0);
  ac_tensor *all[] = {x, w, d, i, none, y};
  for (int k = 0; k < 6; k++) ac_tensor_release(all[k]);
  oc_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_threads),
                                     cmocka_unit_test(test_gradients), cmocka_unit_test(test_errors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
