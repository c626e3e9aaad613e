/* Gradient slots: a leaf's gradient lands in memory that somebody else owns (buckets, flat units). */
#include "host/autograd/graph.h"
#include "tensor/tensor_impl.h"

static void sum_times(graph *g, ac_tensor *x, double k, ac_err *e) {
  ac_tensor *y = NULL, *s = NULL;
  assert_ok(ac_mul(g->c, ac_operand_tensor(x), ac_operand_float(k), &y, e), *e);
  assert_ok(ac_sum(g->c, y, NULL, 0, false, NULL, &s, e), *e);
  assert_ok(ac_backward(g->c, 1, &s, NULL, 0, NULL, NULL, e), *e);
  ac_tensor_release(y);
  ac_tensor_release(s);
}

static void accumulates_into_its_place(void **state) {
  graph *g = *state;
  ac_err e;
  ac_device *d = ac_ctx_default_device(g->c);
  int64_t n = 3, all = 8;
  float data[3] = {1, 2, 3};
  ac_tensor *x, *bucket, *place;
  assert_ok(ac_tensor_from_host(d, AC_F32, 1, &n, data, &x, &e), e);
  assert_ok(ac_tensor_set_requires_grad(x, true, &e), e);
  assert_ok(ac_tensor_new(d, AC_F32, 1, &all, &bucket, &e), e);
  float *b = ac_tensor_data(bucket);
  for (int i = 0; i < 8; i++) b[i] = -7;
  assert_ok(ac_tensor_view(ac_tensor_storage(bucket), AC_F32, 1, &n, NULL, 2, &place, &e), e);
  assert_ok(ac_tensor_set_grad_slot(x, place, &e), e);
  assert_null(ac_tensor_grad(x));

  sum_times(g, x, 2, &e); /* the first overwrites what lay there */
  assert_ptr_equal(ac_tensor_grad(x), place);
  sum_times(g, x, 3, &e);
  for (int i = 0; i < 8; i++) assert_true(b[i] == (i >= 2 && i < 5 ? 5.0f : -7.0f));

  assert_ok(ac_tensor_set_grad(x, NULL, &e), e); /* zero_grad: empty, and overwritten next */
  assert_null(ac_tensor_grad(x));
  sum_times(g, x, 4, &e);
  for (int i = 2; i < 5; i++) assert_true(b[i] == 4.0f);

  assert_ok(ac_tensor_set_grad_slot(x, NULL, &e), e);
  sum_times(g, x, 1, &e);
  assert_ptr_not_equal(ac_tensor_grad(x), place);
  assert_true(b[2] == 4.0f);
  assert_int_equal(ac_tensor_set_grad_slot(x, bucket, &e), AC_SHAPE);
  ac_tensor_release(place);
  ac_tensor_release(bucket);
  ac_tensor_release(x);
}

/* What two tensors hold of each other nobody would free. */
static void refuses_circles(void **state) {
  graph *g = *state;
  ac_err e;
  int64_t n = 2;
  ac_tensor *t[3];
  for (int i = 0; i < 3; i++) assert_ok(ac_tensor_new(ac_ctx_default_device(g->c), AC_F32, 1, &n, &t[i], &e), e);
  assert_int_equal(ac_tensor_set_grad(t[0], t[0], &e), AC_INVALID);
  assert_int_equal(ac_tensor_set_grad_slot(t[0], t[0], &e), AC_INVALID);
  assert_ok(ac_tensor_set_grad(t[0], t[1], &e), e);
  assert_ok(ac_tensor_set_grad_slot(t[1], t[2], &e), e);
  assert_int_equal(ac_tensor_set_grad(t[2], t[0], &e), AC_INVALID);
  assert_int_equal(ac_tensor_set_grad_slot(t[2], t[1], &e), AC_INVALID);
  assert_ok(ac_tensor_set_grad_slot(t[1], NULL, &e), e);
  assert_ok(ac_tensor_set_grad(t[2], t[0], &e), e);
  for (int i = 0; i < 3; i++) ac_tensor_release(t[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(accumulates_into_its_place, graph_open, graph_close),
                                     cmocka_unit_test_setup_teardown(refuses_circles, graph_open, graph_close)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
