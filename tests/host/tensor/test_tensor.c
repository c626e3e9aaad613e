/* Tensors and storages: who frees what and when, bounds of views, elements, foreign and provided memory, and that nothing is
 * left behind. */
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/tensor_impl.h"

static ac_device *cpu, *meta;

static int open_devices(void **state) {
  ac_err e;
  return ac_device_open(ac_device_cpu_vtable(), 0, 1 << 24, NULL, &cpu, &e) != AC_OK ||
         ac_device_open(ac_device_meta_vtable(), 0, 0, NULL, &meta, &e) != AC_OK;
}
static int close_devices(void **state) {
  ac_device_release(cpu);
  ac_device_release(meta);
  return 0;
}
/* After every test: no tensor, no byte. */
static int nothing_left(void **state) {
  ac_mem_stats stats;
  ac_mem_stats_get(cpu, &stats);
  return ac_tensor_live() != 0 || stats.live_bytes != 0 || stats.live_blocks != 0;
}

static void makes_and_counts(void **state) {
  ac_err e;
  ac_tensor *t = NULL;
  ac_mem_stats stats;
  assert_ok(ac_tensor_new(cpu, AC_F32, 3, (int64_t[]){2, 3, 4}, &t, &e), e);
  assert_int_equal(ac_tensor_live(), 1);
  assert_int_equal(ac_tensor_ndim(t), 3);
  assert_int_equal(ac_tensor_numel(t), 24);
  assert_int_equal(ac_tensor_dtype(t), AC_F32);
  assert_int_equal(ac_tensor_offset(t), 0);
  assert_ptr_equal(ac_tensor_device(t), cpu);
  assert_memory_equal(ac_tensor_shape(t), ((int64_t[]){2, 3, 4}), 3 * sizeof(int64_t));
  assert_memory_equal(ac_tensor_stride(t), ((int64_t[]){12, 4, 1}), 3 * sizeof(int64_t));
  assert_true(ac_tensor_is_contiguous(t));
  assert_int_equal(ac_storage_bytes(ac_tensor_storage(t)), 96);
  assert_int_equal((uintptr_t)ac_tensor_data(t) % 64, 0);
  ac_mem_stats_get(cpu, &stats);
  assert_int_equal(stats.live_bytes, 128); /* rounded up to 64 */
  ac_tensor_retain(t);
  ac_tensor_release(t);
  assert_int_equal(ac_tensor_live(), 1);
  ac_tensor_release(t);
  ac_tensor_release(NULL);
}

static void makes_small_and_empty(void **state) {
  ac_err e;
  ac_tensor *t = NULL;
  ac_scalar v;
  assert_ok(ac_tensor_from_host(cpu, AC_I32, 0, NULL, &(int32_t){-7}, &t, &e), e);
  assert_int_equal(ac_tensor_numel(t), 1);
  assert_ok(ac_tensor_item(t, 0, &v, &e), e);
  assert_true(v.kind == AC_SCALAR_INT && v.i == -7);
  assert_fails(ac_tensor_item(t, 1, &v, &e), INDEX, "element 1 of a tensor with 1 elements", e);
  ac_tensor_release(t);
  assert_ok(ac_tensor_from_host(cpu, AC_F64, 2, (int64_t[]){3, 0}, NULL, &t, &e), e);
  assert_int_equal(ac_tensor_numel(t), 0);
  assert_true(ac_tensor_is_contiguous(t));
  assert_fails(ac_tensor_item(t, 0, &v, &e), INDEX, "0 elements", e);
  ac_tensor_release(t);
}

static void refuses_bad_shapes(void **state) {
  ac_err e;
  ac_tensor *t = (ac_tensor *)&e;
  const int64_t big = (int64_t)1 << 40, many[17] = {0};
  assert_fails(ac_tensor_new(cpu, AC_F32, 2, (int64_t[]){2, -1}, &t, &e), SHAPE, "negative", e);
  assert_null(t);
  assert_fails(ac_tensor_new(cpu, AC_F32, 2, (int64_t[]){big, big}, &t, &e), SHAPE, "more elements", e);
  assert_fails(ac_tensor_new(cpu, AC_F32, 17, many, &t, &e), SHAPE, "at most 16", e);
  assert_fails(ac_tensor_new(cpu, AC_F32, 1, (int64_t[]){big}, &t, &e), OOM, "",
               e); /* the device's limit is 16 MiB */
  assert_fails(ac_tensor_wrap(cpu, AC_F32, 1, (int64_t[]){-1}, &e, NULL, NULL, &t, &e), SHAPE, "negative", e);
  assert_null(t);
}

static void items_of_every_dtype(void **state) {
  static const struct {
    ac_dtype d;
    uint64_t bits;
    ac_scalar want;
  } rows[] = {{AC_F64, 0x3ff8000000000000, {AC_SCALAR_FLOAT, {.f = 1.5}}},
              {AC_F32, 0xc0200000, {AC_SCALAR_FLOAT, {.f = -2.5}}},
              {AC_F16, 0x3e00, {AC_SCALAR_FLOAT, {.f = 1.5}}},
              {AC_BF16, 0x3fc0, {AC_SCALAR_FLOAT, {.f = 1.5}}},
              {AC_I64, UINT64_MAX, {AC_SCALAR_INT, {.i = -1}}},
              {AC_I32, 0x80000000, {AC_SCALAR_INT, {.i = INT32_MIN}}},
              {AC_I16, 0xffff, {AC_SCALAR_INT, {.i = -1}}},
              {AC_I8, 0x80, {AC_SCALAR_INT, {.i = -128}}},
              {AC_U8, 0x80, {AC_SCALAR_INT, {.i = 128}}},
              {AC_BOOL, 1, {AC_SCALAR_BOOL, {.i = 1}}},
              {AC_U16, 0xffff, {AC_SCALAR_INT, {.i = 65535}}},
              {AC_U32, 0xffffffff, {AC_SCALAR_INT, {.i = 4294967295}}},
              {AC_F8_E4M3, 0x3c, {AC_SCALAR_FLOAT, {.f = 1.5}}},
              {AC_F8_E5M2, 0x3e, {AC_SCALAR_FLOAT, {.f = 1.5}}}};
  assert_int_equal(sizeof rows / sizeof rows[0], AC_C64); /* an item is one number */
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    ac_err e;
    ac_tensor *t = NULL;
    ac_scalar v;
    assert_ok(ac_tensor_from_host(cpu, rows[i].d, 1, (int64_t[]){1}, &rows[i].bits, &t, &e),
              e); /* little-endian host */
    assert_ok(ac_tensor_item(t, 0, &v, &e), e);
    assert_int_equal(v.kind, rows[i].want.kind);
    assert_true(v.kind == AC_SCALAR_FLOAT ? v.f == rows[i].want.f : v.i == rows[i].want.i);
    ac_tensor_release(t);
  }
}

static void views_see_their_storage(void **state) {
  ac_err e;
  ac_tensor *t = NULL, *v = NULL;
  ac_scalar x;
  float data[12];
  for (int i = 0; i < 12; i++) data[i] = (float)i;
  assert_ok(ac_tensor_from_host(cpu, AC_F32, 1, (int64_t[]){12}, data, &t, &e), e);
  ac_storage *s = ac_tensor_storage(t);
  assert_ok(ac_tensor_view(s, AC_F32, 2, (int64_t[]){3, 2}, (int64_t[]){1, 5}, 4, &v, &e), e);
  ac_tensor_release(t); /* the view keeps the bytes */
  for (int i = 0; i < 6; i++) {
    assert_ok(ac_tensor_item(v, i, &x, &e), e);
    assert_true(x.f == 4 + i / 2 + 5 * (i % 2));
  }
  assert_false(ac_tensor_is_contiguous(v));
  ac_tensor *w = aci_tensor_detach(v);
  assert_ptr_equal(w->storage, s);
  assert_int_equal(w->offset, 4);
  ac_tensor_release(v);
  assert_true(*(float *)ac_tensor_data(w) == 4);
  ac_tensor_release(w);
}

static void views_stay_inside(void **state) {
  ac_err e;
  ac_storage *s = NULL;
  ac_tensor *t = NULL;
  const int64_t big = (int64_t)1 << 40;
  assert_ok(ac_storage_new(cpu, 40, AC_MEM_ACTIVATION, &s, &e), e); /* ten f32 */
  static const struct {
    int ndim;
    int64_t shape[2], stride[2], offset;
    bool fits;
  } rows[] = {{1, {10}, {1}, 0, true},         {1, {10}, {1}, 1, false},
              {1, {11}, {1}, 0, false},        {1, {5}, {2}, 1, true},
              {1, {5}, {2}, 2, false},         {2, {2, 3}, {7, 1}, 0, true},
              {2, {2, 3}, {7, 1}, 1, false},   {1, {1000}, {0}, 9, true},
              {1, {1}, {1}, 10, false},        {1, {0}, {1}, 10, true},
              {1, {0}, {1}, 11, false},        {0, {0}, {0}, 9, true},
              {0, {0}, {0}, 10, false},        {1, {2}, {INT64_MAX}, 0, false},
              {1, {1}, {INT64_MAX}, 0, true},  {2, {2, 2}, {INT64_MAX, INT64_MAX}, 0, false},
              {1, {1}, {1}, INT64_MAX, false}, {1, {3}, {INT64_MAX / 2}, 5, false}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    ac_status st =
        ac_tensor_view(s, AC_F32, rows[i].ndim, rows[i].shape, rows[i].stride, rows[i].offset, &t, &e);
    if (st != (rows[i].fits ? AC_OK : AC_INVALID)) fail_msg("row %zu: status %d", i, (int)st);
    ac_tensor_release(t);
  }
  assert_fails(ac_tensor_view(s, AC_F32, 1, (int64_t[]){2}, (int64_t[]){-1}, 5, &t, &e), INVALID, "negative",
               e);
  assert_fails(ac_tensor_view(s, AC_F32, 1, (int64_t[]){2}, NULL, -1, &t, &e), INVALID, "negative", e);
  assert_fails(ac_tensor_view(s, AC_F32, 1, (int64_t[]){-2}, NULL, 0, &t, &e), SHAPE, "negative", e);
  assert_fails(ac_tensor_view(s, AC_F32, 2, (int64_t[]){big, big}, (int64_t[]){0, 0}, 0, &t, &e), SHAPE,
               "more elements", e);
  assert_fails(ac_tensor_view(s, AC_F64, 1, (int64_t[]){6}, NULL, 0, &t, &e), INVALID, "5 elements", e);
  assert_null(t);
  ac_storage_release(s);
}

static int n_freed;
static void count_free(void *user) { n_freed += user == &n_freed; }

static void wraps_foreign_memory(void **state) {
  ac_err e;
  ac_tensor *t = NULL, *v = NULL;
  _Alignas(8) char bytes[48];
  n_freed = 0;
  assert_ok(ac_tensor_wrap(cpu, AC_F64, 2, (int64_t[]){2, 3}, bytes, count_free, &n_freed, &t, &e), e);
  assert_ptr_equal(ac_tensor_data(t), bytes);
  v = aci_tensor_alias(t, 1, (int64_t[]){3}, (int64_t[]){1}, 3);
  assert_ptr_equal(ac_tensor_data(v), bytes + 24);
  ac_tensor_release(t);
  assert_int_equal(n_freed, 0);
  ac_tensor_release(v);
  assert_int_equal(n_freed, 1);
  /* a failure leaves the memory with the caller */
  assert_fails(ac_tensor_wrap(cpu, AC_F64, 1, (int64_t[]){2}, bytes + 4, count_free, &n_freed, &t, &e),
               INVALID, "multiple of 8", e);
  assert_fails(ac_tensor_wrap(cpu, AC_F64, 1, (int64_t[]){2}, NULL, count_free, &n_freed, &t, &e), INVALID,
               "no address", e);
  assert_int_equal(n_freed, 1);
}

typedef struct source {
  double value[3];
  int n_acquired, n_released, n_freed;
  bool broken;
} source;

static ac_status acquire(ac_storage *s, void **ptr, ac_err *e) {
  source *p = s->impl;
  if (p->broken) return AC_FAIL(e, IO, "the disk is gone");
  p->n_acquired++;
  *ptr = p->value;
  return AC_OK;
}
static void release(ac_storage *s, bool written) {
  assert_false(written);
  ((source *)s->impl)->n_released++;
}
static void free_source(ac_storage *s) { ((source *)s->impl)->n_freed++; }

static void reads_provided_memory(void **state) {
  static const ac_provider p = {sizeof p, "test", acquire, release, free_source};
  static const ac_provider old = {.struct_size = 8, .name = "old"};
  source src = {.value = {1, 2, 3}};
  ac_err e;
  ac_storage *s = NULL;
  ac_tensor *t = NULL;
  ac_scalar v;
  assert_fails(ac_storage_provided(cpu, 24, &old, NULL, &s, &e), INVALID, "'old'", e);
  assert_ok(ac_storage_provided(cpu, 24, &p, &src, &s, &e), e);
  assert_ok(ac_tensor_view(s, AC_F64, 1, (int64_t[]){2}, NULL, 1, &t, &e), e);
  assert_null(ac_tensor_data(t));
  assert_ok(ac_tensor_item(t, 1, &v, &e), e);
  assert_true(v.f == 3);
  src.broken = true;
  assert_fails(ac_tensor_item(t, 1, &v, &e), IO, "the disk is gone", e);
  ac_storage_release(s);
  assert_int_equal(src.n_freed, 0);
  ac_tensor_release(t);
  assert_true(src.n_acquired == 1 && src.n_released == 1 && src.n_freed == 1);
}

static void frees_derived_copies(void **state) {
  ac_err e;
  ac_tensor *t = NULL;
  assert_ok(ac_tensor_new(cpu, AC_F32, 1, (int64_t[]){100}, &t, &e), e);
  for (uint32_t kind = 0; kind < 3; kind++) {
    aci_derived *d = calloc(1, sizeof *d);
    d->kind = kind;
    d->next = t->storage->derived;
    assert_ok(ac_storage_new(cpu, 64, AC_MEM_ACTIVATION, &d->storage, &e), e);
    t->storage->derived = d;
  }
  ac_tensor_release(t);
}

static void meta_has_shapes_only(void **state) {
  ac_err e;
  ac_tensor *t = NULL;
  ac_scalar v;
  assert_ok(ac_tensor_from_host(meta, AC_F32, 2, (int64_t[]){2, 2}, (float[]){1, 2, 3, 4}, &t, &e), e);
  assert_null(ac_tensor_data(t));
  assert_fails(ac_tensor_item(t, 0, &v, &e), DEVICE, "meta", e);
  ac_tensor_release(t);
}

static int n_dropped;
static void drop(ac_tensor *t) {
  n_dropped++;
  ac_tensor *g = t->grad;
  t->grad = NULL;
  ac_tensor_release(g);
}

static void drops_gradient_state_once(void **state) {
  ac_err e;
  ac_tensor *t = NULL, *g = NULL, *plain = NULL;
  void (*before)(ac_tensor *) = aci_tensor_drop_autograd;
  aci_tensor_drop_autograd = drop;
  n_dropped = 0;
  assert_ok(ac_tensor_new(cpu, AC_F32, 1, (int64_t[]){4}, &t, &e), e);
  assert_ok(ac_tensor_new(cpu, AC_F32, 1, (int64_t[]){4}, &g, &e), e);
  assert_ok(ac_tensor_new(cpu, AC_F32, 1, (int64_t[]){4}, &plain, &e), e);
  t->grad = g;
  ac_tensor_release(plain);
  assert_int_equal(n_dropped, 0);
  ac_tensor_release(t);
  assert_int_equal(n_dropped, 1);
  aci_tensor_drop_autograd = before;
}

static void shells_get_bytes_for_their_strides(void **state) {
  ac_err e;
  ac_tensor *t = aci_tensor_shell(cpu, AC_F32, 2, (int64_t[]){3, 4});
  aci_stride_mut(t)[0] = 1; /* column order */
  aci_stride_mut(t)[1] = 3;
  assert_null(ac_tensor_data(t));
  assert_ok(aci_tensor_alloc(t, AC_MEM_ACTIVATION, &e), e);
  assert_int_equal(ac_storage_bytes(t->storage), 48);
  char text[80];
  assert_string_equal(aci_tensor_str(t, text, sizeof text), "f32 (3, 4) on cpu");
  ac_tensor_release(t);
}

/* A block keeps the device's struct, foreign memory the device itself; once it was closed it takes no more of that. */
static void outlives_its_device(void **state) {
  ac_err e;
  ac_device *d = NULL;
  ac_tensor *t = NULL, *later = NULL, *w = NULL;
  ac_storage *s = NULL;
  float mine[2] = {1, 2};
  assert_ok(ac_device_open(ac_device_cpu_vtable(), 0, 1 << 24, NULL, &d, &e), e);
  assert_ok(ac_tensor_wrap(d, AC_F32, 1, (int64_t[]){2}, mine, NULL, NULL, &w, &e), e);
  assert_ok(ac_tensor_new(d, AC_F32, 1, (int64_t[]){100}, &t, &e), e);
  ac_device_release(d);
  assert_ok(ac_storage_wrap(d, mine, sizeof mine, NULL, NULL, &s, &e), e); /* w holds it open */
  ac_storage_release(s);
  ac_tensor_release(w);
  assert_fails(ac_storage_wrap(d, mine, sizeof mine, NULL, NULL, &s, &e), DEVICE, "cpu was closed", e);
  assert_ok(ac_tensor_new(d, AC_F32, 1, (int64_t[]){1 << 16}, &later, &e), e);
  memset(ac_tensor_data(later), 1, 4 << 16);
  ac_tensor_release(t);
  assert_string_equal(ac_device_name(ac_tensor_device(later)), "cpu");
  ac_tensor_release(later); /* the last one takes the pool along: a leak shows here */
}

#define TEST(f) cmocka_unit_test_teardown(f, nothing_left)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(makes_and_counts),     TEST(makes_small_and_empty),     TEST(refuses_bad_shapes),
      TEST(items_of_every_dtype), TEST(views_see_their_storage),   TEST(views_stay_inside),
      TEST(wraps_foreign_memory), TEST(reads_provided_memory),     TEST(frees_derived_copies),
      TEST(meta_has_shapes_only), TEST(drops_gradient_state_once), TEST(shells_get_bytes_for_their_strides),
      TEST(outlives_its_device)};
  return cmocka_run_group_tests(tests, open_devices, close_devices);
}
