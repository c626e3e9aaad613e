/* host/ops/index: ops that move pieces (flip, roll, tile, pad, interpolate, slices, writes by index) against direct
   indexing for every dtype and odd strides; gradients against differences; threads; what bad arguments say. */
#include "host/ops/opcheck.h"

#define FN(name, expr)                                                         \
  static ac_tensor *name(ac_expr *x, ac_tensor *const *in, const void *user) { \
    (void)user;                                                                \
    return expr;                                                               \
  }
#define SQ(t) x_mul(x, T(t), T(t))
#define IDS(u) ((ac_tensor *)(uintptr_t)(u))
static const int64_t dims01[] = {0, -1}, shifts[] = {1, -2}, twice[] = {2, 3}, around[] = {2, 1, 1, 0};
static const int64_t one_more[] = {1, 1}, five[] = {5}, five_three[] = {5, 3},
                     places[] = {1, 2, 2, 2, -1, 0, 0, -2, 0};
static const double no_factor[] = {0, 0};
FN(f_flip, x_flip(x, SQ(in[0]), dims01, 2))
FN(f_roll, x_roll(x, SQ(in[0]), shifts, 2, dims01, 2))
FN(f_roll_row, x_roll(x, SQ(in[0]), shifts, 1, NULL, 0))
FN(f_tile, x_tile(x, SQ(in[0]), twice, 2))
FN(f_repeat, x_repeat_interleave(x, SQ(in[0]), ac_operand_int(3), &dims01[1], NULL))
FN(f_diagonal, x_diagonal(x, SQ(in[0]), 1, -1, 0))
FN(f_diag, x_diag(x, SQ(in[0]), -1))
FN(f_movedim, x_movedim(x, SQ(in[0]), dims01, 1, &dims01[1], 1))
FN(f_slice, x_slice(x, SQ(in[0]), 1, 1, &five_three[1], 2))
FN(f_slice_scatter, SQ(x_slice_scatter(x, in[0], in[1], 1, 1, NULL, 2)))
FN(f_view, x_index_view(x, SQ(in[0]), places, 9))
FN(f_constant, x_pad(x, SQ(in[0]), around, 4, AC_PAD_MODE_CONSTANT, 0.5))
FN(f_reflect, x_pad(x, SQ(in[0]), around, 4, AC_PAD_MODE_REFLECT, 0))
FN(f_replicate, x_pad(x, SQ(in[0]), around, 4, AC_PAD_MODE_REPLICATE, 0))
FN(f_circular, x_pad(x, SQ(in[0]), one_more, 2, AC_PAD_MODE_CIRCULAR, 0))
FN(f_nearest, x_interpolate(x, SQ(in[0]), five, 1, NULL, 0, AC_INTERPOLATE_MODE_NEAREST_EXACT, false, false, false))
FN(f_cubic, x_interpolate(x, SQ(in[0]), five_three, 2, NULL, 0, AC_INTERPOLATE_MODE_BICUBIC, false, false, false))
FN(f_linear, x_interpolate_to(x, SQ(in[0]), five_three, 2, no_factor, 2, AC_INTERPOLATE_MODE_BILINEAR, true))
FN(f_area, x_interpolate(x, SQ(in[0]), five_three, 2, NULL, 0, AC_INTERPOLATE_MODE_AREA, false, false, false))
FN(f_scatter, SQ(x_scatter(x, in[0], 1, IDS(user), T(in[1]))))
FN(f_copy, SQ(x_index_copy(x, in[0], 1, IDS(user), in[1])))
FN(f_fill, SQ(x_index_fill(x, in[0], 1, IDS(user), F(0.5))))
FN(f_masked, SQ(x_masked_scatter(x, in[0], IDS(user), in[1])))

static ac_tensor *f_unbind(ac_expr *x, ac_tensor *const *in, const void *user) {
  ac_tensor *more[2];
  (void)user;
  ac_tensor *a = x_unbind(x, SQ(in[0]), 1, more, 2); /* the middle piece gets no gradient */
  return x_mul(x, T(a), T(more[1]));
}
static ac_tensor *f_grid(ac_expr *x, ac_tensor *const *in, const void *user) {
  ac_tensor *more[1];
  (void)user;
  ac_tensor *a = x_meshgrid(x, in, 2, AC_MESHGRID_INDEXING_XY, more, 1);
  return x_mul(x, T(a), T(SQ(more[0])));
}
/* x[i, :, j] with two index tensors. */
typedef struct pair {
  ac_tensor *t[2];
} pair;
static const int64_t outer_dims[] = {0, 2}, next_dims[] = {2, 1};
static ac_tensor *f_index(ac_expr *x, ac_tensor *const *in, const void *user) {
  return x_index(x, SQ(in[0]), ((const pair *)user)->t, 2, outer_dims, 2);
}
static ac_tensor *f_put(ac_expr *x, ac_tensor *const *in, const void *user) {
  return SQ(x_index_put(x, in[0], ((const pair *)user)->t, 2, T(in[1]), false, outer_dims, 2));
}
static ac_tensor *f_put_next(ac_expr *x, ac_tensor *const *in, const void *user) {
  return SQ(x_index_put(x, in[0], ((const pair *)user)->t, 2, T(in[1]), false, next_dims, 2));
}
static ac_tensor *f_put_added(ac_expr *x, ac_tensor *const *in, const void *user) {
  return SQ(x_index_put(x, in[0], ((const pair *)user)->t, 2, T(in[1]), true, outer_dims, 2));
}
static ac_tensor *f_assign(ac_expr *x, ac_tensor *const *in, const void *user) {
  (void)user;
  ac_tensor *y = SQ(in[0]);
  x_index_view_put_(x, y, T(in[1]), places, 9);
  return SQ(y);
}

static void test_gradients(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
#define IN(...) oc_rand(&r, AC_F64, OC_SHAPE(__VA_ARGS__))
  oc_check(&r, f_flip, NULL, IN(2, 3, 2));
  oc_check(&r, f_roll, NULL, IN(2, 2, 3));
  oc_check(&r, f_roll_row, NULL, IN(2, 3));
  oc_check(&r, f_tile, NULL, IN(2, 2));
  oc_check(&r, f_repeat, NULL, IN(2, 2));
  oc_check(&r, f_diagonal, NULL, IN(3, 2, 4));
  oc_check(&r, f_diag, NULL, IN(3));
  oc_check(&r, f_movedim, NULL, IN(2, 3, 2));
  oc_check(&r, f_slice, NULL, IN(2, 5));
  oc_check(&r, f_slice_scatter, NULL, IN(2, 4), IN(2, 2));
  oc_check(&r, f_view, NULL, IN(5, 3, 2));
  oc_check(&r, f_unbind, NULL, IN(2, 3));
  oc_check(&r, f_grid, NULL, IN(2), IN(3));
  oc_check(&r, f_constant, NULL, IN(2, 3));
  oc_check(&r, f_reflect, NULL, IN(2, 3));
  oc_check(&r, f_replicate, NULL, IN(2, 3));
  oc_check(&r, f_circular, NULL, IN(2, 3));
  oc_check(&r, f_nearest, NULL, IN(1, 2, 3));
  oc_check(&r, f_cubic, NULL, IN(1, 1, 3, 4));
  oc_check(&r, f_linear, NULL, IN(1, 1, 3, 4));
  oc_check(&r, f_area, NULL, IN(1, 1, 7, 4));
  oc_check(&r, f_assign, NULL, IN(5, 3, 2), IN(1, 2, 1, 1)); /* a leading 1 more than the part has dims */
  ac_tensor *ids = oc_ints(&r, OC_SHAPE(2, 3), (const int64_t[]){1, 3, 1, 0, 1, 2});
  oc_check(&r, f_scatter, ids, IN(2, 4), IN(3, 4)); /* src larger than the index, places twice */
  ac_tensor_release(ids);
  ids = oc_ints(&r, OC_SHAPE(3), (const int64_t[]){2, 0, 2});
  oc_check(&r, f_copy, ids, IN(2, 3, 2), IN(2, 3, 2));
  oc_check(&r, f_fill, ids, IN(2, 3, 2));
  ac_tensor_release(ids);
  pair p = {{oc_ints(&r, OC_SHAPE(2, 1), (const int64_t[]){1, -1}),
             oc_ints(&r, OC_SHAPE(3), (const int64_t[]){2, 0, 2})}};
  oc_check(&r, f_index, &p, IN(2, 2, 3));
  oc_check(&r, f_put, &p, IN(2, 2, 3), IN(3, 2));
  oc_check(&r, f_put_next, &p, IN(2, 3, 2), IN(2, 2, 3));
  oc_check(&r, f_put_added, &p, IN(2, 2, 3), IN(2, 3, 1));
  ac_tensor_release(p.t[0]);
  ac_tensor_release(p.t[1]);
  ac_tensor *mask = NULL, *some = oc_ints(&r, OC_SHAPE(3), (const int64_t[]){1, 0, 1});
  assert_ok(ac_to(r.c, some, &(ac_dtype){AC_BOOL}, NULL, &mask, &r.e), r.e);
  oc_check(&r, f_masked, mask, IN(2, 3), IN(6));
  ac_tensor_release(mask);
  ac_tensor_release(some);
  oc_close(&r);
}

/* ---- every dtype, strided ---- */
static void check_at(oc_rig *r, ac_tensor *y, const ac_tensor *x, int64_t rows, int64_t cols,
                     int64_t (*from)(int64_t, int64_t)) {
  (void)r;
  assert_int_equal(y->numel, rows * cols);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) {
      int64_t at = from(i, j);
      assert_true(oc_at(y, i * cols + j) == (at < 0 ? 3 : oc_at(x, at)));
    }
  ac_tensor_release(y);
}

/* x is (300, 40), element (i, j) at i * 40 + j. */
#define FROM(name, i_expr, j_expr) \
  static int64_t name(int64_t i, int64_t j) { return (i_expr)*40 + (j_expr); }
FROM(flipped, 299 - i, 39 - j)
FROM(rolled, (i + 293) % 300, (j + 11) % 40)
FROM(tiled, i % 300, j % 40)
FROM(twice_each, i, j / 2)
FROM(stepped, i, 1 + 3 * j)
FROM(picked, i == 1 ? 0 : 299, j)
static int64_t padded(int64_t i, int64_t j) { return i < 2 || j < 1 || j > 40 ? -1 : (i - 2) * 40 + j - 1; }
static int64_t reflected(int64_t i, int64_t j) { return i * 40 + (j < 5 ? 5 - j : j < 45 ? j - 5 : 83 - j); }
static int64_t scattered(int64_t i, int64_t j) { return j == 7 || j == 38 ? -1 : i * 40 + j; }

static void test_values(void **state) {
  static const ac_dtype dts[] = {AC_F64, AC_F32, AC_BF16, AC_F16, AC_I64, AC_I32, AC_I16, AC_I8, AC_U8};
  const int64_t turn[] = {7, -11}, times[] = {2, 3}, edge[] = {1, 2, 2, 0}, mirror[] = {5, 5}, last = 37,
                two = 1;
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  ac_tensor *rows = oc_ints(&r, OC_SHAPE(3), (const int64_t[]){-1, 0, 299}),
            *cols = oc_ints(&r, OC_SHAPE(2), (const int64_t[]){38, 7});
  for (size_t k = 0; k < sizeof dts / sizeof *dts; k++) {
    ac_tensor *a = NULL, *x = NULL, *y = NULL, *p = oc_rand(&r, AC_F64, OC_SHAPE(40, 300));
    double *v = ac_tensor_data(p);
    for (int64_t i = 0; i < p->numel; i++) v[i] = floor(fabs(v[i]) * 100);
    assert_ok(ac_to(r.c, p, &dts[k], NULL, &a, &r.e), r.e);
    assert_ok(ac_transpose(r.c, a, 0, 1, &x, &r.e), r.e);
    assert_ok(ac_flip(r.c, x, dims01, 2, &y, &r.e), r.e);
    check_at(&r, y, x, 300, 40, flipped);
    assert_ok(ac_roll(r.c, x, turn, 2, dims01, 2, &y, &r.e), r.e);
    check_at(&r, y, x, 300, 40, rolled);
    assert_ok(ac_tile(r.c, x, times, 2, &y, &r.e), r.e);
    check_at(&r, y, x, 600, 120, tiled);
    assert_ok(ac_repeat_interleave(r.c, x, ac_operand_int(2), &two, NULL, &y, &r.e), r.e);
    check_at(&r, y, x, 300, 80, twice_each);
    assert_ok(ac_slice(r.c, x, 1, 1, &last, 3, &y, &r.e), r.e);
    check_at(&r, y, x, 300, 13, stepped);
    assert_ok(ac_pad(r.c, x, edge, 4, AC_PAD_MODE_CONSTANT, 3, &y, &r.e), r.e);
    check_at(&r, y, x, 302, 43, padded);
    assert_ok(ac_pad(r.c, x, mirror, 2, AC_PAD_MODE_REFLECT, 0, &y, &r.e), r.e);
    check_at(&r, y, x, 300, 50, reflected);
    assert_ok(ac_index(r.c, x, &rows, 1, NULL, 0, &y, &r.e), r.e);
    check_at(&r, y, x, 3, 40, picked);
    assert_ok(ac_index_fill(r.c, x, 1, cols, F(3), &y, &r.e), r.e);
    check_at(&r, y, x, 300, 40, scattered);
    assert_ok(ac_index_put(r.c, x, &cols, 1, ac_operand_int(3), false, &two, 1, &y, &r.e), r.e);
    check_at(&r, y, x, 300, 40, scattered);
    ac_tensor_release(x);
    ac_tensor_release(a);
    ac_tensor_release(p);
  }
  ac_tensor_release(rows);
  ac_tensor_release(cols);
  oc_close(&r);
}

/* What is added at one place is added in f32 whatever the dtype: 300 ones are 300 also in bf16, which counts to
 * 256 by ones. */
static void test_added_once(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  int64_t zero[300] = {0};
  ac_tensor *i = oc_ints(&r, OC_SHAPE(300), zero), *x = oc_full(&r, AC_BF16, 0, OC_SHAPE(2, 2)), *y = NULL;
  ac_tensor *pair_of[2] = {i, i};
  assert_ok(ac_index_put(r.c, x, pair_of, 2, ac_operand_int(1), true, NULL, 0, &y, &r.e), r.e);
  assert_true(oc_at(y, 0) == 300 && oc_at(y, 1) == 0 && oc_at(y, 3) == 0);
  ac_tensor_release(y);
  ac_tensor_release(x);
  ac_tensor_release(i);
  oc_close(&r);
}

/* Results and gradients of tensors cut into many tasks have the same bits for 1 and for 3 threads. */
static void test_threads(void **state) {
  double *want = NULL;
  int64_t n = 0;
  (void)state;
  for (int threads = 1; threads <= 3; threads += 2) {
    const int64_t size[] = {301, 257}, edge[] = {9, 7, 3, 11};
    oc_rig r;
    oc_open(&r, threads);
    ac_tensor *x = oc_rand(&r, AC_F32, OC_SHAPE(2, 3, 150, 131));
    ac_expr ex;
    ac_expr_init(&ex, r.c, &r.e);
    ac_tensor *y = x_interpolate(&ex, x, size, 2, NULL, 0, AC_INTERPOLATE_MODE_BICUBIC, false, false, false);
    y = x_interpolate_backward(&ex, y, x->shape, 4, no_factor, 2, AC_INTERPOLATE_MODE_BILINEAR, false);
    y = x_pad_backward(&ex, x_pad(&ex, y, edge, 4, AC_PAD_MODE_REFLECT, 0), edge, 4, AC_PAD_MODE_REFLECT,
                       x->shape, 4);
    y = x_roll(&ex, x_flip(&ex, y, dims01, 2), edge, 1, NULL, 0);
    assert_ok(ex.st, r.e);
    double *got = oc_values(y);
    if (want == NULL) {
      want = got;
      n = y->numel;
    } else {
      assert_int_equal(y->numel, n);
      assert_memory_equal(got, want, (size_t)n * sizeof *got);
      free(got);
    }
    ac_expr_end(&ex);
    ac_tensor_release(x);
    oc_close(&r);
  }
  free(want);
}

static void test_errors(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 1);
  ac_ctx_set_index_base(r.c, 1);
  ac_tensor *a = oc_rand(&r, AC_F32, OC_SHAPE(2, 3)), *y = NULL, *out[AC_MAX_RESULTS];
  ac_tensor *ids = oc_ints(&r, OC_SHAPE(2), (const int64_t[]){0, 5}),
            *big = oc_rand(&r, AC_F32, OC_SHAPE(2, 100));
  ac_tensor *images = oc_rand(&r, AC_F32, OC_SHAPE(1, 1, 2, 2));
  const int64_t far[] = {3, 0}, odd[] = {1}, crop[] = {-2, -2}, none[] = {0}, one_dim[] = {1}, stop = 3,
                wrong[] = {0, 9, 1};
  int n;
  assert_fails(ac_flip(r.c, a, far, 1, &y, &r.e), INDEX, "dims 4", r.e);
  assert_fails(ac_roll(r.c, a, shifts, 2, one_dim, 1, &y, &r.e), INVALID, "2 shifts for 1 dims", r.e);
  assert_fails(ac_roll(r.c, a, shifts, 2, NULL, 0, &y, &r.e), INVALID, "2 shifts without dims", r.e);
  assert_fails(ac_tile(r.c, a, crop, 2, &y, &r.e), INVALID, "(-2, -2)", r.e);
  assert_fails(ac_repeat_interleave(r.c, a, ac_operand_int(-1), NULL, NULL, &y, &r.e), INVALID, "-1", r.e);
  assert_fails(ac_repeat_interleave(r.c, a, T(ids), &one_dim[0], NULL, &y, &r.e), SHAPE, "dim 2 has 3 positions",
               r.e);
  assert_fails(ac_diagonal(r.c, a, 0, 1, -1, &y, &r.e), INVALID, "both 2", r.e);
  assert_fails(ac_slice(r.c, a, 1, 0, &stop, 1, &y, &r.e), INDEX,
               "positions 1 to 4 are not in dim 2 of (2, 3)", r.e);
  assert_fails(ac_slice(r.c, a, 1, 0, NULL, 0, &y, &r.e), INVALID, "step must be at least 1", r.e);
  assert_fails(ac_unbind(r.c, big, 1, out, &n, &r.e), INVALID, "100 pieces", r.e);
  assert_fails(ac_movedim(r.c, a, far, 1, one_dim, 1, &y, &r.e), INDEX, "source 4", r.e);
  assert_fails(ac_pad(r.c, a, odd, 1, AC_PAD_MODE_CONSTANT, 0, &y, &r.e), INVALID, "pad has 1 numbers", r.e);
  assert_fails(ac_pad(r.c, a, crop, 2, AC_PAD_MODE_CONSTANT, 0, &y, &r.e), SHAPE, "leaves no shape", r.e);
  assert_fails(ac_pad(r.c, a, far, 2, AC_PAD_MODE_REFLECT, 0, &y, &r.e), SHAPE, "dim 2 of (2, 3)", r.e);
  assert_fails(ac_pad(r.c, a, odd, 0, AC_PAD_MODE_REFLECT, 1, &y, &r.e), INVALID, "mode is not constant",
               r.e);
  assert_fails(ac_interpolate(r.c, a, odd, 1, NULL, 0, AC_INTERPOLATE_MODE_NEAREST, false, false, false, &y, &r.e), SHAPE,
               "(2, 3)", r.e);
  assert_fails(ac_interpolate(r.c, images, none, 1, NULL, 0, AC_INTERPOLATE_MODE_NEAREST, false, false, false, &y, &r.e),
               SHAPE, "dim 3", r.e);
  assert_fails(ac_interpolate(r.c, images, NULL, 0, NULL, 0, AC_INTERPOLATE_MODE_NEAREST, false, false, false, &y, &r.e),
               INVALID, "either size", r.e);
  assert_fails(ac_interpolate(r.c, images, odd, 1, NULL, 0, AC_INTERPOLATE_MODE_LINEAR, false, false, false, &y, &r.e),
               SHAPE, "one more dim", r.e);
  assert_fails(ac_index(r.c, a, &ids, 1, NULL, 0, &y, &r.e), INDEX, "holds 5 at (2), but dim 1 has 2 positions",
               r.e);
  assert_fails(ac_index(r.c, a, (ac_tensor *[]){a}, 1, NULL, 0, &y, &r.e), DTYPE, "i64 or i32, got f32", r.e);
  assert_fails(ac_index(r.c, a, (ac_tensor *[]){ids, ids, ids}, 3, NULL, 0, &y, &r.e), INDEX,
               "3 index tensors", r.e);
  /* in place: an index out of range is found before anything is written */
  ac_tensor *dst = oc_full(&r, AC_F32, 0, OC_SHAPE(2, 2));
  assert_fails(ac_index_put_(r.c, dst, &ids, 1, ac_operand_int(1), false, NULL, 0, &y, &r.e), INDEX,
               "holds 5", r.e);
  assert_fails(ac_index_put_(r.c, dst, &ids, 1, ac_operand_int(1), true, NULL, 0, &y, &r.e), INDEX, "holds 5",
               r.e);
  assert_fails(ac_index_fill_(r.c, dst, 0, ids, F(1), &y, &r.e), INDEX, "holds 5", r.e);
  for (int i = 0; i < 4; i++) assert_true(oc_at(dst, i) == 0);
  /* hidden ops refuse what their callers never ask for */
  ac_expr x;
  ac_expr_init(&x, r.c, &r.e);
  assert_null(x_index_view(&x, a, wrong, 3));
  assert_true(x.st == AC_INVALID);
  x.st = AC_OK;
  assert_null(x_pad_backward(&x, a, far, 2, AC_PAD_MODE_CONSTANT, a->shape, 2));
  assert_true(x.st == AC_INVALID);
  x.st = AC_OK;
  assert_null(x_diagonal_backward(&x, a, a->shape, 2, 0, 0, 1));
  assert_true(x.st == AC_SHAPE);
  ac_expr_end(&x);
  ac_tensor_release(dst);
  ac_tensor_release(images);
  ac_tensor_release(big);
  ac_tensor_release(ids);
  ac_tensor_release(a);
  oc_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients), cmocka_unit_test(test_values),
                                     cmocka_unit_test(test_added_once), cmocka_unit_test(test_threads),
                                     cmocka_unit_test(test_errors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
