/* What the tests of torch.save files share: files in memory, and refusals looked at closely. Archives are
 * built by pt_archive.h. */
#ifndef ACCEL_TESTS_HOST_FILE_PT_FILE_H
#define ACCEL_TESTS_HOST_FILE_PT_FILE_H
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "accel/file.h"
#include "host/file/pt_archive.h"

/* ---- looking at it: files in memory, opened by their /proc path ---- */
static inline const char *pt_mem(const void *p, size_t n) {
  static int fd = -1;
  static char path[40];
  if (fd < 0) {
    fd = memfd_create("pt", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  }
  assert_true(fd >= 0 && ftruncate(fd, (off_t)n) == 0 && pwrite(fd, p, n, 0) == (ssize_t)n);
  return path;
}

static inline void pt_expect(ac_status st, const ac_err *e, const char *rule, uint64_t at, const char *says,
                             const char *what) {
  char expected[120];
  snprintf(expected, sizeof expected,
           ": not a torch.save file that can be read: rule %s at byte %llu: ", rule, (unsigned long long)at);
  if (st != AC_PARSE) fail_msg("%s: gives %s, not a breach of %s", what, ac_status_name(st), rule);
  if (strstr(e->msg, expected) == NULL || strstr(e->msg, says) == NULL)
    fail_msg("%s: says \"%s\", not \"%s\" and \"%s\"", what, e->msg, expected, says);
}

static inline void pt_refused(const pt_bytes *o, const char *rule, uint64_t at, const char *says,
                              const char *what) {
  ac_err e;
  ac_pt *f = (ac_pt *)&e;
  const ac_status st = ac_pt_open(pt_mem(o->b, o->n), &f, &e);
  assert_null(f);
  pt_expect(st, &e, rule, at, says, what);
}

/* Reads all storages; the first fault. */
static inline ac_status pt_read_all(ac_pt *f, ac_device *cpu, ac_err *e) {
  for (int i = 0; i < ac_pt_n_storages(f); i++) {
    ac_tensor *t;
    const int64_t n = (int64_t)ac_pt_storage_bytes(f, i);
    ac_status st = ac_tensor_new(cpu, AC_U8, 1, &n, &t, e);
    assert_int_equal(st, AC_OK);
    st = ac_pt_read(f, i, t, e);
    ac_tensor_release(t);
    if (st != AC_OK) return st;
  }
  return AC_OK;
}

#endif
