/* An op from a separate shared library: registered, called, differentiated, refused a second time, and unknown to a
 * context that did not register it. */
#include "support/test.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "accel/autograd.h"
#include "accel/op.h"

typedef ac_status (*register_fn)(ac_ctx *c, ac_err *e);

static register_fn load(void **library) {
  const char *folder = getenv("ACCEL_TEST_PLUGINS");
  char path[4096];
  register_fn fn;
  assert_non_null(folder);
  snprintf(path, sizeof path, "%s/plugin_softcap.so", folder);
  *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (*library == NULL) print_error("%s\n", dlerror());
  assert_non_null(*library);
  *(void **)&fn = dlsym(*library, "softcap_register");
  assert_non_null(fn);
  return fn;
}

static ac_tensor *call(ac_ctx *c, ac_tensor *x, double cap) {
  ac_err e;
  ac_value args[2] = {{.kind = AC_T_TENSOR, .tensor = x}, {.kind = AC_T_FLOAT, .f = cap}}, result;
  int n = 1;
  assert_ok(ac_call(c, ac_op_find(c, "softcap"), args, &result, &n, &e), e);
  assert_int_equal(n, 1);
  return result.tensor;
}

static double at(const ac_tensor *t, int64_t i) {
  ac_scalar s;
  ac_err e;
  assert_ok(ac_tensor_item(t, i, &s, &e), e);
  return s.f;
}

static void registers_and_runs(void **state) {
  const double xs[6] = {-3, -0.5, 0, 0.25, 2, 40};
  const double cap = 1.5;
  const int64_t shape[2] = {2, 3};
  ac_ctx *c, *other;
  ac_tensor *x, *y, *dy;
  ac_err e;
  void *library;
  register_fn fn = load(&library);
  assert_ok(ac_ctx_new(NULL, &c, &e), e);
  assert_ok(ac_ctx_new(NULL, &other, &e), e);
  ac_autograd_open(c);

  assert_null(ac_op_find(c, "softcap"));
  assert_ok(fn(c, &e), e);
  assert_non_null(ac_op_find(c, "softcap"));
  assert_null(ac_op_find(other, "softcap"));
  assert_fails(fn(c, &e), STATE, "softcap", e);

  assert_ok(ac_tensor_from_host(ac_ctx_default_device(c), AC_F64, 2, shape, xs, &x, &e), e);
  assert_ok(ac_tensor_set_requires_grad(x, true, &e), e);
  y = call(c, x, cap);
  assert_ok(ac_tensor_from_host(ac_ctx_default_device(c), AC_F64, 2, shape, xs, &dy, &e), e);
  assert_ok(ac_backward(c, 1, &y, &dy, 0, NULL, NULL, &e), e);
  for (int64_t i = 0; i < 6; i++) {
    double t = tanh(xs[i] / cap), value = at(y, i), slope = at(ac_tensor_grad(x), i);
    double want = cap * t, want_slope = xs[i] * (1 - t * t);
    assert_close(&value, &want, 1, 1e-14, 0);
    assert_close(&slope, &want_slope, 1, 1e-12, 1e-13);
  }
  ac_tensor_release(dy);
  ac_tensor_release(y);
  ac_tensor_release(x);
  ac_ctx_free(c);
  ac_ctx_free(other);
  assert_int_equal(ac_tensor_live(), 0);
  assert_int_equal(dlclose(library), 0);
}

static void arguments_are_checked(void **state) {
  const int64_t shape[1] = {2}, whole[2] = {1, 2};
  ac_ctx *c;
  ac_tensor *x;
  ac_err e;
  void *library;
  register_fn fn = load(&library);
  assert_ok(ac_ctx_new(NULL, &c, &e), e);
  assert_ok(fn(c, &e), e);
  assert_ok(ac_tensor_from_host(ac_ctx_default_device(c), AC_I64, 1, shape, whole, &x, &e), e);
  ac_value args[2] = {{.kind = AC_T_TENSOR, .tensor = x}, {.kind = AC_T_FLOAT, .f = 1}}, result;
  int n = 1;
  assert_fails(ac_call(c, ac_op_find(c, "softcap"), args, &result, &n, &e), DTYPE, "i64", e);
  ac_tensor_release(x);
  ac_ctx_free(c);
  assert_int_equal(ac_tensor_live(), 0);
  assert_int_equal(dlclose(library), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(registers_and_runs),
      cmocka_unit_test(arguments_are_checked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
