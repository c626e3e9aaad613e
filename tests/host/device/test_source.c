/* ac_device_set_source: memory of one class from elsewhere, while it is in use, when it is replaced, after
 * the device is closed. */
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#include "device/pool.h"

typedef struct source {
  int maps, unmaps, frees;
  size_t mapped;
  bool refuses;
} source;

static ac_status map(void *user, size_t bytes, void **out, ac_err *e) {
  source *s = user;
  if (s->refuses) return AC_FAIL(e, OOM, "the source has no more");
  s->maps++;
  s->mapped += bytes;
  *out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return AC_OK;
}

static void unmap(void *user, void *p, size_t bytes) {
  source *s = user;
  assert_int_equal(s->frees, 0);
  s->unmaps++;
  s->mapped -= bytes;
  free(p);
}

static void done(void *user) { ((source *)user)->frees++; }

static ac_mem_source of(source *s) { return (ac_mem_source){sizeof(ac_mem_source), map, unmap, done, s}; }

static ac_device *open_cpu(void) {
  ac_device *d;
  ac_err e;
  assert_ok(ac_device_open(ac_device_cpu_vtable(), 0, 0, NULL, &d, &e), e);
  return d;
}

static ac_block *take(ac_device *d, size_t bytes, ac_mem_class c) {
  ac_block *b;
  ac_err e;
  assert_ok(ac_block_alloc(d, bytes, c, NULL, &b, &e), e);
  memset(ac_block_ptr(b), 1, bytes);
  return b;
}

static void only_its_class(void **state) {
  ac_device *d = open_cpu();
  source s = {0};
  ac_mem_source m = of(&s);
  ac_err e;
  ac_block *before = take(d, 100000, AC_MEM_PARAMETER);
  assert_ok(ac_device_set_source(d, AC_MEM_PARAMETER, &m, &e), e);
  ac_block *other = take(d, 5 << 20, AC_MEM_ACTIVATION);
  assert_int_equal(s.maps, 0);
  ac_block *large = take(d, 64 << 20, AC_MEM_PARAMETER), *small = take(d, 100, AC_MEM_PARAMETER);
  assert_int_equal(s.maps, 2);
  ac_block_free(before); /* to the system, not to the source */
  ac_pool_trim(d);
  assert_int_equal(s.unmaps, 0);
  ac_block_free(large);
  ac_pool_trim(d);
  assert_int_equal(s.unmaps, 1);
  ac_block_free(small);
  ac_block_free(other);
  ac_device_release(d);
  assert_int_equal(s.unmaps, 2);
  assert_int_equal(s.mapped, 0);
  assert_int_equal(s.frees, 1);
}

static void replaced_in_use(void **state) {
  ac_device *d = open_cpu();
  source s = {0}, t = {0};
  ac_mem_source m = of(&s), n = of(&t);
  ac_err e;
  assert_ok(ac_device_set_source(d, AC_MEM_PARAMETER, &m, &e), e);
  ac_block *a = take(d, 1 << 20, AC_MEM_PARAMETER);
  assert_ok(ac_device_set_source(d, AC_MEM_PARAMETER, &n, &e), e);
  ac_block *b = take(d, 64 << 20, AC_MEM_PARAMETER);
  assert_int_equal(t.maps, 1);
  assert_ok(ac_device_set_source(d, AC_MEM_PARAMETER, NULL, &e), e);
  assert_int_equal(s.frees + t.frees, 0);
  ac_block_free(b);
  ac_pool_trim(d);
  assert_int_equal(t.frees, 1);
  ac_device_release(d); /* a lives on */
  assert_int_equal(s.frees, 0);
  memset(ac_block_ptr(a), 2, 1 << 20);
  ac_block_free(a);
  assert_int_equal(s.frees, 1);
  assert_int_equal(s.mapped, 0);
}

static void unused(void **state) {
  ac_device *d = open_cpu();
  source s = {0};
  ac_mem_source m = of(&s);
  ac_err e;
  assert_ok(ac_device_set_source(d, AC_MEM_PARAMETER, &m, &e), e);
  assert_ok(ac_device_set_source(d, AC_MEM_PARAMETER, NULL, &e), e);
  assert_int_equal(s.frees, 1);
  ac_device_release(d);
  assert_int_equal(s.frees, 1);
}

/* What a module offers serves where nobody has set a source, and ends with it alone. */
static void offered(void **state) {
  ac_device *d = open_cpu();
  source own = {0}, module = {0};
  const ac_mem_source m = of(&own), n = of(&module);
  ac_err e;
  assert_true(aci_pool_offer_source(d, AC_MEM_PARAMETER, &n));
  aci_pool_withdraw_source(d, AC_MEM_PARAMETER, &module);
  assert_int_equal(module.frees, 1);
  ac_block_free(take(d, 100000, AC_MEM_PARAMETER));
  assert_true(module.maps == 0 && own.maps == 0);

  assert_ok(ac_device_set_source(d, AC_MEM_PARAMETER, &m, &e), e);
  assert_false(aci_pool_offer_source(d, AC_MEM_PARAMETER, &n));
  aci_pool_withdraw_source(d, AC_MEM_PARAMETER, &module); /* it was not taken */
  ac_block_free(take(d, 100000, AC_MEM_PARAMETER));
  assert_true(own.maps == 1 && own.frees == 0);

  assert_ok(ac_device_set_source(d, AC_MEM_PARAMETER, NULL, &e), e);
  module.frees = 0;
  assert_true(aci_pool_offer_source(d, AC_MEM_PARAMETER, &n));
  source later = {0};
  const ac_mem_source k = of(&later);
  assert_ok(ac_device_set_source(d, AC_MEM_PARAMETER, &k, &e), e); /* the host program's comes in between */
  aci_pool_withdraw_source(d, AC_MEM_PARAMETER, &module);
  ac_block_free(take(d, 100000, AC_MEM_PARAMETER));
  assert_true(later.maps == 1 && later.frees == 0 && module.frees == 1);
  ac_device_release(d);
}

static void refusals(void **state) {
  ac_device *d = open_cpu();
  source s = {.refuses = true};
  ac_mem_source m = of(&s);
  ac_err e;
  ac_block *b;
  assert_ok(ac_device_set_source(d, AC_MEM_PARAMETER, &m, &e), e);
  assert_fails(ac_block_alloc(d, 100000, AC_MEM_PARAMETER, NULL, &b, &e), OOM, "the source has no more", e);
  s.refuses = false;
  b = take(d, 100000, AC_MEM_PARAMETER);
  ac_block_free(b);
  m.struct_size = 8;
  assert_fails(ac_device_set_source(d, AC_MEM_PARAMETER, &m, &e), INVALID, "another version", e);
  ac_device_release(d);
  assert_ok(ac_device_open(ac_device_meta_vtable(), 0, 0, NULL, &d, &e), e);
  assert_fails(ac_device_set_source(d, AC_MEM_PARAMETER, NULL, &e), DEVICE, "meta", e);
  ac_device_release(d);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(only_its_class), cmocka_unit_test(replaced_in_use),
                                     cmocka_unit_test(unused), cmocka_unit_test(offered), cmocka_unit_test(refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
