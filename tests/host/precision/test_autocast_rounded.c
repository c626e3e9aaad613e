/* Autocast: weights that products round as they read them: same bits as with a cast, gradients in f32, who is cast all the same. */
#include "host/precision/autocast.h"

#include <math.h>

#include "ops/matmul/product.h"

enum { ROWS = 144, IN = 40, OUT = 56 };

/* Uniform in [-1, 1): not exact in bf16. */
static ac_tensor *uniform(ac_dtype dt, int64_t m, int64_t n) {
  static uint64_t rng = 7;
  ac_err e;
  ac_tensor *t, *y = NULL;
  float v[ROWS * OUT];
  for (int64_t i = 0; i < m * n; i++) v[i] = (float)(2 * ac_test_uniform(&rng) - 1);
  assert_ok(ac_tensor_from_host(cpu, AC_F32, 2, (int64_t[]){m, n}, v, &t, &e), e);
  if (dt == AC_F32) return t;
  assert_ok(ac_cast(ctx, t, dt, &y, &e), e);
  ac_tensor_release(t);
  return y;
}
/* A copy that leads nowhere. */
static ac_tensor *as(ac_tensor *t, ac_dtype dt) {
  ac_err e;
  ac_tensor *y = NULL;
  bool grad = ac_ctx_set_grad_enabled(ctx, false);
  assert_ok(ac_cast(ctx, t, dt, &y, &e), e);
  ac_ctx_set_grad_enabled(ctx, grad);
  return y;
}
enum { LINEAR, ADDMM, MLP, N_CALLS };
/* y of x (ROWS, IN), through one weight (OUT, IN) or its transpose (IN, OUT), or through that and one of (IN, OUT). */
static ac_tensor *through(int call, ac_tensor *x, ac_tensor *w, ac_tensor *second) {
  ac_err e;
  ac_tensor *y = NULL, *zero = NULL;
  if (call == LINEAR) return linear(x, w, NULL);
  if (call == MLP) {
    assert_ok(ac_mlp(ctx, x, w, second, NULL, NULL, AC_MLP_ACTIVATION_RELU, false, &y, &e), e);
    return y;
  }
  assert_ok(ac_tensor_from_host(cpu, AC_BF16, 1, (int64_t[]){1}, &(uint16_t){0}, &zero, &e), e);
  assert_ok(ac_addmm(ctx, zero, x, w, ac_operand_int(0).scalar, ac_operand_int(1).scalar, &y, &e), e);
  ac_tensor_release(zero);
  return y;
}
static ac_tensor *weight_for(int call) {
  return call == ADDMM ? uniform(AC_F32, IN, OUT) : uniform(AC_F32, OUT, IN);
}
static void same_bits(const ac_tensor *a, const ac_tensor *b) {
  assert_int_equal(ac_tensor_dtype(a), ac_tensor_dtype(b));
  assert_int_equal(ac_tensor_numel(a), ac_tensor_numel(b));
  for (int64_t i = 0; i < ac_tensor_numel(a); i++) assert_true(at(a, i) == at(b, i));
}

/* From many rows on: no cast of the weight; y and dx are those of a cast weight bit for bit; dw is the sum in f32, which that of a cast
 * weight is when it is rounded. */
static void many_rows_round_their_weights(void **state) {
  if (!aci_product_rounds(ctx, cpu)) skip();
  for (int call = 0; call < N_CALLS; call++) {
    ac_tensor *x = leaf(uniform(AC_BF16, ROWS, IN)), *w = leaf(weight_for(call)), *w2 = leaf(uniform(AC_F32, IN, OUT));
    ac_tensor *w16 = leaf(as(w, AC_BF16)), *v16 = leaf(as(w2, AC_BF16));
    ac_autocast_state outer = LOWER();
    n_casts = 0;
    ac_tensor *y = through(call, x, w, w2);
    assert_int_equal(n_casts, 0);
    leave(outer);
    backward(y);
    ac_tensor *gx = as(ac_tensor_grad(x), AC_F32);
    ac_tensor_set_grad(x, NULL, &(ac_err){0});
    ac_tensor *z = through(call, x, w16, v16);
    backward(z);
    ac_tensor *hx = as(ac_tensor_grad(x), AC_F32);
    same_bits(y, z);
    same_bits(gx, hx);
    ac_tensor *const leaves[][2] = {{w, w16}, {w2, v16}};
    for (int i = 0; i < (call == MLP ? 2 : 1); i++) {
      assert_int_equal(ac_tensor_dtype(ac_tensor_grad(leaves[i][0])), AC_F32);
      ac_tensor *rounded = as(ac_tensor_grad(leaves[i][0]), AC_BF16), *back = as(rounded, AC_F32);
      same_bits(rounded, ac_tensor_grad(leaves[i][1]));
      bool wider = false;
      for (int64_t j = 0; j < ac_tensor_numel(back); j++) wider |= at(back, j) != at(ac_tensor_grad(leaves[i][0]), j);
      assert_true(wider);
      ac_tensor_release(rounded);
      ac_tensor_release(back);
    }
    ac_tensor *all[] = {x, w, w2, w16, v16, y, z, gx, hx};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ac_tensor_release(all[i]);
  }
}

/* The second time in a region there is a copy, which the third takes; in the next region, or when the weight has changed, all begins anew. */
static void what_is_used_again_is_cast(void **state) {
  if (!aci_product_rounds(ctx, cpu)) skip();
  ac_err e;
  ac_tensor *x = uniform(AC_BF16, ROWS, IN), *w = leaf(uniform(AC_F32, OUT, IN)), *y, *out = NULL;
  const int64_t before = ac_tensor_live();
  for (int round = 0; round < 2; round++) {
    ac_autocast_state outer = LOWER();
    CASTS(0, linear(x, w, NULL));
    CASTS(1, linear(x, w, NULL));
    CASTS(0, linear(x, w, NULL));
    bool grad = ac_ctx_set_grad_enabled(ctx, false);
    CASTS(0, linear(x, w, NULL));
    assert_ok(ac_mul_(ctx, w, ac_operand_float(2), &out, &e), e);
    ac_tensor_release(out);
    ac_ctx_set_grad_enabled(ctx, grad);
    CASTS(0, linear(x, w, NULL));
    CASTS(1, linear(x, w, NULL));
    leave(outer);
    assert_int_equal(ac_tensor_live(), before);
  }
  ac_autocast_state outer = enter(true, AC_BF16, false);
  for (int i = 0; i < 3; i++) { CASTS(0, linear(x, w, NULL)); }
  leave(outer);
  ac_tensor_release(x);
  ac_tensor_release(w);
}

/* Few rows, no gradient to come, f16, other dtypes: a cast as ever; and outside of a region dtypes that differ are refused. */
static void other_weights_are_cast(void **state) {
  ac_err e;
  ac_tensor *x = uniform(AC_BF16, ROWS, IN), *few = uniform(AC_BF16, 63, IN), *w = leaf(uniform(AC_F32, OUT, IN)),
            *frozen = uniform(AC_F32, OUT, IN), *w16 = leaf(uniform(AC_F16, OUT, IN)), *y = NULL;
  assert_fails(ac_linear(ctx, x, w, NULL, &y, &e), DTYPE, "cast one of them", e);
  ac_autocast_state outer = LOWER();
  CASTS(1, linear(few, w, NULL));
  CASTS(1, linear(x, frozen, NULL));
  CASTS(1, linear(x, w16, NULL));
  leave(outer);
  outer = LOWER();
  bool grad = ac_ctx_set_grad_enabled(ctx, false);
  CASTS(1, linear(x, w, NULL));
  ac_ctx_set_grad_enabled(ctx, grad);
  leave(outer);
  outer = enter(true, AC_F16, true);
  CASTS(2, linear(x, w, NULL));
  leave(outer);
  ac_tensor *all[] = {x, few, w, frozen, w16};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) ac_tensor_release(all[i]);
}

/* d/dw of sum((dL/dx)^2), L = sum(y^2)/2 with y = x w^T: gradients of gradients pass through the products that round. Against the same in f32,
 * within bf16's precision of the largest. */
static void second_derivatives_of_rounded_weights(void **state) {
  ac_err e;
  ac_tensor *x = leaf(uniform(AC_BF16, ROWS, IN)), *w = leaf(uniform(AC_F32, OUT, IN)), *x32 = NULL, *second[2] = {0};
  const ac_backward_options again = {sizeof again, .create_graph = true, .retain_graph = true};
  x32 = leaf(as(x, AC_F32));
  for (int lowered = 0; lowered < 2; lowered++) {
    ac_tensor *in = lowered ? x : x32, *loss = NULL, *square = NULL, *dx[1] = {0}, *dw[1] = {0}, *norm = NULL, *total = NULL;
    ac_autocast_state outer = enter(lowered, AC_BF16, true);
    ac_tensor *y = linear(in, w, NULL);
    leave(outer);
    assert_ok(ac_mul(ctx, ac_operand_tensor(y), ac_operand_tensor(y), &square, &e), e);
    assert_ok(ac_sum(ctx, square, NULL, 0, false, NULL, &loss, &e), e);
    assert_ok(ac_gradients(ctx, 1, &loss, NULL, 1, &in, false, &again, dx, &e), e);
    assert_ok(ac_mul(ctx, ac_operand_tensor(dx[0]), ac_operand_tensor(dx[0]), &norm, &e), e);
    assert_ok(ac_sum(ctx, norm, NULL, 0, false, NULL, &total, &e), e);
    assert_ok(ac_gradients(ctx, 1, &total, NULL, 1, &w, false, NULL, dw, &e), e);
    assert_int_equal(ac_tensor_dtype(dw[0]), AC_F32);
    second[lowered] = dw[0];
    ac_tensor *all[] = {y, square, loss, dx[0], norm, total};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ac_tensor_release(all[i]);
  }
  double largest = 0;
  for (int64_t i = 0; i < OUT * IN; i++) largest = fmax(largest, fabs(at(second[0], i)));
  assert_true(largest > 1);
  for (int64_t i = 0; i < OUT * IN; i++) assert_true(fabs(at(second[0], i) - at(second[1], i)) <= 0.02 * largest);
  ac_tensor *all[] = {x, w, x32, second[0], second[1]};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) ac_tensor_release(all[i]);
}

/* Changed between forward and backward, which reads it again: refused, where a copy would have done. */
static void what_backward_reads_must_not_change(void **state) {
  if (!aci_product_rounds(ctx, cpu)) skip();
  ac_err e;
  ac_tensor *x = leaf(uniform(AC_BF16, ROWS, IN)), *w = leaf(uniform(AC_F32, OUT, IN)), *sum = NULL, *out = NULL;
  ac_autocast_state outer = LOWER();
  ac_tensor *y = linear(x, w, NULL);
  leave(outer);
  assert_ok(ac_sum(ctx, y, NULL, 0, false, NULL, &sum, &e), e);
  bool grad = ac_ctx_set_grad_enabled(ctx, false);
  assert_ok(ac_mul_(ctx, w, ac_operand_float(2), &out, &e), e);
  ac_ctx_set_grad_enabled(ctx, grad);
  assert_fails(ac_backward(ctx, 1, &sum, NULL, 0, NULL, NULL, &e), VERSION, "changed in place", e);
  ac_tensor *all[] = {x, w, y, sum, out};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) ac_tensor_release(all[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(many_rows_round_their_weights),
      TEST(what_is_used_again_is_cast),
      TEST(other_weights_are_cast),
      TEST(second_derivatives_of_rounded_weights),
      TEST(what_backward_reads_must_not_change),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
