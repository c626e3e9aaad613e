/* Tables, functions and objects as values of the embedding API, in both directions and as references; what errors carry. */
#include "support/test.h"

#include "host_case.h"

#include <pthread.h>

static ac_host_value text_of(const char *s) { return (ac_host_value){.type = AC_HOST_STRING, .len = strlen(s), .s = s}; }
static ac_host_value int_of(int64_t i) { return (ac_host_value){.type = AC_HOST_INT, .i = i}; }

static void test_tables(void **state) {
  (void)state;
  ac_host *h = host_open(NULL);
  ac_err e;
  ac_host_value r[3], v, key;
  int n = 0;
  host_run(h,
           "function make() return { 10, 20, name = 'x', t = require('accel').ones(3) }, print, coroutine.create(print) end "
           "function same(a, b) return rawequal(a, b) end function sum(t) local s = 0 for _, x in ipairs(t) do s = s + x end return s end");
  assert_ok(ac_host_call(h, "make", 0, NULL, 3, r, &n, &e), e);
  assert_int_equal(n, 3);
  assert_true(r[0].type == AC_HOST_TABLE && r[1].type == AC_HOST_FUNCTION && r[2].type == AC_HOST_OBJECT);

  key = int_of(2);
  assert_ok(ac_host_table_get(h, &r[0], &key, &v, &e), e);
  assert_true(v.type == AC_HOST_INT && v.i == 20);
  key = text_of("name");
  assert_ok(ac_host_table_get(h, &r[0], &key, &v, &e), e);
  assert_true(v.type == AC_HOST_STRING && strcmp(v.s, "x") == 0);
  key = text_of("t");
  assert_ok(ac_host_table_get(h, &r[0], &key, &v, &e), e);
  assert_true(v.type == AC_HOST_TENSOR && ac_tensor_numel(v.t) == 3);
  ac_host_value_release(&v);
  key = text_of("nothing");
  assert_ok(ac_host_table_get(h, &r[0], &key, &v, &e), e);
  assert_int_equal(v.type, AC_HOST_NIL);

  const ac_host_value x = int_of(30);
  key = int_of(3);
  assert_ok(ac_host_table_set(h, &r[0], &key, &x, &e), e);
  int64_t length = 0;
  assert_ok(ac_host_table_length(h, &r[0], &length, &e), e);
  assert_int_equal(length, 3);
  assert_ok(ac_host_call(h, "sum", 1, &r[0], 1, &v, NULL, &e), e);
  assert_int_equal(v.i, 60);

  /* the same table comes back, and a new one goes in */
  ac_host_value two[2], mine;
  assert_ok(ac_host_table_new(h, &mine, &e), e);
  two[0] = two[1] = mine;
  assert_ok(ac_host_call(h, "same", 2, two, 1, &v, NULL, &e), e);
  assert_true(v.b);
  key = text_of("inner");
  assert_ok(ac_host_table_set(h, &mine, &key, &r[0], &e), e);
  key = text_of("from_c");
  assert_ok(ac_host_table_set(h, NULL, &key, &mine, &e), e);
  host_run(h, "assert(from_c.inner[3] == 30)");

  int pairs = 0;
  ac_host_value k = {.type = AC_HOST_NIL}, w = {.type = AC_HOST_NIL};
  do {
    assert_ok(ac_host_table_next(h, &r[0], &k, &w, &e), e);
    pairs += k.type != AC_HOST_NIL;
  } while (k.type != AC_HOST_NIL);
  assert_int_equal(pairs, 5);

  /* with metatables; errors of them */
  host_run(h, "meta = setmetatable({}, { __index = function(_, k) if k == 'bad' then error('no ' .. k) end return k .. '!' end })");
  key = text_of("meta");
  ac_host_value meta;
  assert_ok(ac_host_table_get(h, NULL, &key, &meta, &e), e);
  key = text_of("hey");
  assert_ok(ac_host_table_get(h, &meta, &key, &v, &e), e);
  assert_string_equal(v.s, "hey!");
  key = text_of("bad");
  assert_fails(ac_host_table_get(h, &meta, &key, &v, &e), CALLBACK, "no bad", e);
  assert_int_equal(v.type, AC_HOST_NIL);
  assert_fails(ac_host_table_get(h, &x, &key, &v, &e), INVALID, "expected a table", e);
  assert_fails(ac_host_table_next(h, &r[1], &k, &w, &e), CALLBACK, "table expected", e);
  key = (ac_host_value){.type = AC_HOST_TABLE};
  assert_fails(ac_host_table_get(h, &meta, &key, &v, &e), INVALID, "a reference that is NULL", e);
  ac_host_value_release(&meta);
  ac_host_value_release(&mine);
  for (int i = 0; i < 3; i++) ac_host_value_release(&r[i]);
  ac_host_close(h);
  assert_int_equal(ac_tensor_live(), 0);
}

/* ---- functions ---- */

static ac_host_value kept;

static ac_status keep(void *user, ac_ctx *c, int n, const ac_host_value *a, int max, ac_host_value *r, int *nr, ac_err *e) {
  (void)c, (void)max;
  if (n != 1 || a[0].type != AC_HOST_FUNCTION) return AC_FAIL(e, INVALID, "expected a function");
  kept = a[0];
  ac_host_value_retain(&kept);
  /* it can be called at once, and a table goes back */
  ac_host_value three = {.type = AC_HOST_INT, .i = 3}, x;
  AC_TRY(ac_host_call_value(user, &a[0], 1, &three, 1, &x, NULL, e));
  AC_TRY(ac_host_table_new(user, &r[0], e));
  AC_TRY(ac_host_table_set(user, &r[0], &three, &x, e));
  *nr = 1;
  return AC_OK;
}

static void *release_elsewhere(void *user) {
  ac_host_value_release(user);
  return NULL;
}

static void test_functions(void **state) {
  (void)state;
  ac_host *h = host_open(NULL), *other = host_open(NULL);
  ac_err e;
  assert_ok(ac_host_register(h, "keep", keep, h, &e), e);
  host_run(h, "gone = setmetatable({}, { __mode = 'v' }) do local up = {} gone[1] = up local t = keep(function(x) return x * 2, up end) "
              "assert(t[3] == 6) end "
              "collectgarbage() assert(gone[1])");
  ac_host_value v, x = int_of(21);
  assert_ok(ac_host_call_value(h, &kept, 1, &x, 1, &v, NULL, &e), e);
  assert_int_equal(v.i, 42);
  assert_fails(ac_host_call_value(other, &kept, 1, &x, 1, &v, NULL, &e), INVALID, "belongs to another host", e);
  assert_fails(ac_host_call_value(h, &x, 0, NULL, 0, NULL, NULL, &e), INVALID, "expected a function", e);
  assert_fails(ac_host_call_value(h, NULL, 0, NULL, 0, NULL, NULL, &e), INVALID, "the function is NULL", e);
  /* released on another thread: gone with the next call */
  pthread_t t;
  assert_int_equal(pthread_create(&t, NULL, release_elsewhere, &kept), 0);
  pthread_join(t, NULL);
  host_run(h, "collectgarbage() collectgarbage() assert(gone[1] == nil)");
  /* released after its host was closed */
  host_run(h, "function f() return f, {} end");
  ac_host_value r[2];
  assert_ok(ac_host_call(h, "f", 0, NULL, 2, r, NULL, &e), e);
  ac_host_close(h);
  assert_fails(ac_host_call_value(other, &r[0], 0, NULL, 0, NULL, NULL, &e), INVALID, "its host was closed", e);
  ac_host_value_release(&r[0]);
  ac_host_value_release(&r[1]);
  ac_host_value_release(NULL);
  ac_host_close(other);
}

/* op, device, rank and traceback of a failure */
static void test_errors(void **state) {
  (void)state;
  ac_host *h = host_open(NULL);
  ac_err e;
  memset(&e, 'x', sizeof e);
  assert_fails(ac_host_run_string(h, "local a = require 'accel'\na.ones(2, 3):matmul(a.ones(4, 5))", "t", 0, NULL, &e), SHAPE,
               "t:2: matmul", e);
  assert_string_equal(e.op, "matmul");
  assert_string_equal(e.device, "cpu");
  assert_int_equal(e.rank, 0);
  ac_test_contains(ac_host_error_text(h), "stack traceback", __FILE__, __LINE__);
  assert_fails(ac_host_run_string(h, "error 'plain'", "t", 0, NULL, &e), CALLBACK, "plain", e);
  assert_string_equal(e.op, "");
  assert_string_equal(e.device, "");
  host_run(h, "local a = require 'accel' local ok, err = pcall(function() a.ones(2, 3):matmul(a.ones(4, 5)) end) assert(err.device == "
              "'cpu' and err.op == 'matmul')");
  ac_host_close(h);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_tables), cmocka_unit_test(test_functions), cmocka_unit_test(test_errors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
