/* host/ops/index: order. Lines of every length and dtype against a plain insertion by comparison, ties and NaN
   included; gradients; results whose shape depends on data: sizes, bounds, failing allocations, op authors'
   mistakes. */
#include "host/ops/opcheck.h"

#include "device/pool.h"

/* ---- the order of elements ---- */
typedef struct element {
  double v;
  int64_t at;
} element;

static int by_value(const void *a, const void *b) {
  const element *x = a, *y = b;
  bool nx = x->v != x->v, ny = y->v != y->v;
  if (nx != ny) return nx ? 1 : -1;
  if (!nx && x->v != y->v) return x->v < y->v ? -1 : 1;
  return x->at < y->at ? -1 : 1;
}
static int by_value_down(const void *a, const void *b) {
  const element *x = a, *y = b;
  bool nx = x->v != x->v, ny = y->v != y->v;
  if (nx != ny) return nx ? -1 : 1;
  if (!nx && x->v != y->v) return x->v < y->v ? 1 : -1;
  return x->at < y->at ? -1 : 1;
}

/* n values with ties; floats also hold NaN, infinities and both zeros. */
static ac_tensor *values(oc_rig *r, ac_dtype dt, int64_t n, bool few) {
  static const double odd[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0};
  ac_tensor *t = NULL, *y = NULL;
  const bool is_float = ac_dtype_is_float(dt);
  assert_ok(ac_tensor_new(ac_ctx_default_device(r->c), AC_F64, 1, &n, &t, &r->e), r->e);
  double *v = ac_tensor_data(t);
  for (int64_t i = 0; i < n; i++) {
    double u = ac_test_uniform(&r->random);
    if (dt == AC_BOOL) v[i] = u < 0.5;
    else if (is_float && ac_test_uniform(&r->random) < 0.05) v[i] = odd[(int)(u * 5)];
    else if (few || !is_float) v[i] = floor(u * (few ? 7 : 120)) - (dt == AC_U8 ? 0 : few ? 3 : 60);
    else v[i] = (u - 0.5) * 1e4;
  }
  assert_ok(ac_to(r->c, t, &dt, NULL, &y, &r->e), r->e);
  ac_tensor_release(t);
  return y;
}

static element *ordered(const ac_tensor *x, bool down) {
  element *list = malloc((size_t)(x->numel + 1) * sizeof *list);
  for (int64_t i = 0; i < x->numel; i++) list[i] = (element){oc_at(x, i), i};
  qsort(list, (size_t)x->numel, sizeof *list, down ? by_value_down : by_value);
  return list;
}

static void same_order(const ac_tensor *v, const ac_tensor *at, const element *want, int64_t n) {
  assert_int_equal(v->numel, n);
  for (int64_t i = 0; i < n; i++) {
    double x = oc_at(v, i);
    if ((int64_t)oc_at(at, i) != want[i].at || !(x == want[i].v || (x != x && want[i].v != want[i].v)))
      fail_msg("%s, place %d: %g from %g instead of %g from %d", ac_dtype_name((ac_dtype)v->dtype), (int)i, x,
               oc_at(at, i), want[i].v, (int)want[i].at);
  }
}

static const ac_dtype dtypes[] = {AC_F64, AC_F32, AC_F16, AC_BF16, AC_I64, AC_I32, AC_I16, AC_I8, AC_U8, AC_BOOL};

static void one_line(oc_rig *r, ac_dtype dt, int64_t n, bool few) {
  const int64_t ks[] = {1, 2, 17, n / 2, n - 1, n};
  ac_tensor *x = values(r, dt, n, few), *v, *at;
  for (int down = 0; down < 2; down++) {
    element *want = ordered(x, down);
    assert_ok(ac_sort(r->c, x, 0, down, false, &v, &at, &r->e), r->e);
    same_order(v, at, want, n);
    ac_tensor_release(v);
    ac_tensor_release(at);
    for (size_t i = 0; i < sizeof ks / sizeof ks[0]; i++) {
      if (ks[i] < 1 || ks[i] > n) continue;
      assert_ok(ac_topk(r->c, x, ks[i], 0, down, true, &v, &at, &r->e), r->e);
      same_order(v, at, want, ks[i]);
      ac_tensor_release(v);
      ac_tensor_release(at);
    }
    if (!down) {
      const int64_t dim = 0;
      int64_t middle = (n - 1) / 2;
      for (int64_t i = n - 1; i >= 0 && want[i].v != want[i].v; i--) middle = i; /* the first NaN */
      assert_ok(ac_median(r->c, x, &dim, false, &v, &at, &r->e), r->e);
      same_order(v, at, want + middle, 1);
      ac_tensor_release(v);
      ac_tensor_release(at);
    }
    free(want);
  }
  ac_tensor_release(x);
}

static void test_order(void **state) {
  static const int64_t lengths[] = {1, 2, 15, 16, 17, 33, 100, 257, 700, 1601};
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
      one_line(&r, dtypes[d], lengths[i], false);
      one_line(&r, dtypes[d], lengths[i], true);
    }
  }
  one_line(&r, AC_F32, 70001, false); /* by all threads, in pieces */
  one_line(&r, AC_F64, 66000, true);
  one_line(&r, AC_I8, 131073, false);
  one_line(&r, AC_BF16, 65536, false);
  oc_close(&r);
}

/* Zeros of both signs are one value, and each keeps its sign and its place. */
static void test_zeros(void **state) {
  oc_rig r;
  ac_tensor *x, *v, *at, *inverse, *counts;
  (void)state;
  oc_open(&r, 1);
  x = oc_full(&r, AC_F32, 0, OC_SHAPE(4));
  float *p = ac_tensor_data(x);
  p[0] = -0.0f, p[1] = 0.0f, p[2] = -1.0f, p[3] = -0.0f;
  assert_ok(ac_sort(r.c, x, 0, false, false, &v, &at, &r.e), r.e);
  const float *s = ac_tensor_data(v);
  assert_true(s[0] == -1 && signbit(s[1]) && !signbit(s[2]) && signbit(s[3]));
  ac_tensor_release(v);
  ac_tensor_release(at);
  assert_ok(ac_unique(r.c, x, NULL, true, NULL, NULL, &v, &inverse, &counts, &r.e), r.e);
  assert_true(v->numel == 2 && oc_at(counts, 1) == 3 && oc_at(inverse, 2) == 0);
  ac_tensor_release(v);
  ac_tensor_release(inverse);
  ac_tensor_release(counts);
  ac_tensor_release(x);
  oc_close(&r);
}

/* ---- gradients ---- */
static ac_tensor *f_sort(ac_expr *x, ac_tensor *const *in, const void *user) {
  (void)user;
  return x_sort(x, x_mul(x, T(in[0]), T(in[0])), 0, true, false, NULL);
}
static ac_tensor *f_topk(ac_expr *x, ac_tensor *const *in, const void *user) {
  (void)user;
  return x_topk(x, x_mul(x, T(in[0]), T(in[0])), 2, 1, false, true, NULL);
}
static ac_tensor *f_median(ac_expr *x, ac_tensor *const *in, const void *user) {
  (void)user;
  return x_median(x, x_mul(x, T(in[0]), T(in[0])), user, false, NULL);
}
static ac_tensor *f_masked(ac_expr *x, ac_tensor *const *in, const void *user) {
  return x_masked_select(x, x_mul(x, T(in[0]), T(in[0])), (ac_tensor *)(uintptr_t)user);
}

static ac_tensor *some_mask(oc_rig *r, int ndim, const int64_t *shape) {
  ac_tensor *u = oc_rand(r, AC_F64, ndim, shape), *m = NULL;
  assert_ok(ac_gt(r->c, T(u), F(0), &m, &r->e), r->e);
  ac_tensor_release(u);
  return m;
}

static void test_gradients(void **state) {
  static const int64_t dim = 1;
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  oc_check(&r, f_sort, NULL, oc_rand(&r, AC_F64, OC_SHAPE(4, 3)));
  oc_check(&r, f_topk, NULL, oc_rand(&r, AC_F64, OC_SHAPE(3, 5)));
  oc_check(&r, f_median, NULL, oc_rand(&r, AC_F64, OC_SHAPE(3, 3)));
  oc_check(&r, f_median, &dim, oc_rand(&r, AC_F64, OC_SHAPE(3, 4)));
  ac_tensor *m = some_mask(&r, OC_SHAPE(4, 3));
  oc_check(&r, f_masked, m, oc_rand(&r, AC_F64, OC_SHAPE(4, 3)));
  oc_check(&r, f_masked, m, oc_rand(&r, AC_F64, OC_SHAPE(4, 1))); /* x is repeated */
  ac_tensor_release(m);
  m = some_mask(&r, OC_SHAPE(3));
  oc_check(&r, f_masked, m, oc_rand(&r, AC_F64, OC_SHAPE(2, 4, 3)));
  ac_tensor_release(m);
  oc_close(&r);
}

/* ---- shapes that depend on data ---- */
static void test_sizes(void **state) {
  oc_rig r;
  ac_tensor *y, *at, *n;
  ac_device *meta;
  (void)state;
  oc_open(&r, 2);
  ac_tensor *x = oc_rand(&r, AC_F32, OC_SHAPE(50, 40)), *m = some_mask(&r, OC_SHAPE(50, 40)), *far, *far_mask;
  int64_t k = 0;
  for (int64_t i = 0; i < 2000; i++) k += oc_at(m, i) != 0;
  assert_ok(ac_masked_select(r.c, x, m, &y, &r.e), r.e);
  assert_true(y->numel == k && y->ndim == 1 && ac_storage_bytes(y->storage) < 2000 * 4);
  for (int64_t i = 0, j = 0; i < 2000; i++)
    if (oc_at(m, i) != 0) assert_true(oc_at(y, j++) == oc_at(x, i));
  ac_tensor_release(y);
  assert_ok(ac_nonzero(r.c, m, &y, &r.e), r.e);
  assert_true(y->ndim == 2 && y->shape[0] == k && y->shape[1] == 2);
  for (int64_t i = 0, j = 0; i < 2000; i++) {
    if (oc_at(m, i) == 0) continue;
    assert_true(oc_at(y, j) == (double)(i / 40) && oc_at(y, j + 1) == (double)(i % 40));
    j += 2;
  }
  ac_tensor_release(y);

  assert_ok(ac_ctx_device(r.c, "meta", &meta, &r.e), r.e); /* the bound, without bytes */
  assert_ok(ac_to(r.c, x, NULL, meta, &far, &r.e), r.e);
  assert_ok(ac_to(r.c, m, NULL, meta, &far_mask, &r.e), r.e);
  assert_ok(ac_masked_select(r.c, far, far_mask, &y, &r.e), r.e);
  assert_true(y->ndim == 1 && y->numel == 2000 && ac_tensor_data(y) == NULL);
  ac_tensor_release(y);
  assert_ok(ac_unique(r.c, far, NULL, true, NULL, NULL, &y, &at, &n, &r.e), r.e);
  assert_true(y->numel == 2000 && at->ndim == 2 && n->numel == 2000);
  ac_tensor_release(y);
  ac_tensor_release(at);
  ac_tensor_release(n);
  ac_tensor_release(far);
  ac_tensor_release(far_mask);
  ac_tensor_release(x);
  ac_tensor_release(m);
  oc_close(&r);
}

/* Every allocation of every op fails once: OOM, nothing is left, and the next call works. */
static void test_out_of_memory(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  ac_device *cpu = ac_ctx_default_device(r.c);
  ac_tensor *x = oc_rand(&r, AC_F32, OC_SHAPE(2, 70001)), *m = some_mask(&r, OC_SHAPE(2, 70001));
  const int64_t places[3] = {0, 4, 2}, dim = 0;
  ac_tensor *ids = oc_ints(&r, OC_SHAPE(3), places);
  for (int op = 0; op < 8; op++) {
    int64_t at = 1;
    for (ac_status st = AC_OOM; st != AC_OK; at++) {
      ac_tensor *y[3] = {0};
      int64_t before = ac_tensor_live();
      aci_pool_debug_set(cpu, false, at);
      if (op == 0) st = ac_sort(r.c, x, 1, false, false, &y[0], &y[1], &r.e);
      else if (op == 1) st = ac_topk(r.c, x, 3, 1, true, true, &y[0], &y[1], &r.e);
      else if (op == 2) st = ac_masked_select(r.c, x, m, &y[0], &r.e);
      else if (op == 3) st = ac_nonzero(r.c, x, &y[0], &r.e);
      else if (op == 4) st = ac_unique(r.c, x, NULL, true, NULL, NULL, &y[0], &y[1], &y[2], &r.e);
      else if (op == 7) st = ac_unique(r.c, x, &dim, true, NULL, NULL, &y[0], &y[1], &y[2], &r.e);
      else if (op == 5) st = ac_one_hot(r.c, ids, -1, &y[0], &r.e);
      else st = ac_bincount(r.c, ids, NULL, 0, &y[0], &r.e);
      aci_pool_debug_set(cpu, false, 0);
      assert_true(st == AC_OK || st == AC_OOM);
      if (st == AC_OOM) assert_true(y[0] == NULL && ac_tensor_live() == before);
      for (int i = 0; i < 3; i++) ac_tensor_release(y[i]);
      assert_true(at < 20);
    }
    assert_true(at > 2); /* it did fail */
  }
  ac_tensor_release(ids);
  ac_tensor_release(m);
  ac_tensor_release(x);
  oc_close(&r);
}

/* ---- another author's op ---- */
static ac_status bound(ac_frame *f, ac_err *e) { return aci_shape_like0(f, e); }
static ac_status forgets(ac_frame *f, ac_err *e) {
  (void)f, (void)e;
  return AC_OK;
}
/* With the public functions alone. */
static ac_status first_two(ac_frame *f, ac_err *e) {
  const int64_t two = 2;
  ac_tensor *t = NULL;
  AC_TRY(ac_tensor_new(f->device, ac_tensor_dtype(f->args[0].tensor), 1, &two, &t, e));
  memcpy(ac_tensor_data(t), ac_tensor_data(f->args[0].tensor), 8);
  ac_tensor_release(f->out[0]);
  f->out[0] = t;
  return AC_OK;
}
static const ac_op_desc forgetful = {.struct_size = sizeof(ac_op_desc), .name = "forgetful",
    .sig = "forgetful(x: tensor) -> dynamic", .shape = bound, .cpu = forgets, .nondiff = true};
static const ac_op_desc couple = {.struct_size = sizeof(ac_op_desc), .name = "couple",
    .sig = "couple(x: tensor) -> dynamic", .shape = bound, .cpu = first_two, .nondiff = true};

static void test_foreign(void **state) {
  oc_rig r;
  ac_value result;
  int n;
  (void)state;
  oc_open(&r, 1);
  ac_tensor *x = oc_rand(&r, AC_F32, OC_SHAPE(5));
  const ac_value arg = {.kind = AC_T_TENSOR, .tensor = x};
  assert_ok(ac_op_register(r.c, &forgetful, &r.e), r.e);
  assert_ok(ac_op_register(r.c, &couple, &r.e), r.e);
  assert_fails(ac_call(r.c, ac_op_find(r.c, "forgetful"), &arg, &result, &n, &r.e), INTERNAL, "without a size", r.e);
  assert_ok(ac_call(r.c, ac_op_find(r.c, "couple"), &arg, &result, &n, &r.e), r.e);
  assert_true(n == 1 && result.tensor->numel == 2 && oc_at(result.tensor, 1) == oc_at(x, 1));
  ac_tensor_release(result.tensor);
  ac_tensor_release(x);
  oc_close(&r);
}

static void test_errors(void **state) {
  oc_rig r;
  ac_tensor *y, *at, *n;
  ac_device *meta;
  (void)state;
  oc_open(&r, 1);
  ac_ctx_set_index_base(r.c, 1);
  ac_tensor *x = oc_rand(&r, AC_F32, OC_SHAPE(2, 3)), *far;
  ac_tensor *ids = oc_ints(&r, OC_SHAPE(2), (const int64_t[]){1, -4});
  assert_fails(ac_topk(r.c, x, 4, 1, true, true, &y, &at, &r.e), INVALID, "along dim 2", r.e);
  assert_fails(ac_sort(r.c, x, 2, false, false, &y, &at, &r.e), INDEX, "dim 3", r.e);
  assert_fails(ac_masked_select(r.c, x, x, &y, &r.e), DTYPE, "mask must be bool, got f32", r.e);
  assert_fails(ac_one_hot(r.c, ids, 3, &y, &r.e), INDEX, "holds -4 at (2)", r.e);
  assert_fails(ac_one_hot(r.c, ids, 0, &y, &r.e), INVALID, "num_classes is 0", r.e);
  assert_fails(ac_bincount(r.c, ids, NULL, 0, &y, &r.e), INDEX, "holds -4", r.e);
  assert_fails(ac_bincount(r.c, x, NULL, 0, &y, &r.e), DTYPE, "integers, got f32", r.e);
  assert_fails(ac_searchsorted(r.c, x, T(ids), false, false, NULL, NULL, &y, &r.e), DTYPE, "sorted_sequence holds f32 and values i64", r.e);
  assert_fails(ac_bucketize(r.c, T(x), x, false, false, &y, &r.e), SHAPE, "boundaries must have one dim, got shape (2, 3)", r.e);
  assert_ok(ac_ctx_device(r.c, "meta", &meta, &r.e), r.e);
  assert_ok(ac_to(r.c, ids, NULL, meta, &far, &r.e), r.e);
  assert_fails(ac_one_hot(r.c, far, -1, &y, &r.e), INVALID, "give num_classes", r.e);
  assert_fails(ac_bincount(r.c, far, NULL, 0, &y, &r.e), INVALID, "give minlength", r.e);
  ac_tensor_release(far);
  ac_dtype f8 = AC_F8_E4M3;
  assert_ok(ac_tensor_new(meta, f8, 0, NULL, &far, &r.e), r.e);
  assert_fails(ac_unique(r.c, far, NULL, true, NULL, NULL, &y, &at, &n, &r.e), DTYPE, "storage dtype", r.e);
  ac_tensor_release(far);
  ac_tensor_release(x);
  ac_tensor_release(ids);
  oc_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_order),   cmocka_unit_test(test_zeros),         cmocka_unit_test(test_gradients),
      cmocka_unit_test(test_sizes),   cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_foreign),
      cmocka_unit_test(test_errors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
