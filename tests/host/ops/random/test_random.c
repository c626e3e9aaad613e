/* host/ops/random: values are functions of place, call and seed - not of threads, strides or dtype of the
 * mask; their moments; dropout's backward draws the forward's mask again. */
#include "host/ops/opcheck.h"

#include "base/philox.h"

__extension__ typedef unsigned __int128 wide;

static ac_tensor *zeros(oc_rig *r, ac_dtype dt, int64_t a, int64_t b) {
  return oc_full(r, dt, 0, OC_SHAPE(a, b));
}

/* Element i takes the word that the head of ops/random/draw.h names. */
static void test_words(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 1);
  ac_generator g = {.seed = 99, .stream = 3, .step = 5, .ordinal = 11, .fixed = 1};
  uint64_t key = 99 ^ 3 * 0x9E3779B97F4A7C15u, call = (uint64_t)5 << 32 | 11;
  ac_tensor *x = zeros(&r, AC_F32, 1, 11), *d = zeros(&r, AC_F64, 1, 5), *n = zeros(&r, AC_I64, 1, 5),
            *same = NULL;
  assert_ok(ac_uniform_(r.c, x, 0, 1, &g, &same, &r.e), r.e);
  ac_tensor_release(same);
  assert_ok(ac_uniform_(r.c, d, 0, 1, &g, &same, &r.e), r.e);
  ac_tensor_release(same);
  assert_ok(ac_randint_(r.c, n, -3, 7, &g, &same, &r.e), r.e);
  ac_tensor_release(same);
  for (uint64_t i = 0; i < 11; i++)
    assert_true(oc_at(x, (int64_t)i) == (double)(aci_philox(key, i / 4, call).v[i % 4] >> 8) * 0x1p-24);
  for (uint64_t i = 0; i < 5; i++) {
    aci_u32x4 w = aci_philox(key, i / 2, call);
    uint64_t u = (uint64_t)w.v[i % 2 * 2 + 1] << 32 | w.v[i % 2 * 2];
    assert_true(oc_at(d, (int64_t)i) == (double)(u >> 11) * 0x1p-53);
    assert_true(oc_at(n, (int64_t)i) == (double)((int64_t)((wide)u * 10 >> 64) - 3));
  }
  ac_tensor_release(x);
  ac_tensor_release(d);
  ac_tensor_release(n);
  oc_close(&r);
}

static ac_status draw(oc_rig *r, int kind, ac_tensor *x, ac_generator *g) {
  const ac_operand p = ac_operand_float(0.3);
  ac_tensor *same = NULL;
  ac_status st = kind == 0   ? ac_uniform_(r->c, x, -1, 2, g, &same, &r->e)
                 : kind == 1 ? ac_normal_(r->c, x, 0.5, 2, g, &same, &r->e)
                 : kind == 2 ? ac_bernoulli_(r->c, x, &p, g, &same, &r->e)
                             : ac_randint_(r->c, x, 0, 100, g, &same, &r->e);
  ac_tensor_release(same);
  return st;
}

static void test_layout_and_threads(void **state) {
  oc_rig one, many;
  (void)state;
  oc_open(&one, 1);
  oc_open(&many, 4);
  for (int kind = 0; kind < 4; kind++) {
    ac_generator g = {.seed = 4, .fixed = 1};
    ac_tensor *a = zeros(&one, AC_F32, 301, 203), *b = zeros(&many, AC_F32, 203, 301), *bt = NULL;
    assert_ok(draw(&one, kind, a, &g), one.e);
    assert_ok(ac_t(many.c, b, &bt, &many.e), many.e); /* strides (1, 301) */
    assert_ok(draw(&many, kind, bt, &g), many.e);
    oc_same(a, bt, 0, 0);
    ac_tensor_release(a);
    ac_tensor_release(b);
    ac_tensor_release(bt);
  }
  ac_ctx_free(one.c);
  oc_close(&many);
}

static void test_moments(void **state) {
  static const ac_dtype dts[] = {AC_F64, AC_F32, AC_F16, AC_BF16};
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  for (int k = 0; k < 4; k++)
    for (int kind = 0; kind < 3; kind++) {
      ac_tensor *x = zeros(&r, dts[k], 400, 500);
      assert_ok(draw(&r, kind, x, NULL), r.e);
      double sum = 0, squares = 0, low = 1e9, high = -1e9, n = 200000;
      for (int64_t i = 0; i < 200000; i++) {
        double v = oc_at(x, i);
        sum += v;
        squares += v * v;
        low = v < low ? v : low;
        high = v > high ? v : high;
      }
      static const double mean[] = {0.5, 0.5, 0.3}, var[] = {0.75, 4, 0.21};
      double bias = dts[k] == AC_BF16 && kind == 0
                        ? 3 * 0x1p-9
                        : 0; /* 8 bits: values stand at the low end of their cells */
      assert_true(fabs(sum / n - mean[kind]) < 5 * sqrt(var[kind] / n) + bias);
      assert_true(fabs(squares / n - sum / n * (sum / n) - var[kind]) < 0.01 * (1 + var[kind]));
      if (kind == 0) assert_true(low >= -1 && low < -0.98 && high < 2 && high > 1.98);
      ac_tensor_release(x);
    }
  oc_close(&r);
}

static void test_uniform_end(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  for (int k = 0; k < 3; k++) { /* rounding up to the end happens often here; it must not show */
    static const ac_dtype dts[] = {AC_F32, AC_F16, AC_BF16};
    ac_tensor *x = zeros(&r, dts[k], 300, 300), *same = NULL;
    assert_ok(ac_uniform_(r.c, x, 1, 2, NULL, &same, &r.e), r.e);
    for (int64_t i = 0; i < 90000; i++) assert_true(oc_at(x, i) >= 1 && oc_at(x, i) < 2);
    ac_tensor_release(same);
    ac_tensor_release(x);
  }
  oc_close(&r);
}

static void test_randperm(void **state) {
  oc_rig r;
  int seen[6] = {0};
  (void)state;
  oc_open(&r, 1);
  ac_tensor *x = oc_full(&r, AC_I64, 0, OC_SHAPE(2000)), *same = NULL;
  assert_ok(ac_randperm_(r.c, x, NULL, &same, &r.e), r.e);
  ac_tensor_release(same);
  bool there[2000] = {false};
  for (int64_t i = 0; i < 2000; i++) there[(int64_t)oc_at(x, i)] = true;
  for (int i = 0; i < 2000; i++) assert_true(there[i]);
  ac_tensor_release(x);
  x = oc_full(&r, AC_I64, 0, OC_SHAPE(3));
  for (int k = 0; k < 6000; k++) {
    assert_ok(ac_randperm_(r.c, x, NULL, &same, &r.e), r.e);
    ac_tensor_release(same);
    int a = (int)oc_at(x, 0), b = (int)oc_at(x, 1);
    seen[a * 2 + (b > (a == 0 ? 1 : a == 1 ? 0 : 0))]++;
  }
  for (int i = 0; i < 6; i++) assert_in_range(seen[i], 850, 1150); /* 1000 +- 5 sigma */
  ac_tensor_release(x);
  oc_close(&r);
}

static void test_dropout(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  ac_generator g = {.seed = 6, .fixed = 1}, shifted = {.seed = 6, .fixed = 1, .row0 = 3};
  ac_tensor *x = oc_rand(&r, AC_F32, OC_SHAPE(70, 130)), *y = NULL, *z = NULL,
            *d = oc_rand(&r, AC_F32, OC_SHAPE(70, 130)), *dx = NULL;
  assert_ok(ac_tensor_set_requires_grad(x, true, &r.e), r.e);
  uint32_t before = ac_ctx_generator(r.c)->ordinal;
  assert_ok(ac_dropout(r.c, x, 0.25, true, NULL, &y, &r.e), r.e);
  assert_int_equal(ac_ctx_generator(r.c)->ordinal, before + 1);
  assert_ok(ac_gradients(r.c, 1, &y, &d, 1, &x, false, NULL, &dx, &r.e), r.e);
  assert_int_equal(ac_ctx_generator(r.c)->ordinal, before + 1); /* the backward draws nothing new */
  int kept = 0;
  for (int64_t i = 0; i < x->numel; i++) {
    bool keep = oc_at(y, i) != 0;
    kept += keep;
    assert_true(oc_at(y, i) == (keep ? (double)((float)oc_at(x, i) * (float)(1 / 0.75)) : 0));
    assert_true(oc_at(dx, i) == (keep ? (double)((float)oc_at(d, i) * (float)(1 / 0.75)) : 0));
  }
  assert_in_range(kept, 6600, 7050); /* 6825 +- 5 sigma */
  ac_tensor_release(y);
  /* evaluation and p = 0 give x itself, p = 1 zeros */
  assert_ok(ac_dropout(r.c, x, 0.25, false, NULL, &y, &r.e), r.e);
  assert_ptr_equal(y, x);
  ac_tensor_release(y);
  assert_ok(ac_dropout(r.c, x, 1, true, NULL, &y, &r.e), r.e);
  for (int64_t i = 0; i < x->numel; i++) assert_true(oc_at(y, i) == 0);
  ac_tensor_release(y);
  /* rows 3.. of a global batch get those rows' mask */
  assert_ok(ac_dropout(r.c, d, 0.5, true, &g, &y, &r.e), r.e);
  ac_tensor *part = NULL;
  assert_ok(ac_narrow(r.c, d, 0, 3, 67, &part, &r.e), r.e);
  assert_ok(ac_dropout(r.c, part, 0.5, true, &shifted, &z, &r.e), r.e);
  for (int64_t i = 0; i < z->numel; i++) assert_true(oc_at(z, i) == oc_at(y, i + 3 * 130));
  ac_tensor *all[] = {x, y, z, d, dx, part};
  for (int i = 0; i < 6; i++) ac_tensor_release(all[i]);
  oc_close(&r);
}

static void test_errors(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 1);
  ac_tensor *x = zeros(&r, AC_F32, 2, 2), *n = zeros(&r, AC_U8, 2, 2), *y = NULL;
  uint32_t before = ac_ctx_generator(r.c)->ordinal;
  assert_fails(ac_uniform_(r.c, x, 2, 1, NULL, &y, &r.e), INVALID, "from 2 and to 1", r.e);
  assert_fails(ac_uniform_(r.c, n, 0, 1, NULL, &y, &r.e), DTYPE, "u8", r.e);
  assert_fails(ac_normal_(r.c, x, 0, -1, NULL, &y, &r.e), INVALID, "std", r.e);
  assert_fails(ac_randint_(r.c, n, 0, 300, NULL, &y, &r.e), INVALID, "u8 cannot hold", r.e);
  const ac_operand much = ac_operand_float(1.5);
  assert_fails(ac_bernoulli_(r.c, x, &much, NULL, &y, &r.e), INVALID, "1.5", r.e);
  assert_fails(ac_dropout(r.c, x, -1, true, NULL, &y, &r.e), INVALID, "-1", r.e);
  assert_fails(ac_randperm_(r.c, x, NULL, &y, &r.e), SHAPE, "(2, 2)", r.e);
  assert_int_equal(ac_ctx_generator(r.c)->ordinal, before); /* a failed call uses up no numbers */
  ac_tensor_release(x);
  ac_tensor_release(n);
  oc_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_words),    cmocka_unit_test(test_layout_and_threads),
      cmocka_unit_test(test_moments),  cmocka_unit_test(test_uniform_end),
      cmocka_unit_test(test_randperm), cmocka_unit_test(test_dropout),
      cmocka_unit_test(test_errors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
