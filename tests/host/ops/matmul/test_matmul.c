/* host/ops/matmul: products against triple loops for every rule of ranks, dtype and stride; gradients against
   differences. */
#include "host/ops/opcheck.h"

static ac_tensor *f_matmul(ac_expr *x, ac_tensor *const *in, const void *user) {
  (void)user;
  return x_matmul(x, in[0], in[1]);
}
static ac_tensor *f_linear(ac_expr *x, ac_tensor *const *in, const void *user) {
  (void)user;
  return x_linear(x, in[0], in[1], in[2]);
}
static ac_tensor *f_addmm(ac_expr *x, ac_tensor *const *in, const void *user) {
  (void)user;
  return x_addmm(x, in[0], in[1], in[2], aci_float(0.5), aci_float(-2));
}

static void test_gradients(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
#define IN(...) oc_rand(&r, AC_F64, OC_SHAPE(__VA_ARGS__))
  oc_check(&r, f_matmul, NULL, IN(2, 3), IN(3, 4));
  oc_check(&r, f_matmul, NULL, IN(3), IN(3));
  oc_check(&r, f_matmul, NULL, IN(2, 3), IN(3));
  oc_check(&r, f_matmul, NULL, IN(3), IN(3, 2));
  oc_check(&r, f_matmul, NULL, IN(2, 2, 3), IN(3, 2));
  oc_check(&r, f_matmul, NULL, IN(2, 2, 3), IN(3));
  oc_check(&r, f_matmul, NULL, IN(3), IN(2, 3, 2));
  oc_check(&r, f_matmul, NULL, IN(2, 1, 2, 3), IN(2, 3, 2));
  oc_check(&r, f_linear, NULL, IN(2, 2, 3), IN(4, 3), IN(4));
  oc_check(&r, f_addmm, NULL, IN(4), IN(2, 3), IN(3, 4));
  oc_check(&r, f_addmm, NULL, IN(2, 4), IN(2, 3), IN(3, 4));
  oc_check(&r, f_addmm, NULL, IN(1, 1), IN(2, 3), IN(3, 4));
  oc_close(&r);
}

/* (b, m, k) times (b or 1, k, n), both read through transposed views. */
static void product(oc_rig *r, ac_dtype dt, int64_t b, int64_t m, int64_t k, int64_t n, bool shared,
                    double tol) {
  ac_tensor *x = oc_rand(r, AC_F64, OC_SHAPE(k, b, m)),
            *w = oc_rand(r, AC_F64, OC_SHAPE(shared ? 1 : b, n, k));
  double *xv = ac_tensor_data(x), *wv = ac_tensor_data(w);
  bool integer = !ac_dtype_is_float(dt);
  for (int64_t i = 0; i < x->numel; i++) xv[i] = integer ? floor(xv[i] * 4) : xv[i];
  for (int64_t i = 0; i < w->numel; i++) wv[i] = integer ? floor(wv[i] * 4) : wv[i];
  ac_tensor *xd = NULL, *wd = NULL, *xt = NULL, *wt = NULL, *y = NULL;
  const int64_t order[] = {1, 2, 0};
  assert_ok(ac_to(r->c, x, &dt, NULL, &xd, &r->e), r->e);
  assert_ok(ac_to(r->c, w, &dt, NULL, &wd, &r->e), r->e);
  assert_ok(ac_permute(r->c, xd, order, 3, &xt, &r->e), r->e);
  assert_ok(ac_transpose(r->c, wd, 1, 2, &wt, &r->e), r->e);
  assert_ok(ac_matmul(r->c, xt, wt, &y, &r->e), r->e);
  assert_int_equal(y->ndim, 3);
  for (int64_t q = 0; q < b; q++)
    for (int64_t i = 0; i < m; i += 1 + m / 9)
      for (int64_t j = 0; j < n; j += 1 + n / 9) {
        double want = 0, size = 0;
        for (int64_t l = 0; l < k; l++) {
          double p = oc_at(xd, (l * b + q) * m + i) * oc_at(wd, ((shared ? 0 : q) * n + j) * k + l);
          want += p;
          size += fabs(p);
        }
        assert_true(fabs(oc_at(y, (q * m + i) * n + j) - want) <= tol * (size + 1e-30));
      }
  ac_tensor *all[] = {x, w, xd, wd, xt, wt, y};
  for (int i = 0; i < 7; i++) ac_tensor_release(all[i]);
}

static void test_values(void **state) {
  static const struct {
    ac_dtype dt;
    double tol;
  } kinds[] = {{AC_F64, 1e-14}, {AC_F32, 1e-6}, {AC_BF16, 4e-3}, {AC_F16, 1e-3},
               {AC_I64, 0},     {AC_I32, 0},    {AC_I16, 0}};
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    product(&r, kinds[i].dt, 2, 3, 4, 5, false, kinds[i].tol);
    product(&r, kinds[i].dt, 3, 33, 17, 40, true, kinds[i].tol);
    product(&r, kinds[i].dt, 70, 2, 9, 3, false, kinds[i].tol);
    product(&r, kinds[i].dt, 1, 90, 130, 70, true, kinds[i].tol);
  }
  oc_close(&r);
}

/* k = 0 gives zeros, or the bias; no rows give nothing. */
static void test_empty(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 1);
  ac_tensor *x = oc_rand(&r, AC_F32, OC_SHAPE(2, 0)), *w = oc_rand(&r, AC_F32, OC_SHAPE(3, 0)),
            *b = oc_rand(&r, AC_F32, OC_SHAPE(3));
  ac_tensor *y = NULL, *wt = NULL;
  assert_ok(ac_linear(r.c, x, w, b, &y, &r.e), r.e);
  for (int i = 0; i < 6; i++) assert_true(oc_at(y, i) == oc_at(b, i % 3));
  ac_tensor_release(y);
  assert_ok(ac_t(r.c, w, &wt, &r.e), r.e);
  assert_ok(ac_matmul(r.c, x, wt, &y, &r.e), r.e);
  for (int i = 0; i < 6; i++) assert_true(oc_at(y, i) == 0);
  ac_tensor *all[] = {x, w, b, y, wt};
  for (int i = 0; i < 5; i++) ac_tensor_release(all[i]);
  oc_close(&r);
}

/* addmm with beta 0 does not read its input: NaN does not come through. */
static void test_beta_zero(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 1);
  ac_tensor *in = oc_full(&r, AC_F32, NAN, OC_SHAPE(2, 3)), *a = oc_full(&r, AC_F32, 1, OC_SHAPE(2, 4)),
            *b = oc_full(&r, AC_F32, 2, OC_SHAPE(4, 3)), *y = NULL;
  assert_ok(ac_addmm(r.c, in, a, b, aci_float(0), aci_float(1), &y, &r.e), r.e);
  for (int i = 0; i < 6; i++) assert_true(oc_at(y, i) == 8);
  ac_tensor *all[] = {in, a, b, y};
  for (int i = 0; i < 4; i++) ac_tensor_release(all[i]);
  oc_close(&r);
}

static void test_errors(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 1);
  ac_tensor *a = oc_rand(&r, AC_F32, OC_SHAPE(2, 3)), *b = oc_rand(&r, AC_F32, OC_SHAPE(4, 5)),
            *d = oc_rand(&r, AC_F64, OC_SHAPE(3, 5)), *u = oc_full(&r, AC_BOOL, 1, OC_SHAPE(3, 3)),
            *v = oc_rand(&r, AC_F32, OC_SHAPE(3)), *y = NULL;
  assert_fails(ac_matmul(r.c, a, b, &y, &r.e), SHAPE, "(2, 3) and (4, 5) cannot be multiplied: 3 and 4", r.e);
  assert_fails(ac_matmul(r.c, a, d, &y, &r.e), DTYPE, "f32 (2, 3) on cpu but other is f64 (3, 5)", r.e);
  assert_fails(ac_matmul(r.c, u, u, &y, &r.e), DTYPE, "bool", r.e);
  assert_fails(ac_linear(r.c, a, b, NULL, &y, &r.e), SHAPE, "(4, 5)", r.e);
  assert_fails(ac_addmm(r.c, a, v, b, aci_float(1), aci_float(1), &y, &r.e), SHAPE, "(3)", r.e);
  assert_string_equal(r.e.op, "addmm");
  ac_tensor *all[] = {a, b, d, u, v};
  for (int i = 0; i < 5; i++) ac_tensor_release(all[i]);
  oc_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients), cmocka_unit_test(test_values),
                                     cmocka_unit_test(test_empty), cmocka_unit_test(test_beta_zero),
                                     cmocka_unit_test(test_errors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
