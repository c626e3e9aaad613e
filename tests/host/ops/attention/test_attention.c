/* host/ops/attention: the fused path against the plain one and against differences (masks, causal, grouped
 * heads, dropout); rope against its definition; memory layouts that the views of a model rely on. */
#include "host/ops/opcheck.h"
#include "ops/attention/plain.h"

/* rope without positions, frequencies or scaling */
#define ROPE(x, theta, interleaved, offset, out, e) \
  ac_rope(r.c, x, theta, interleaved, offset, NULL, NULL, 0, 1, 1, 4, 8192, out, e)

typedef struct setup {
  ac_tensor *mask, *slopes;
  double dropout;
  bool causal, gqa, mask_is_input;
} setup;

static ac_tensor *f_attention(ac_expr *x, ac_tensor *const *in, const void *user) {
  const setup *s = user;
  ac_generator g = {.seed = 5, .ordinal = 3, .fixed = 1};
  return x_scaled_dot_product_attention(x, in[0], in[1], in[2], s->mask_is_input ? in[3] : s->mask,
                                        s->dropout, s->causal, NULL, s->gqa, &g, s->slopes);
}

static void test_gradients(void **state) {
  oc_rig r;
  setup s = {0};
  (void)state;
  oc_open(&r, 2);
#define IN(...) oc_rand(&r, AC_F64, OC_SHAPE(__VA_ARGS__))
  oc_check(&r, f_attention, &s, IN(2, 1, 3, 4), IN(2, 1, 4, 4), IN(2, 1, 4, 4));
  oc_check(&r, f_attention, &s, IN(3, 2), IN(4, 2), IN(4, 2));
  oc_check(&r, f_attention, &s, IN(1, 3, 2), IN(1, 4, 2), IN(1, 4, 3)); /* values of another width */
  s.causal = true;
  oc_check(&r, f_attention, &s, IN(1, 2, 4, 2), IN(1, 2, 4, 2), IN(1, 2, 4, 2));
  oc_check(&r, f_attention, &s, IN(1, 1, 4, 2), IN(1, 1, 3, 2), IN(1, 1, 3, 2));
  s.gqa = true;
  oc_check(&r, f_attention, &s, IN(1, 4, 3, 2), IN(1, 2, 3, 2), IN(1, 2, 3, 2));
  s = (setup){.dropout = 0.3};
  oc_check(&r, f_attention, &s, IN(1, 2, 3, 2), IN(1, 2, 4, 2), IN(1, 2, 4, 2));
  s = (setup){.mask_is_input = true};
  oc_check(&r, f_attention, &s, IN(1, 2, 3, 2), IN(1, 2, 4, 2), IN(1, 2, 4, 2), IN(3, 4));
  s = (setup){.mask = oc_full(&r, AC_BOOL, 1, OC_SHAPE(3, 4))};
  uint8_t *m = ac_tensor_data(s.mask);
  m[1] = m[4] = m[5] = m[6] = m[7] = 0; /* the second query sees no key */
  oc_check(&r, f_attention, &s, IN(1, 2, 3, 2), IN(1, 2, 4, 2), IN(1, 2, 4, 2));
  ac_tensor_release(s.mask);
  s = (setup){.slopes =
                  oc_rand(&r, AC_F64, OC_SHAPE(2))}; /* constants; those that are inputs: see the Lua cases */
  oc_check(&r, f_attention, &s, IN(1, 2, 3, 2), IN(1, 2, 4, 2), IN(1, 2, 4, 2));
  s.causal = true;
  oc_check(&r, f_attention, &s, IN(1, 2, 3, 2), IN(1, 2, 3, 2), IN(1, 2, 3, 2));
  ac_tensor_release(s.slopes);
  oc_close(&r);
}

/* The fused path and plain ops give the same, dropout included, in every dtype; queries without keys give
   zeros. */
static void test_fused_is_plain(void **state) {
  static const struct {
    ac_dtype dt;
    double tol;
  } kinds[] = {{AC_F64, 1e-13}, {AC_F32, 2e-6}, {AC_BF16, 2e-2}, {AC_F16, 2e-3}};
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  for (int k = 0; k < 4; k++)
    for (int kind = 0; kind < 7;
         kind++) { /* nothing, causal, mask, dropout; ALiBi: alone, causal, with a mask */
      ac_tensor *q = oc_rand(&r, kinds[k].dt, OC_SHAPE(2, 4, 37, 16)),
                *key = oc_rand(&r, kinds[k].dt, OC_SHAPE(2, 2, 50, 16)),
                *v = oc_rand(&r, kinds[k].dt, OC_SHAPE(2, 2, 50, 16)), *mask = NULL,
                *slopes = kind < 4 ? NULL : oc_rand(&r, AC_F32, OC_SHAPE(4));
      if (kind == 2 || kind == 6) {
        mask = oc_rand(&r, AC_F32, OC_SHAPE(2, 1, 37, 50));
        float *m = ac_tensor_data(mask);
        for (int64_t i = 0; i < mask->numel; i++) m[i] = m[i] < -0.7f || i / 50 == 3 ? -INFINITY : m[i];
      }
      double p = kind == 3 ? 0.25 : 0, scale = 0.3;
      ac_generator g = {.seed = 8, .step = 2, .fixed = 1};
      ac_expr x;
      ac_expr_init(&x, r.c, &r.e);
      ac_tensor *a = x_scaled_dot_product_attention(&x, q, key, v, mask, p, kind == 1 || kind == 5, &scale,
                                                    true, &g, slopes);
      ac_tensor *b = aci_plain_attention(&x, q, key, v, mask, p, kind == 1 || kind == 5, scale, &g, slopes);
      assert_ok(x.st, r.e);
      oc_same(a, b, 0, kinds[k].tol);
      for (int64_t i = 0; (kind == 2 || kind == 6) && i < 16; i++) assert_true(oc_at(a, 3 * 16 + i) == 0);
      ac_expr_end(&x);
      ac_tensor *all[] = {q, key, v, mask, slopes};
      for (int i = 0; i < 5; i++) ac_tensor_release(all[i]);
    }
  oc_close(&r);
}

/* The result of (b, h, t, d) lies as (b, t, h, d), so that heads join without a copy. */
static void test_layout(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 1);
  ac_tensor *q = oc_rand(&r, AC_F32, OC_SHAPE(2, 5, 3, 4)), *y = NULL, *qt = NULL, *yt = NULL, *flat = NULL;
  assert_ok(ac_transpose(r.c, q, 1, 2, &qt, &r.e), r.e);
  assert_ok(
      ac_scaled_dot_product_attention(r.c, qt, qt, qt, NULL, 0, true, NULL, false, NULL, NULL, &y, &r.e),
      r.e);
  assert_ok(ac_transpose(r.c, y, 1, 2, &yt, &r.e), r.e);
  const int64_t joined[] = {2, 5, 12};
  assert_ok(ac_view(r.c, yt, joined, 3, &flat, &r.e), r.e);
  ac_tensor_release(flat);
  ac_tensor *rot = NULL;
  assert_ok(ROPE(qt, 10000, false, 0, &rot, &r.e), r.e);
  assert_memory_equal(ac_tensor_stride(rot), ac_tensor_stride(qt), 4 * sizeof(int64_t));
  ac_tensor *all[] = {q, y, qt, yt, rot};
  for (int i = 0; i < 5; i++) ac_tensor_release(all[i]);
  oc_close(&r);
}

static ac_tensor *f_rope(ac_expr *x, ac_tensor *const *in, const void *user) {
  const bool *inter = user;
  return x_rope(x, x_mul(x, T(in[0]), T(in[0])), 100, *inter, 5, NULL, NULL, 0, 1, 1, 4, 8192);
}

static void test_rope(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  for (int inter = 0; inter < 2; inter++) {
    bool flag = inter;
    ac_tensor *x = oc_rand(&r, AC_F64, OC_SHAPE(2, 40, 6)), *y = NULL;
    assert_ok(ROPE(x, 500, flag, 7, &y, &r.e), r.e);
    for (int64_t row = 0; row < 80; row++)
      for (int64_t i = 0; i < 3; i++) {
        double angle = (double)(7 + row % 40) * pow(500, -2.0 * (double)i / 6), c = cos(angle),
               s = sin(angle);
        int64_t p = row * 6 + (inter ? 2 * i : i), q = row * 6 + (inter ? 2 * i + 1 : i + 3);
        assert_true(fabs(oc_at(y, p) - (oc_at(x, p) * c - oc_at(x, q) * s)) < 1e-13);
        assert_true(fabs(oc_at(y, q) - (oc_at(x, q) * c + oc_at(x, p) * s)) < 1e-13);
      }
    ac_tensor_release(x);
    ac_tensor_release(y);
    oc_check(&r, f_rope, &flag, oc_rand(&r, AC_F64, OC_SHAPE(2, 3, 4)));
  }
  /* one position at a time, as generation with a cache does, gives the same bits */
  ac_tensor *x = oc_rand(&r, AC_F32, OC_SHAPE(50, 8)), *whole = NULL, *one = NULL, *part = NULL;
  assert_ok(ROPE(x, 10000, false, 0, &whole, &r.e), r.e);
  for (int64_t p = 0; p < 50; p++) {
    assert_ok(ac_narrow(r.c, x, 0, p, 1, &part, &r.e), r.e);
    assert_ok(ROPE(part, 10000, false, p, &one, &r.e), r.e);
    for (int64_t i = 0; i < 8; i++) assert_true(oc_at(one, i) == oc_at(whole, p * 8 + i));
    ac_tensor_release(one);
    ac_tensor_release(part);
  }
  ac_tensor_release(x);
  ac_tensor_release(whole);
  oc_close(&r);
}

/* The meta device knows shapes and strides without bytes. */
static void test_meta(void **state) {
  oc_rig r;
  ac_device *meta;
  (void)state;
  oc_open(&r, 1);
  assert_ok(ac_ctx_device(r.c, "meta", &meta, &r.e), r.e);
  ac_tensor *q = NULL, *y = NULL, *g = NULL, *s = NULL;
  assert_ok(ac_tensor_new(meta, AC_BF16, OC_SHAPE(2, 3, 1000, 64), &q, &r.e), r.e);
  assert_ok(ac_tensor_set_requires_grad(q, true, &r.e), r.e);
  assert_ok(ac_scaled_dot_product_attention(r.c, q, q, q, NULL, 0.1, true, NULL, false, NULL, NULL, &y, &r.e),
            r.e);
  assert_int_equal(ac_tensor_stride(y)[1], 64);
  assert_ok(ac_sum(r.c, y, NULL, 0, false, NULL, &s, &r.e), r.e);
  assert_ok(ac_gradients(r.c, 1, &s, NULL, 1, &q, false, NULL, &g, &r.e), r.e);
  assert_true(aci_same_shape(g, q) && g->dtype == AC_BF16);
  ac_tensor *all[] = {q, y, g, s};
  for (int i = 0; i < 4; i++) ac_tensor_release(all[i]);
  oc_close(&r);
}

static void test_errors(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 1);
  ac_tensor *q = oc_rand(&r, AC_F32, OC_SHAPE(2, 4, 5, 8)), *k = oc_rand(&r, AC_F32, OC_SHAPE(2, 2, 5, 8)),
            *w = oc_rand(&r, AC_F32, OC_SHAPE(2, 4, 5, 6)), *m = oc_rand(&r, AC_F32, OC_SHAPE(5, 4)),
            *y = NULL;
#define ATTEND(qu, ke, va, mask, causal, gqa) \
  ac_scaled_dot_product_attention(r.c, qu, ke, va, mask, 0, causal, NULL, gqa, NULL, NULL, &y, &r.e)
  assert_fails(ATTEND(q, k, k, NULL, false, false), SHAPE, "enable_gqa", r.e);
  assert_fails(ATTEND(k, q, q, NULL, false, true), SHAPE, "multiple", r.e);
  assert_fails(ATTEND(q, w, w, NULL, false, false), SHAPE, "(2, 4, 5, 6)", r.e);
  assert_fails(ATTEND(q, q, q, m, false, false), SHAPE, "(5, 4) does not broadcast to (2, 4, 5, 5)", r.e);
  assert_fails(ATTEND(q, q, q, q, true, false), INVALID, "exclude", r.e);
  assert_fails(ROPE(m, 0, false, 0, &y, &r.e), INVALID, "theta", r.e);
  ac_tensor *all[] = {q, k, w, m};
  for (int i = 0; i < 4; i++) ac_tensor_release(all[i]);
  oc_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients), cmocka_unit_test(test_fused_is_plain),
                                     cmocka_unit_test(test_layout),    cmocka_unit_test(test_rope),
                                     cmocka_unit_test(test_meta),      cmocka_unit_test(test_errors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
