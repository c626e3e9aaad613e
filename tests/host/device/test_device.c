/* Opening devices, copies and fills over the team, and the instruction sets of our clones. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/cpu/arm.h"
#include "device/cpu/isa.h"
#include "device/device_impl.h"

static ac_err e;

static void opening(void **state) {
  (void)state;
  ac_device *d;
  assert_int_equal(ac_device_open(ac_device_cpu_vtable(), 1, 0, NULL, &d, &e), AC_DEVICE);
  assert_null(d);
  assert_int_equal(ac_device_open(ac_device_meta_vtable(), 0, 0, NULL, &d, &e), AC_OK);
  assert_string_equal(ac_device_name(d), "meta");
  assert_int_equal(ac_device_kind_of(d), AC_DEV_META);
  assert_int_equal(ac_device_index(d), 0);
  assert_int_equal(ac_device_sync(d, &e), AC_OK);
  ac_device_release(d);
  ac_device_release(NULL);
  ac_device_vtable old = *ac_device_cpu_vtable();
  old.struct_size -= sizeof(void *);
  assert_int_equal(ac_device_open(&old, 0, 0, NULL, &d, &e), AC_DEVICE);
}

/* A device of a module: open may fail, close runs once, after the last block. */
static int opened, closed;
static ac_status open_fails(ac_device *dev, ac_err *err) {
  opened++;
  return AC_FAIL(err, DEVICE, "no %s here", dev->name);
}
static ac_status open_works(ac_device *dev, ac_err *err) {
  (void)err;
  opened++;
  dev->impl = &opened;
  return AC_OK;
}
static void close_counts(ac_device *dev) {
  assert_ptr_equal(dev->impl, &opened);
  closed++;
}

static ac_status open_nothing(const ac_params *p, int index, ac_team *team, ac_device **out, ac_err *err) {
  (void)p, (void)index, (void)team, (void)out;
  return AC_FAIL(err, UNSUPPORTED, "not by this way");
}
static const ac_device_provider fake = {.struct_size = sizeof fake, .name = "fake", .open = open_nothing};

static void a_modules_device(void **state) {
  (void)state;
  ac_device_vtable vt = *ac_device_cpu_vtable();
  vt.single = false;
  vt.name = "fake";
  vt.open = open_fails;
  vt.close = close_counts;
  ac_device *d;
  ac_device_kind kind;
  assert_int_equal(ac_device_open(&vt, 2, 0, NULL, &d, &e), AC_DEVICE);
  assert_string_equal(e.msg, "no provider of device 'fake' is registered");
  assert_int_equal(ac_device_register(&fake, &kind, &e), AC_OK);
  assert_int_equal(ac_device_open(&vt, 2, 0, NULL, &d, &e), AC_DEVICE);
  assert_string_equal(e.msg, "no fake:2 here");
  vt.open = open_works;
  assert_int_equal(ac_device_open(&vt, 2, 0, NULL, &d, &e), AC_OK);
  assert_string_equal(ac_device_name(d), "fake:2");
  assert_int_equal(ac_device_kind_of(d), kind);
  ac_block *b;
  assert_int_equal(ac_block_alloc(d, 1000, AC_MEM_PARAMETER, NULL, &b, &e), AC_OK);
  ac_device_release(d);
  assert_int_equal(closed, 0);
  ac_block_free(b);
  assert_int_equal(closed, 1);
  assert_int_equal(opened, 2);
}

static void copies_and_fills(void **state) {
  (void)state;
  ac_team *t;
  ac_device *d;
  assert_int_equal(ac_team_new(3, &t, &e), AC_OK);
  assert_int_equal(ac_device_open(ac_device_cpu_vtable(), 0, 0, t, &d, &e), AC_OK);
  /* around a piece, and past the size from which stores bypass the caches; odd starts and ends */
  static const size_t sizes[] = {0, 1, 63, 64, 4097, (1 << 20) - 1, (3 << 20) + 17, (33 << 20) + 101};
  size_t most = (33 << 20) + 1000;
  unsigned char *a = malloc(most), *b = malloc(most);
  for (size_t i = 0; i < most; i++) a[i] = (unsigned char)(i * 2654435761u >> 13);
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    size_t n = sizes[s], da = 3 + s, db = 64 + 5 * s;
    memset(b, 0x5A, n + 300);
    assert_int_equal(d->vt->copy(d, NULL, b + db, a + da, n, &e), AC_OK);
    assert_int_equal(memcmp(b + db, a + da, n), 0);
    for (size_t i = 0; i < 40; i++) assert_true(b[db - 1 - i] == 0x5A && b[db + n + i] == 0x5A);
    assert_int_equal(d->vt->fill(d, NULL, b + db, 0xC3, n, &e), AC_OK);
    size_t wrong = 0;
    for (size_t i = 0; i < n; i++) wrong += b[db + i] != 0xC3;
    assert_int_equal(wrong, 0);
    for (size_t i = 0; i < 40; i++) assert_true(b[db - 1 - i] == 0x5A && b[db + n + i] == 0x5A);
  }
  /* overlapping: as memmove, both ways */
  size_t n = 5 << 20;
  memcpy(b, a, most);
  assert_int_equal(d->vt->copy(d, NULL, b + 1000, b, n, &e), AC_OK);
  assert_int_equal(memcmp(b + 1000, a, n), 0);
  memcpy(b, a, most);
  assert_int_equal(d->vt->copy(d, NULL, b, b + 1000, n, &e), AC_OK);
  assert_int_equal(memcmp(b, a + 1000, n), 0);
  free(a);
  free(b);
  ac_device_release(d);
  ac_team_free(t);
}

/* One body in three clones; each must run wherever aci_cpu_isa() chooses it. */
AC_ISA_FN(axpy, (float *y, const float *x, int64_t n, float a), (y, x, n, a)) {
  for (int64_t i = 0; i < n; i++) y[i] = y[i] + a * x[i];
}

static int isa_under(const char *value) {
  int fd[2];
  assert_int_equal(pipe(fd), 0);
  pid_t pid = fork(); /* the choice is made once per process */
  if (pid == 0) {
    if (value == NULL) unsetenv("ACCEL_CPU_ISA");
    else setenv("ACCEL_CPU_ISA", value, 1);
    float x[37], y[37];
    for (int i = 0; i < 37; i++) x[i] = (float)i, y[i] = 1;
    axpy(y, x, 37, 2);
    int isa = aci_cpu_isa();
    for (int i = 0; i < 37; i++)
      if (y[i] != 1 + 2 * (float)i) isa = -2;
    _exit(write(fd[1], &isa, sizeof isa) != (ssize_t)sizeof isa);
  }
  int isa = -1, status;
  close(fd[1]);
  if (read(fd[0], &isa, sizeof isa) != (ssize_t)sizeof isa) isa = -3;
  close(fd[0]);
  waitpid(pid, &status, 0);
  return isa;
}

static void the_instruction_set_can_be_lowered(void **state) {
  (void)state;
  int best = isa_under(NULL);
#if defined(__aarch64__)
  assert_int_equal(best, ACI_ISA_NEON);
  assert_int_equal(isa_under("neon"), best);
#else
  assert_true(best >= ACI_ISA_BASE && best <= ACI_ISA_AVX512);
  assert_int_equal(isa_under("avx2"), best < ACI_ISA_AVX2 ? best : ACI_ISA_AVX2);
  assert_int_equal(isa_under("avx512"), best); /* never raised above what is there */
#endif
  assert_int_equal(isa_under("base"), ACI_ISA_BASE);
  assert_int_equal(isa_under("auto"), best);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_instruction_set_can_be_lowered), /* forks before there are threads */
      cmocka_unit_test(opening),
      cmocka_unit_test(a_modules_device),
      cmocka_unit_test(copies_and_fills),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
