/* An op that a program registers is an op like any other: a function of accel, a method, with options, checks, a gradient and help; in an
 * open host, and for every host that is opened later. */
#include "support/test.h"

#include "host_case.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  ac_tensor *x = f->args[0].tensor;
  return ac_frame_out(f, ac_tensor_dtype(x), ac_tensor_ndim(x), ac_tensor_shape(x), e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  if (ac_tensor_dtype(f->args[0].tensor) != AC_F32) return AC_FAIL(e, DTYPE, "expected f32");
  const float *x = ac_tensor_data(f->args[0].tensor);
  float *y = ac_tensor_data(f->out[0]);
  for (int64_t i = 0; i < ac_tensor_numel(f->out[0]); i++) y[i] = (float)(x[i] * f->args[1].f);
  return AC_OK;
}

static void grad(ac_grad *g) {
  ac_value a[2] = {{.kind = AC_T_TENSOR, .tensor = g->dout[0]}, {.kind = AC_T_FLOAT, .f = g->args[1].f}};
  ac_grad_set(g, 0, ac_expr_call(&g->x, g->op, a, NULL, 0));
}

static AC_OP(app_scale, .sig = "app_scale(x: tensor, k: float = 3) -> tensor", .shape = shape, .cpu = cpu, .grad = grad);
static AC_OP(app_common, .sig = "app_common(x: tensor, k: float = 2) -> tensor", .shape = shape, .cpu = cpu, .grad = grad);
static AC_OP(app_late, .sig = "app_late(x: tensor, k: float = 2) -> tensor", .shape = shape, .cpu = cpu);
static AC_OP(json, .sig = "json(x: tensor, k: float = 2) -> tensor", .shape = shape, .cpu = cpu);
static AC_OP(matmul, .sig = "matmul(x: tensor, k: float = 2) -> tensor", .shape = shape, .cpu = cpu);
static AC_OP(app_broken, .sig = "other(x: tensor) -> tensor", .shape = shape, .cpu = cpu);

static const char use[] =
    "local a = require 'accel' local function eq(t, w) for i, x in ipairs(w) do assert(t[i]:item() == x, tostring(t)) end end "
    "eq(a.%s(a.ones(2), 5), { 5, 5 }) eq(a.ones(2):%s(), { %d, %d }) eq(a.ones(2):%s { k = 4 }, { 4, 4 }) "
    "local x = a.ones(2):requires_grad_() a.%s(x, 4):sum():backward() eq(x.grad, { 4, 4 }) "
    "assert(a.op '%s') local ok, err = pcall(a.%s, 'x') assert(not ok and err:find(\"bad argument #1 'x' to '%s'\", 1, true), err)";

static void use_op(ac_host *h, const char *name, int k) {
  char code[2000];
  snprintf(code, sizeof code, use, name, name, k, k, name, name, name, name, name);
  host_run(h, code);
}

static void test_open_host(void **state) {
  (void)state;
  ac_host *h = host_open(NULL);
  ac_err e;
  host_run(h, "assert(rawget(require 'accel', 'app_scale') == nil)");
  assert_ok(ac_op_register(ac_host_ctx(h), &aci_op_app_scale, &e), e);
  use_op(h, "app_scale", 3);
  assert_fails(ac_op_register(ac_host_ctx(h), &aci_op_app_scale, &e), STATE, "already registered", e);
  assert_fails(ac_op_register(ac_host_ctx(h), &aci_op_matmul, &e), STATE, "already registered", e);
  assert_fails(ac_op_register(ac_host_ctx(h), &aci_op_json, &e), STATE, "accel.json is something else", e);
  assert_fails(ac_op_register(ac_host_ctx(h), &aci_op_app_broken, &e), INVALID, "its signature names another op", e);
  assert_fails(ac_op_register(ac_host_ctx(h), NULL, &e), INVALID, "the descriptor is NULL", e);
  host_run(h, "local lines = table.concat(require('accel').host_chunk('help').lines('app_scale'), '\\n') "
              "assert(lines:find('app_scale(x: tensor, k: float = 3) -> tensor', 1, true) and lines:find('registered by the program', 1, "
              "true), lines)");
  /* a program that was built with older headers, whose struct ends earlier; it may go away */
  ac_op_desc old = aci_op_app_late;
  old.struct_size = offsetof(ac_op_desc, weights) & ~(size_t)7;
  old.quantized = ~0u;
  assert_ok(ac_op_register(ac_host_ctx(h), &old, &e), e);
  memset(&old, 0, sizeof old);
  host_run(h, "local a = require 'accel' assert(a.app_late(a.ones(2)):sum():item() == 4)");
  ac_host_close(h);
  assert_int_equal(ac_tensor_live(), 0);
}

static void test_every_host(void **state) {
  (void)state;
  ac_err e;
  ac_host *before = host_open(NULL);
  assert_ok(ac_op_register(NULL, &aci_op_app_common, &e), e);
  assert_fails(ac_op_register(NULL, &aci_op_app_common, &e), STATE, "already registered", e);
  assert_fails(ac_op_register(NULL, &aci_op_matmul, &e), STATE, "already registered", e);
  host_run(before, "assert(rawget(require 'accel', 'app_common') == nil)");
  for (int i = 0; i < 2; i++) {
    ac_host *h = host_open(NULL);
    use_op(h, "app_common", 2);
    assert_fails(ac_op_register(ac_host_ctx(h), &aci_op_app_common, &e), STATE, "already registered", e);
    ac_host_close(h);
  }
  ac_host_close(before);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_open_host), cmocka_unit_test(test_every_host)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
