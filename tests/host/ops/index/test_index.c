/* host/ops/index: views, joins, gathers against direct indexing; gradients against differences; what bad
   arguments say. */
#include "host/ops/opcheck.h"

#define FN(name, expr)                                                         \
  static ac_tensor *name(ac_expr *x, ac_tensor *const *in, const void *user) { \
    (void)user;                                                                \
    return expr;                                                               \
  }
static ac_tensor *split_some(ac_expr *x, ac_tensor *const *in, const void *user) {
  const int64_t size[3] = {1, 3, 1};
  ac_tensor *more[2];
  (void)user;
  ac_tensor *a = x_split(x, in[0], size, 3, 1, more, 2); /* the middle piece gets no gradient */
  return x_cat(x, (ac_tensor *[]){more[1], a, a}, 3, 1);
}
static ac_tensor *chunk_all(ac_expr *x, ac_tensor *const *in, const void *user) {
  ac_tensor *more[2];
  (void)user;
  ac_tensor *a = x_chunk(x, in[0], 3, -1, more, 2);
  return x_cat(x, (ac_tensor *[]){more[1], x_mul(x, T(a), T(a)), more[0]}, 3, 1);
}
static const int64_t s_view[] = {3, -1}, s_perm[] = {2, 0, 1}, d_one[] = {1};
FN(f_view, x_view(x, in[0], s_view, 2))
FN(f_reshape, x_reshape(x, x_transpose(x, in[0], 0, 1), s_view, 2))
FN(f_permute, x_permute(x, in[0], s_perm, 3))
FN(f_narrow, x_narrow(x, x_mul(x, T(in[0]), T(in[0])), 1, -3, 2))
FN(f_select, x_select(x, x_mul(x, T(in[0]), T(in[0])), -1, 1))
FN(f_squeeze, x_squeeze(x, in[0], d_one, 1))
FN(f_unsqueeze, x_unsqueeze(x, x_mul(x, T(in[0]), T(in[0])), -1))
FN(f_flatten, x_flatten(x, x_mul(x, T(in[0]), T(in[0])), 1, -1))
FN(f_tril, x_tril(x, x_mul(x, T(in[0]), T(in[0])), -1))
FN(f_triu, x_triu(x, in[0], 1))
FN(f_cat, x_cat(x, (ac_tensor *[]){in[0], x_mul(x, T(in[1]), T(in[1])), in[0]}, 3, 1))
FN(f_stack, x_stack(x, (ac_tensor *[]){in[0], x_mul(x, T(in[0]), T(in[1]))}, 2, -1))
static ac_tensor *f_embedding(ac_expr *x, ac_tensor *const *in, const void *user) {
  return x_embedding(x, (ac_tensor *)(uintptr_t)user, x_mul(x, T(in[0]), T(in[0])), NULL);
}
static ac_tensor *f_gather(ac_expr *x, ac_tensor *const *in, const void *user) {
  return x_gather(x, x_mul(x, T(in[0]), T(in[0])), 1, (ac_tensor *)(uintptr_t)user);
}
static ac_tensor *f_scatter(ac_expr *x, ac_tensor *const *in, const void *user) {
  ac_tensor *y = x_scatter_add(x, in[0], 1, (ac_tensor *)(uintptr_t)user, in[1]);
  return x_mul(x, T(y), T(y));
}
static ac_tensor *f_select_rows(ac_expr *x, ac_tensor *const *in, const void *user) {
  return x_index_select(x, x_mul(x, T(in[0]), T(in[0])), 1, (ac_tensor *)(uintptr_t)user);
}
static ac_tensor *f_add_rows(ac_expr *x, ac_tensor *const *in, const void *user) {
  ac_tensor *y = x_index_add(x, in[0], 1, (ac_tensor *)(uintptr_t)user, in[1], aci_float(0.5));
  return x_mul(x, T(y), T(y));
}

static void test_gradients(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
#define IN(...) oc_rand(&r, AC_F64, OC_SHAPE(__VA_ARGS__))
  oc_check(&r, f_view, NULL, IN(2, 3, 2));
  oc_check(&r, f_reshape, NULL, IN(2, 3, 2));
  oc_check(&r, f_permute, NULL, IN(2, 3, 2));
  oc_check(&r, f_narrow, NULL, IN(2, 5, 2));
  oc_check(&r, f_select, NULL, IN(2, 3, 4));
  oc_check(&r, f_squeeze, NULL, IN(2, 1, 3));
  oc_check(&r, f_unsqueeze, NULL, IN(2, 3));
  oc_check(&r, f_flatten, NULL, IN(2, 3, 2));
  oc_check(&r, f_tril, NULL, IN(2, 3, 4));
  oc_check(&r, f_triu, NULL, IN(4, 3));
  oc_check(&r, f_cat, NULL, IN(2, 3), IN(2, 2));
  oc_check(&r, f_stack, NULL, IN(2, 3), IN(2, 3));
  oc_check(&r, split_some, NULL, IN(2, 5));
  oc_check(&r, chunk_all, NULL, IN(2, 6));
  ac_tensor *ids = oc_ints(&r, OC_SHAPE(2, 3), (const int64_t[]){1, 3, 1, 0, 1, 2});
  oc_check(&r, f_embedding, ids, IN(4, 3));
  oc_check(&r, f_gather, ids, IN(2, 4));
  oc_check(&r, f_scatter, ids, IN(2, 4), IN(3, 4)); /* src larger than the index */
  ac_tensor_release(ids);
  ids = oc_ints(&r, OC_SHAPE(3), (const int64_t[]){2, 0, 2});
  oc_check(&r, f_select_rows, ids, IN(2, 3, 2));
  oc_check(&r, f_add_rows, ids, IN(2, 3, 2), IN(2, 3, 2));
  ac_tensor_release(ids);
  oc_close(&r);
}

/* Every element of a joined, cut or gathered tensor is the one its definition names, for every dtype and odd
   strides. */
static void test_values(void **state) {
  static const ac_dtype dts[] = {AC_F64, AC_F32, AC_BF16, AC_F16, AC_I64,
                                 AC_I32, AC_I16, AC_I8,   AC_U8,  AC_BOOL};
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  for (size_t k = 0; k < sizeof dts / sizeof *dts; k++) {
    ac_tensor *a = NULL, *at = NULL, *y = NULL, *ids, *p = oc_rand(&r, AC_F64, OC_SHAPE(40, 300));
    double *v = ac_tensor_data(p);
    for (int64_t i = 0; i < p->numel; i++) v[i] = floor(fabs(v[i]) * 100);
    assert_ok(ac_to(r.c, p, &dts[k], NULL, &a, &r.e), r.e);
    assert_ok(ac_transpose(r.c, a, 0, 1, &at, &r.e), r.e); /* (300, 40), strides (1, 300) */
    assert_ok(ac_cat(r.c, (ac_tensor *[]){at, at, at}, 3, 1, &y, &r.e), r.e);
    for (int64_t i = 0; i < 300; i += 7)
      for (int64_t j = 0; j < 120; j++) assert_true(oc_at(y, i * 120 + j) == oc_at(a, j % 40 * 300 + i));
    ac_tensor_release(y);
    ids = oc_ints(&r, OC_SHAPE(3), (const int64_t[]){39, 0, 39});
    assert_ok(ac_index_select(r.c, at, 1, ids, &y, &r.e), r.e);
    for (int64_t i = 0; i < 300; i++)
      for (int64_t j = 0; j < 3; j++)
        assert_true(oc_at(y, i * 3 + j) == oc_at(a, (j == 1 ? 0 : 39) * 300 + i));
    ac_tensor_release(y);
    ac_tensor_release(ids);
    ids = oc_ints(&r, OC_SHAPE(1, 4), (const int64_t[]){5, 299, 0, 5});
    assert_ok(ac_gather(r.c, at, 0, ids, &y, &r.e), r.e);
    for (int64_t j = 0; j < 4; j++)
      assert_true(oc_at(y, j) == oc_at(a, j * 300 + (const int64_t[]){5, 299, 0, 5}[j]));
    ac_tensor_release(y);
    ac_tensor_release(ids);
    ac_tensor_release(at);
    ac_tensor_release(a);
    ac_tensor_release(p);
  }
  oc_close(&r);
}

/* Repeated rows are added in f32 whatever the dtype: 300 times 1 is 300 also in bf16, which cannot count
   beyond 256 by ones. */
static void test_embedding_backward(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  int64_t v[300];
  for (int i = 0; i < 300; i++) v[i] = i == 7 ? 3 : 2;
  ac_tensor *ids = oc_ints(&r, OC_SHAPE(300), v), *dy = oc_full(&r, AC_BF16, 1, OC_SHAPE(300, 5));
  ac_expr x;
  ac_expr_init(&x, r.c, &r.e);
  ac_tensor *dw = x_embedding_backward(&x, dy, ids, 4, NULL);
  assert_ok(x.st, r.e);
  for (int64_t i = 0; i < 5; i++) {
    assert_true(oc_at(dw, 0 * 5 + i) == 0);
    assert_true(oc_at(dw, 2 * 5 + i) == 300); /* 299, which bf16 rounds to 300 */
    assert_true(oc_at(dw, 3 * 5 + i) == 1);
  }
  int64_t pad = -2; /* row 2 of 4 is padding: it gets nothing */
  dw = x_embedding_backward(&x, dy, ids, 4, &pad);
  assert_ok(x.st, r.e);
  for (int64_t i = 0; i < 20; i++) assert_true(oc_at(dw, i) == (i / 5 == 3));
  ac_expr_end(&x);
  ac_tensor_release(dy);
  ac_tensor_release(ids);
  oc_close(&r);
}

static void test_views_share(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 1);
  ac_tensor *a = oc_rand(&r, AC_F32, OC_SHAPE(4, 6)), *out[AC_MAX_RESULTS], *y = NULL;
  int n = 0;
  const int64_t two = 2;
  assert_ok(ac_split(r.c, a, &two, 1, 1, out, &n, &r.e), r.e);
  assert_int_equal(n, 3);
  for (int i = 0; i < n; i++) {
    assert_ptr_equal(ac_tensor_storage(out[i]), ac_tensor_storage(a));
    assert_int_equal(ac_tensor_offset(out[i]), 2 * i);
    ac_tensor_release(out[i]);
  }
  assert_ok(ac_contiguous(r.c, a, &y, &r.e), r.e);
  assert_ptr_equal(y, a);
  ac_tensor_release(y);
  ac_tensor_release(a);
  oc_close(&r);
}

static void test_errors(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 1);
  ac_ctx_set_index_base(r.c, 1); /* dims and positions are shown as a script counts them */
  ac_tensor *a = oc_rand(&r, AC_F32, OC_SHAPE(2, 3)), *b = oc_rand(&r, AC_F32, OC_SHAPE(4, 4)), *y = NULL;
  ac_tensor *ids = oc_ints(&r, OC_SHAPE(2, 2), (const int64_t[]){0, 1, 9, 1});
  const int64_t wrong[] = {4, 2}, open2[] = {-1, -1}, six[] = {6}, bad_cut[] = {1, 1};
  ac_tensor *out[AC_MAX_RESULTS];
  int n;
  assert_fails(ac_view(r.c, a, wrong, 2, &y, &r.e), SHAPE, "(2, 3)", r.e);
  assert_fails(ac_view(r.c, a, open2, 2, &y, &r.e), SHAPE, "-1", r.e);
  assert_fails(ac_narrow(r.c, a, 1, 2, 2, &y, &r.e), INDEX, "start 3 and length 2 reach beyond dim 2", r.e);
  assert_fails(ac_select(r.c, a, 0, 2, &y, &r.e), INDEX, "index 3 is out of range", r.e);
  assert_fails(ac_transpose(r.c, a, 0, 2, &y, &r.e), INDEX, "dim1 3", r.e);
  assert_fails(ac_cat(r.c, (ac_tensor *[]){a, b}, 2, 0, &y, &r.e), SHAPE, "(2, 3) and (4, 4)", r.e);
  assert_fails(ac_stack(r.c, (ac_tensor *[]){a, b}, 2, 0, &y, &r.e), SHAPE, "(2, 3) and (4, 4)", r.e);
  assert_fails(ac_split(r.c, a, bad_cut, 2, 1, out, &n, &r.e), SHAPE, "(1, 1)", r.e);
  assert_fails(ac_embedding(r.c, ids, b, NULL, &y, &r.e), INDEX,
               "holds 9 at (2, 1), but there are only 4 rows", r.e);
  assert_fails(ac_embedding(r.c, a, b, NULL, &y, &r.e), DTYPE, "i64 or i32, got f32", r.e);
  assert_fails(ac_gather(r.c, b, 0, ids, &y, &r.e), INDEX, "there are only 4 positions along dim 1", r.e);
  ac_tensor *t = NULL;
  assert_ok(ac_t(r.c, a, &t, &r.e), r.e);
  assert_fails(ac_view(r.c, t, six, 1, &y, &r.e), SHAPE, "use reshape", r.e);
  ac_tensor_release(t);
  /* in place: an index out of range is found before anything is written */
  ac_tensor *src = oc_full(&r, AC_F32, 1, OC_SHAPE(2, 2)), *dst = oc_full(&r, AC_F32, 0, OC_SHAPE(4, 4));
  assert_fails(ac_scatter_add_(r.c, dst, 0, ids, src, &y, &r.e), INDEX, "holds 9", r.e);
  for (int i = 0; i < 16; i++) assert_true(oc_at(dst, i) == 0);
  ac_tensor_release(dst);
  ac_tensor_release(src);
  ac_tensor_release(ids);
  ac_tensor_release(a);
  ac_tensor_release(b);
  oc_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients), cmocka_unit_test(test_values),
                                     cmocka_unit_test(test_embedding_backward),
                                     cmocka_unit_test(test_views_share), cmocka_unit_test(test_errors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
