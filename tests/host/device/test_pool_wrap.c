/* Blocks of memory that is somebody else's: counted and limited as the pool's own, never written, born or handed out by it.
 * tier: every change, memory */
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#include "device/pool.h"

enum { MIB = 1 << 20 };

static ac_mem_stats stats(const ac_device *d) {
  ac_mem_stats s;
  ac_mem_stats_get(d, &s);
  return s;
}

static ac_device *opened(const ac_device_vtable *vt, size_t limit) {
  ac_device *d;
  ac_err e;
  assert_ok(ac_device_open(vt, 0, limit, NULL, &d, &e), e);
  return d;
}

static void counts(void **state) {
  (void)state;
  unsigned char *memory = malloc(MIB);
  ac_block *b;
  ac_err e;
  for (int meta = 0; meta < 2; meta++) {
    ac_device *d = opened(meta ? ac_device_meta_vtable() : ac_device_cpu_vtable(), 0);
    memset(memory, 5, MIB);
    aci_pool_debug_set(d, true, 0); /* poison */
    assert_ok(aci_block_wrap(d, meta ? NULL : memory, MIB - 10, &b, &e), e);
    assert_ptr_equal(ac_block_ptr(b), meta ? NULL : memory);
    ac_mem_stats s = stats(d);
    assert_true(s.live_bytes == MIB && s.live_blocks == 1 && s.reserved_bytes == MIB && s.peak_bytes == MIB && s.born_bytes == 0 && s.n_maps == 0);
    assert_false(aci_pool_is_diverted(d, b));
    ac_block_free(b);
    s = stats(d);
    assert_true(s.live_bytes == 0 && s.live_blocks == 0 && s.reserved_bytes == 0 && s.peak_bytes == MIB);
    for (int i = 0; i < MIB; i++) assert_int_equal(memory[i], 5);
    aci_pool_debug_set(d, false, 2);
    assert_ok(aci_block_wrap(d, memory, 1, &b, &e), e);
    ac_block *c;
    assert_fails(aci_block_wrap(d, memory, 1, &c, &e), OOM, "ACCEL_ALLOC_FAIL", e);
    aci_pool_debug_set(d, false, 0);
    ac_device_release(d);
    ac_block_free(b); /* keeps the pool, as any block */
  }
  free(memory);
}

static void limited(void **state) {
  (void)state;
  static unsigned char memory[64];
  ac_device *d = opened(ac_device_cpu_vtable(), (size_t)64 * MIB);
  ac_block *own, *b, *c;
  ac_err e;
  assert_ok(aci_block_wrap(d, memory, (size_t)40 * MIB, &b, &e), e);
  assert_fails(aci_block_wrap(d, memory, (size_t)25 * MIB, &c, &e), OOM, "asked for 25 MiB, 40 MiB live in 1 blocks", e);
  assert_null(c);
  assert_fails(ac_block_alloc(d, (size_t)25 * MIB, AC_MEM_ACTIVATION, NULL, &own, &e), OOM, "limit 64 MiB", e);
  assert_ok(ac_block_alloc(d, (size_t)20 * MIB, AC_MEM_ACTIVATION, NULL, &own, &e), e);
  ac_block_free(b);
  assert_fails(aci_block_wrap(d, memory, (size_t)45 * MIB, &b, &e), OOM, "20 MiB live", e);
  ac_block_free(own); /* cached by the pool: it makes room */
  assert_ok(aci_block_wrap(d, memory, (size_t)64 * MIB, &b, &e), e);
  assert_int_equal(stats(d).reserved_bytes, (size_t)64 * MIB);
  ac_block_free(b);
  ac_device_release(d);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(counts), cmocka_unit_test(limited)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
