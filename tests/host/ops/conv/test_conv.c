/* host/ops/conv: shapes and messages of convolutions, pools and patches, second derivatives against
 * differences, windows against their definition. What the kernels compute at size is tested beside them
 * (device/cpu/kernels/test_conv.c). */
#include "host/ops/opcheck.h"

#define L(...) (const int64_t[]){__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8)

static ac_tensor *f_conv2d(ac_expr *x, ac_tensor *const *in, const void *user) {
  (void)user;
  return x_conv2d(x, in[0], in[1], in[2], L(2, 1), L(1), L(1, 2), 2);
}
static ac_tensor *f_conv1d(ac_expr *x, ac_tensor *const *in, const void *user) {
  (void)user;
  return x_conv1d(x, in[0], in[1], NULL, L(2), L(2), L(1), 1);
}
/* An output padding as large as the stride: the way back has to drop what the convolution finds more. */
static ac_tensor *f_transpose(ac_expr *x, ac_tensor *const *in, const void *user) {
  (void)user;
  return x_conv_transpose2d(x, in[0], in[1], in[2], L(2, 1), L(1, 0), L(1, 2), 1, L(1, 3));
}
static ac_tensor *f_max(ac_expr *x, ac_tensor *const *in, const void *user) {
  (void)user;
  ac_tensor *y = x_max_pool2d(x, in[0], L(3), L(2), L(1), L(1), true, false, NULL);
  return x_mul(x, T(y), T(y));
}
static ac_tensor *f_adaptive_max(ac_expr *x, ac_tensor *const *in, const void *user) {
  (void)user;
  ac_tensor *y = x_adaptive_max_pool1d(x, in[0], L(3), false, NULL);
  return x_mul(x, T(y), T(y));
}
static ac_tensor *f_avg(ac_expr *x, ac_tensor *const *in, const void *user) {
  (void)user;
  ac_tensor *y = x_avg_pool2d(x, in[0], L(3, 2), L(2), L(1), true, false, NULL);
  return x_mul(x, T(y), T(y));
}
static ac_tensor *f_adaptive_avg(ac_expr *x, ac_tensor *const *in, const void *user) {
  (void)user;
  ac_tensor *y = x_adaptive_avg_pool2d(x, in[0], L(2, 3));
  return x_mul(x, T(y), T(y));
}
static ac_tensor *f_patches(ac_expr *x, ac_tensor *const *in, const void *user) {
  (void)user;
  ac_tensor *y = x_unfold(x, in[0], L(2, 3), L(2, 1), L(1), L(1, 2));
  y = x_mul(x, T(y), T(y));
  return x_fold(x, y, L(4, 5), L(2, 3), L(2, 1), L(1), L(1, 2));
}

static void test_gradients(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
#define IN(...) oc_rand(&r, AC_F64, OC_SHAPE(__VA_ARGS__))
  oc_check(&r, f_conv2d, NULL, IN(2, 4, 4, 5), IN(2, 2, 3, 2), IN(2));
  oc_check(&r, f_conv1d, NULL, IN(2, 6), IN(3, 2, 3));
  oc_check(&r, f_transpose, NULL, IN(1, 2, 3, 2), IN(2, 2, 2, 2), IN(2));
  oc_check(&r, f_max, NULL, IN(1, 2, 4, 5));
  oc_check(&r, f_adaptive_max, NULL, IN(2, 7));
  oc_check(&r, f_avg, NULL, IN(1, 2, 4, 5));
  oc_check(&r, f_adaptive_avg, NULL, IN(2, 5, 4));
  oc_check(&r, f_patches, NULL, IN(1, 2, 4, 5));
  oc_close(&r);
}

/* ---- windows ---- */
static void check_max(oc_rig *r, bool ceil_mode, const double *x, const double *want, const double *places,
                      int n) {
  ac_tensor *t = NULL, *y = NULL, *at = NULL;
  const int64_t shape[] = {1, 1, 5};
  assert_ok(ac_tensor_from_host(ac_ctx_default_device(r->c), AC_F64, 3, shape, x, &t, &r->e), r->e);
  assert_ok(ac_max_pool1d(r->c, t, L(3), L(2), L(1), L(1), ceil_mode, true, &y, &at, &r->e), r->e);
  assert_int_equal(y->numel, n);
  for (int i = 0; i < n; i++) {
    assert_true(oc_at(y, i) == want[i] || (isnan(oc_at(y, i)) && isnan(want[i])));
    assert_true(oc_at(at, i) == places[i]);
  }
  ac_tensor *all[] = {t, y, at};
  for (int i = 0; i < 3; i++) ac_tensor_release(all[i]);
}

static void test_max_windows(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 1);
  const double low = -(double)INFINITY;
  /* the first of equals; NaN beyond all; padding never wins, not even over -infinity */
  check_max(&r, false, (double[]){2, 2, 1, 2, 2}, (double[]){2, 2, 2}, (double[]){0, 1, 3}, 3);
  check_max(&r, true, (double[]){1, NAN, 3, 0, -1}, (double[]){NAN, NAN, 0}, (double[]){1, 1, 3}, 3);
  check_max(&r, false, (double[]){low, low, low, low, low}, (double[]){low, low, low}, (double[]){0, 1, 3},
            3);
  oc_close(&r);
}

static void test_avg_windows(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 1);
  const double x[] = {1, 2, 3, 4, 5, 6};
  const int64_t shape[] = {1, 2, 3}, two = 2;
  ac_tensor *t = NULL, *y = NULL;
  assert_ok(ac_tensor_from_host(ac_ctx_default_device(r.c), AC_F64, 3, shape, x, &t, &r.e), r.e);
  /* ceil_mode: the last window counts the padding that lies within one padding of the input only */
  assert_ok(ac_avg_pool2d(r.c, t, L(2), L(2), L(1), true, true, NULL, &y, &r.e), r.e);
  assert_close(((double *)ac_tensor_data(y)), ((double[]){0.25, 1.25, 1, 2.75}), 4, 1e-15, 0);
  ac_tensor_release(y);
  assert_ok(ac_avg_pool2d(r.c, t, L(2), L(1), L(0), false, true, &two, &y, &r.e), r.e);
  assert_close(((double *)ac_tensor_data(y)), ((double[]){6, 8}), 2, 1e-15, 0);
  ac_tensor_release(y);
  ac_tensor_release(t);
  oc_close(&r);
}

/* ---- messages ---- */
static void test_messages(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 1);
  ac_tensor *x = oc_rand(&r, AC_F32, OC_SHAPE(2, 4, 5, 6)), *w = oc_rand(&r, AC_F32, OC_SHAPE(3, 4, 3, 3)),
            *y = NULL;
  ac_tensor *w64 = oc_rand(&r, AC_F64, OC_SHAPE(3, 4, 3, 3)), *b = oc_rand(&r, AC_F32, OC_SHAPE(2));
  ac_tensor *ints = oc_ints(&r, OC_SHAPE(1, 1, 3), (int64_t[]){1, 2, 3}),
            *flat = oc_rand(&r, AC_F32, OC_SHAPE(7));
#define CONV(x_, w_, b_, s_, p_, d_, g_) ac_conv2d(r.c, x_, w_, b_, L(s_), L(p_), L(d_), g_, &y, &r.e)
  assert_fails(CONV(x, w, NULL, 1, 0, 1, 2), SHAPE, "reads 8 channels, the input has 4", r.e);
  assert_fails(CONV(x, w, b, 1, 0, 1, 1), SHAPE, "a bias of shape (3), got (2)", r.e);
  assert_fails(CONV(x, w, NULL, 0, 0, 1, 1), INVALID, "stride must lie between 1 and", r.e);
  assert_fails(CONV(x, w, NULL, 1, -1, 1, 1), INVALID, "padding must lie between 0 and", r.e);
  assert_fails(CONV(x, w, NULL, 1, 0, 3, 1), SHAPE, "the kernel spans 7", r.e);
  assert_fails(CONV(x, w, NULL, 1, 0, 1, 0), INVALID, "groups must be at least 1", r.e);
  assert_fails(CONV(x, w64, NULL, 1, 0, 1, 1), DTYPE, "weight is f64", r.e);
  assert_fails(CONV(flat, w, NULL, 1, 0, 1, 1), SHAPE, "(N, C, H, W) or (C, H, W), got (7)", r.e);
  assert_fails(CONV(x, flat, NULL, 1, 0, 1, 1), SHAPE, "the weight must have 4 dims", r.e);
  const int64_t three[] = {1, 2, 3};
  assert_fails(ac_conv2d(r.c, x, w, NULL, three, 3, L(0), L(1), 1, &y, &r.e), INVALID,
               "stride takes one number or 2, got (1, 2, 3)", r.e);
  assert_fails(ac_conv_transpose2d(r.c, x, w, NULL, L(1), L(0), L(0), 1, L(1), &y, &r.e), SHAPE,
               "reads 3 channels", r.e);
  assert_fails(ac_max_pool1d(r.c, ints, L(2), NULL, 0, L(0), L(1), false, false, &y, NULL, &r.e), DTYPE,
               "not i64", r.e);
  assert_fails(ac_max_pool2d(r.c, x, L(2), NULL, 0, L(2), L(1), false, false, &y, NULL, &r.e), INVALID,
               "more than half of the window", r.e);
  assert_fails(ac_avg_pool2d(r.c, x, L(9), NULL, 0, L(0), false, true, NULL, &y, &r.e), SHAPE,
               "spans 9 does not fit", r.e);
  assert_fails(ac_fold(r.c, flat, L(4), L(2), L(1), L(0), L(1), &y, &r.e), SHAPE, "needs patches", r.e);
  ac_tensor *all[] = {x, w, w64, b, ints, flat};
  for (int i = 0; i < 6; i++) ac_tensor_release(all[i]);
  oc_close(&r);
}

/* Shapes that no machine could hold are worked out on the meta device, or refused. */
static void test_meta(void **state) {
  oc_rig r;
  ac_device *meta = NULL;
  ac_tensor *x = NULL, *w = NULL, *y = NULL;
  (void)state;
  oc_open(&r, 1);
  assert_ok(ac_ctx_device(r.c, "meta", &meta, &r.e), r.e);
  assert_ok(ac_tensor_new(meta, AC_BF16, OC_SHAPE(64, 512, 100000, 100000), &x, &r.e), r.e);
  assert_ok(ac_tensor_new(meta, AC_BF16, OC_SHAPE(1024, 512, 3, 3), &w, &r.e), r.e);
  assert_ok(ac_conv2d(r.c, x, w, NULL, L(2), L(1), L(1), 1, &y, &r.e), r.e);
  assert_int_equal(y->shape[1], 1024);
  assert_int_equal(y->shape[3], 50000);
  ac_tensor_release(y);
  assert_fails(ac_conv_transpose2d(r.c, x, x, NULL, L(1 << 30), L(0), L(0), 1, L(1), &y, &r.e), SHAPE, "",
               r.e);
  ac_tensor_release(x);
  ac_tensor_release(w);
  oc_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gradients),   cmocka_unit_test(test_max_windows),
      cmocka_unit_test(test_avg_windows), cmocka_unit_test(test_messages),
      cmocka_unit_test(test_meta),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
