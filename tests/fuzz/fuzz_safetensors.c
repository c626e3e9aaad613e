/* Fuzz entry of the safetensors reader: any bytes are either refused by a named rule or a file whose
 * tensors tile its data and can be read. Built with libFuzzer by clang, with driver.c otherwise
 * (CMakeLists.txt here). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "accel/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define REQUIRE(x) \
  if (!(x)) (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), abort())

static ac_device *cpu;
static int mem = -1;
static char path[40];

static void open_once(void) {
  ac_err e;
  if (mem >= 0) return;
  mem = memfd_create("fuzz", MFD_CLOEXEC);
  REQUIRE(mem >= 0);
  snprintf(path, sizeof path, "/proc/self/fd/%d", mem);
  REQUIRE(ac_device_open(ac_device_cpu_vtable(), 0, 1 << 24, NULL, &cpu, &e) == AC_OK);
}

static void read_one(ac_safetensors *f, const ac_safetensors_entry *t) {
  ac_err e;
  ac_tensor *x = NULL;
  if (!t->has_dtype || t->ndim > AC_MAX_DIMS) return;
  if (ac_tensor_new(cpu, t->dtype, t->ndim, t->shape, &x, &e) != AC_OK) return; /* empty, but of 2^62 rows */
  ac_status st = ac_safetensors_read(f, t, x, &e);
  REQUIRE(st == AC_OK || (st == AC_PARSE && strstr(e.msg, "rule R15") != NULL));
  ac_tensor_release(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  ac_err e;
  ac_safetensors *f;
  open_once();
  REQUIRE(ftruncate(mem, (off_t)n) == 0 && pwrite(mem, data, n, 0) == (ssize_t)n);
  ac_status st = ac_safetensors_open(path, &f, &e);
  if (st != AC_OK) {
    REQUIRE(st == AC_PARSE && f == NULL && strstr(e.msg, "not a valid safetensors file: rule R") != NULL);
    return 0;
  }
  uint64_t at = 0;
  for (int i = 0; i < ac_safetensors_count(f); i++) {
    const ac_safetensors_entry *t = ac_safetensors_at(f, i);
    REQUIRE(t->begin == at && t->end >= at && t->end <= n);
    at = t->end;
    REQUIRE(ac_safetensors_find(f, t->name) == t);
    read_one(f, t);
  }
  uint64_t header = 0;
  for (int i = 7; i >= 0; i--) header = header << 8 | data[i];
  REQUIRE(8 + header + at == n);
  for (int i = 0; i < ac_safetensors_n_metadata(f); i++) {
    const char *k, *v;
    ac_safetensors_metadata(f, i, &k, &v);
    REQUIRE(strlen(k) <= header && strlen(v) <= header);
  }
  ac_safetensors_close(f);
  REQUIRE(ac_tensor_live() == 0);
  return 0;
}
