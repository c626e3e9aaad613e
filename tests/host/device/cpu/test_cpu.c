/* Memory of the CPU device: large segments of parameters ask the system for huge pages, others do not.
 * tier: every change */
#include "support/test.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "device/device_impl.h"

/* Whether the mapping that holds p has this flag in the system's list of mappings; -1: it is not listed. */
static int has_flag(const void *p, const char *flag) {
  FILE *f = fopen("/proc/self/smaps", "r");
  char line[512];
  bool inside = false;
  int found = -1;
  if (f == NULL) return -1;
  while (found < 0 && fgets(line, sizeof line, f) != NULL) {
    unsigned long long lo, hi;
    if (sscanf(line, "%llx-%llx ", &lo, &hi) == 2) inside = (uintptr_t)p >= lo && (uintptr_t)p < hi;
    else if (inside && strncmp(line, "VmFlags:", 8) == 0) found = strstr(line, flag) != NULL;
  }
  fclose(f);
  return found;
}

static int flag_of(ac_device *d, ac_mem_class class, size_t bytes) {
  ac_err e;
  ac_block *b = NULL;
  assert_ok(ac_block_alloc(d, bytes, class, NULL, &b, &e), e);
  memset(b->ptr, 1, 4096);
  const int has = has_flag(b->ptr, " hg");
  ac_block_free(b);
  return has;
}

static void huge_pages(void **state) {
  (void)state;
  ac_err e;
  ac_device *d = NULL;
  assert_ok(ac_device_open(ac_device_cpu_vtable(), 0, 0, NULL, &d, &e), e);
  FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
  const int most = flag_of(d, AC_MEM_PARAMETER, (size_t)48 << 20);
  if (f == NULL || most < 0) {
    print_message("skipped: this system has no huge pages, or does not tell\n");
  } else {
    assert_int_equal(most, 1);
    assert_int_equal(flag_of(d, AC_MEM_ACTIVATION, (size_t)48 << 20), 0);
  }
  if (f != NULL) fclose(f);
  ac_device_release(d);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(huge_pages)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
