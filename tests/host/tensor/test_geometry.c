/* Shapes and strides: views against PyTorch's (reference/tensor/cases.py), overlap and contiguity against counting
 * addresses, broadcasting, and sizes that do not fit. */
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#include "tensor/geometry.h"

typedef struct view_case {
  int ndim;
  int64_t shape[4], stride[4];
  int new_ndim;
  int64_t new_shape[4];
  int exists;
  int64_t new_stride[4];
} view_case;

#include "reference/tensor/view_cases.h"

/* A tensor with these strides and no bytes. */
static ac_tensor *strided(int ndim, const int64_t *shape, const int64_t *stride) {
  ac_tensor *t = aci_tensor_shell(NULL, AC_F32, ndim, shape);
  assert_non_null(t);
  if (stride != NULL) memcpy(aci_stride_mut(t), stride, (size_t)ndim * sizeof *stride);
  return t;
}

static void views_as_pytorch(void **state) {
  for (size_t k = 0; k < sizeof view_cases / sizeof view_cases[0]; k++) {
    const view_case *c = &view_cases[k];
    int64_t stride[4] = {-1, -1, -1, -1};
    char from[100], to[100];
    ac_tensor *t = strided(c->ndim, c->shape, c->stride);
    bool exists = aci_view_strides(t, c->new_ndim, c->new_shape, stride);
    aci_shape_str(c->ndim, c->shape, from, sizeof from);
    aci_shape_str(c->new_ndim, c->new_shape, to, sizeof to);
    if (exists != (c->exists != 0)) fail_msg("%s as %s: case %zu", from, to, k);
    /* the stride of a dim with one element means nothing */
    for (int i = 0; exists && i < c->new_ndim; i++)
      if (c->new_shape[i] > 1 && stride[i] != c->new_stride[i])
        fail_msg("%s as %s: case %zu, dim %d", from, to, k, i);
    ac_tensor_release(t);
  }
}

static void refuses_views_of_other_sizes(void **state) {
  ac_tensor *t = strided(2, (int64_t[]){2, 3}, NULL);
  int64_t stride[3];
  assert_false(aci_view_strides(t, 1, (int64_t[]){5}, stride));
  assert_false(aci_view_strides(t, 1, (int64_t[]){-6}, stride));
  assert_false(aci_view_strides(t, 2, (int64_t[]){-2, -3}, stride));
  assert_false(aci_view_strides(t, 3, (int64_t[]){0, 2, 3}, stride));
  ac_tensor_release(t);
}

/* Marks every address that an element has. */
static void count_addresses(const ac_tensor *t, int *hits, int n_hits, bool *twice, bool *in_order) {
  memset(hits, 0, (size_t)n_hits * sizeof *hits);
  *twice = false;
  *in_order = true;
  for (int64_t i = 0; i < t->numel; i++) {
    int64_t at = aci_position(t, i);
    assert_true(at >= 0 && at < n_hits);
    if (hits[at]++ > 0) *twice = true;
    *in_order = *in_order && at == i;
  }
}

static void random_geometry(void **state) {
  enum { REACH = 1 << 12 };
  static int hits[REACH];
  uint64_t seed = 11;
  int n_overlap = 0, n_conservative = 0;
  for (int k = 0; k < 20000; k++) {
    int64_t shape[4], stride[4];
    int ndim = (int)(ac_test_random(&seed) % 5);
    for (int i = 0; i < ndim; i++) {
      shape[i] = (int64_t)(ac_test_random(&seed) % 5);
      stride[i] = (int64_t)(ac_test_random(&seed) % 14);
    }
    if (ac_test_random(&seed) % 2) aci_contiguous_strides(ndim, shape, stride);
    bool twice, in_order;
    ac_tensor *t = strided(ndim, shape, stride);
    count_addresses(t, hits, REACH, &twice, &in_order);
    assert_int_equal(aci_is_contiguous(t), in_order);
    if (twice) assert_true(aci_overlaps_self(t)); /* never missed */
    n_overlap += twice;
    n_conservative += aci_overlaps_self(t) && !twice;
    int64_t last = -1;
    for (int i = 0; i < REACH; i++)
      if (hits[i] > 0) last = i;
    assert_true(aci_span(ndim, shape, stride) == last + 1);
    ac_tensor_release(t);
  }
  assert_true(n_overlap > 1000 && n_conservative > 0);
}

static void overlap_is_exact_for_expand_and_permute(void **state) {
  static const struct {
    int64_t shape[3], stride[3];
    bool want;
  } rows[] = {{{2, 3, 4}, {12, 4, 1}, false}, {{4, 3, 2}, {1, 4, 12}, false}, {{3, 2, 4}, {0, 4, 1}, true},
              {{1, 2, 4}, {0, 4, 1}, false},  {{3, 1, 1}, {0, 0, 0}, true},   {{3, 0, 2}, {0, 0, 0}, false},
              {{2, 3, 4}, {50, 8, 2}, false}, {{1, 1, 1}, {7, 7, 7}, false}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    ac_tensor *t = strided(3, rows[i].shape, rows[i].stride);
    assert_int_equal(aci_overlaps_self(t), rows[i].want);
    ac_tensor_release(t);
  }
}

static void broadcasts(void **state) {
  static const struct {
    int na, nb, n; /* n < 0: does not fit */
    int64_t a[3], b[3], out[3];
  } rows[] = {{2, 1, 2, {2, 3}, {3}, {2, 3}},
              {1, 2, 2, {3}, {2, 1}, {2, 3}},
              {0, 2, 2, {0}, {4, 5}, {4, 5}},
              {2, 0, 2, {4, 5}, {0}, {4, 5}},
              {3, 3, 3, {2, 1, 4}, {1, 3, 1}, {2, 3, 4}},
              {1, 1, 1, {0}, {1}, {0}},
              {2, 2, 2, {0, 3}, {1, 3}, {0, 3}},
              {1, 1, -1, {0}, {2}, {0}},
              {2, 2, -1, {2, 3}, {3, 2}, {0}},
              {1, 2, -1, {2}, {2, 3}, {0}}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    ac_err e;
    int64_t shape[AC_MAX_DIMS];
    int n = rows[i].na;
    memcpy(shape, rows[i].a, sizeof rows[i].a);
    ac_tensor *b = strided(rows[i].nb, rows[i].b, NULL);
    if (rows[i].n < 0) {
      assert_fails(aci_broadcast(&n, shape, b, &e), SHAPE, "cannot be broadcast", e);
      assert_int_equal(n, rows[i].na);
      assert_memory_equal(shape, rows[i].a, sizeof rows[i].a);
    } else {
      assert_ok(aci_broadcast(&n, shape, b, &e), e);
      assert_int_equal(n, rows[i].n);
      assert_memory_equal(shape, rows[i].out, (size_t)n * sizeof shape[0]);
    }
    ac_tensor_release(b);
  }
  ac_err e;
  int64_t shape[AC_MAX_DIMS] = {4, 3};
  int n = 2;
  ac_tensor *b = strided(2, (int64_t[]){5, 3}, NULL);
  assert_fails(aci_broadcast(&n, shape, b, &e), SHAPE, "(4, 3) and (5, 3)", e);
  ac_tensor_release(b);
}

static void sizes_that_do_not_fit(void **state) {
  ac_err e;
  const int64_t big = (int64_t)1 << 40;
  assert_true(aci_numel(3, (int64_t[]){2, 3, 4}) == 24);
  assert_true(aci_numel(0, NULL) == 1);
  assert_true(aci_numel(2, (int64_t[]){big, big}) == -1);
  assert_true(aci_numel(3, (int64_t[]){big, 0, 3}) == 0);
  assert_true(aci_numel(3, (int64_t[]){big, big, 0}) == -1); /* its strides could not be counted */
  assert_true(aci_numel(1, (int64_t[]){-1}) == -1);
  assert_true(aci_numel(2, (int64_t[]){0, -1}) == -1);
  assert_true(aci_span(2, (int64_t[]){2, 2}, (int64_t[]){big, 1}) == big + 2);
  assert_true(aci_span(1, (int64_t[]){big}, (int64_t[]){big}) == -1);
  assert_true(aci_span(1, (int64_t[]){2}, (int64_t[]){-1}) == -1);
  assert_fails(aci_shape_check(2, (int64_t[]){big, big}, &e), SHAPE, "more elements", e);
  assert_fails(aci_shape_check(2, (int64_t[]){2, -3}, &e), SHAPE, "(2, -3) has a negative extent", e);
  int64_t many[AC_MAX_DIMS + 1] = {0};
  assert_fails(aci_shape_check(AC_MAX_DIMS + 1, many, &e), SHAPE, "at most 16 dims", e);
  assert_ok(aci_shape_check(AC_MAX_DIMS, many, &e), e);
  /* a shell may be made of anything; it stays without bytes */
  ac_tensor *t = strided(2, (int64_t[]){big, big}, NULL);
  assert_true(t->numel == -1);
  assert_fails(aci_tensor_alloc(t, AC_MEM_ACTIVATION, &e), SHAPE, "more elements", e);
  ac_tensor_release(t);
}

static void writes_shapes(void **state) {
  char buf[64];
  assert_string_equal(aci_shape_str(0, NULL, buf, sizeof buf), "()");
  assert_string_equal(aci_shape_str(1, (int64_t[]){3}, buf, sizeof buf), "(3)");
  assert_string_equal(aci_shape_str(3, (int64_t[]){2, 0, 12}, buf, sizeof buf), "(2, 0, 12)");
  for (size_t n = 1; n < 20; n++) { /* never beyond the buffer, always with an end */
    char *small = malloc(n);
    aci_shape_str(3, (int64_t[]){1000, 2000, 3000}, small, n);
    assert_true(strlen(small) < n);
    free(small);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(views_as_pytorch), cmocka_unit_test(refuses_views_of_other_sizes),
      cmocka_unit_test(random_geometry),  cmocka_unit_test(overlap_is_exact_for_expand_and_permute),
      cmocka_unit_test(broadcasts),       cmocka_unit_test(sizes_that_do_not_fit),
      cmocka_unit_test(writes_shapes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
