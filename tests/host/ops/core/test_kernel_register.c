/* What a program may do by hand: adds a device to a context and registers kernels for ops that exist. The device here is the CPU's memory
 * under another kind. */
#include "support/test.h"

#include <string.h>

#include "accel/autograd.h"
#include "accel/opdef.h"
#include "accel/ops.h"

static int n_calls;
static ac_kernel cpu_neg;

static ac_status fake_neg(ac_frame *f, ac_err *e) {
  n_calls++;
  return cpu_neg(f, e);
}

static ac_status open_nothing(const ac_params *p, int index, ac_team *team, ac_device **out, ac_err *e) {
  (void)p, (void)index, (void)team, (void)out;
  return AC_FAIL(e, UNSUPPORTED, "the program opens it");
}
static const ac_device_provider fake = {.struct_size = sizeof fake, .name = "fake", .open = open_nothing};

static void a_device_with_one_kernel(void **state) {
  (void)state;
  ac_err e;
  ac_ctx *c;
  ac_device *d, *found;
  ac_device_vtable vt = *ac_device_cpu_vtable();
  ac_device_kind kind;
  vt.single = false;
  vt.name = "fake";
  assert_ok(ac_device_register(&fake, &kind, &e), e);
  assert_ok(ac_ctx_new(NULL, &c, &e), e);
  assert_ok(ac_device_open(&vt, 0, 0, ac_ctx_team(c), &d, &e), e);
  assert_ok(ac_ctx_add_device(c, d, &e), e);
  assert_int_equal(ac_ctx_add_device(c, d, &e), AC_STATE);
  assert_ok(ac_ctx_device(c, ac_device_name(d), &found, &e), e);
  assert_ptr_equal(found, d);

  extern const ac_op_desc aci_op_neg;
  cpu_neg = aci_op_neg.cpu;
  assert_ok(ac_kernel_register(c, "neg", kind, fake_neg, &e), e);
  assert_int_equal(ac_kernel_register(c, "no_such_op", kind, fake_neg, &e), AC_NOT_FOUND);

  int64_t n = 2;
  float data[2] = {1, -2};
  ac_tensor *x, *y = NULL, *z = NULL;
  assert_ok(ac_tensor_from_host(d, AC_F32, 1, &n, data, &x, &e), e);
  assert_ok(ac_neg(c, x, &y, &e), e);
  assert_int_equal(n_calls, 1);
  assert_true(((float *)ac_tensor_data(y))[1] == 2.0f);
  assert_ok(ac_neg_(c, y, &z, &e), e); /* the in-place form came with it */
  assert_int_equal(n_calls, 2);
  ac_tensor_release(z);
  z = NULL;
  assert_int_equal(ac_exp(c, x, &z, &e), AC_UNSUPPORTED);
  assert_non_null(strstr(e.msg, "cpu")); /* who can */
  ac_tensor_release(x);
  ac_tensor_release(y);
  ac_ctx_free(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_device_with_one_kernel)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
