/* Fuzz entry of the reader of GGUF files: any bytes are refused by a named rule, or are a file whose values lie inside it and whose
 * tensors can be read. Built with libFuzzer by clang, with driver.c otherwise (CMakeLists.txt here). */
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
static uint64_t sum; /* bytes that were looked at, so that sanitizers see every one */

static void open_once(void) {
  ac_err e;
  if (mem >= 0) return;
  mem = memfd_create("fuzz", MFD_CLOEXEC);
  REQUIRE(mem >= 0);
  snprintf(path, sizeof path, "/proc/self/fd/%d", mem);
  REQUIRE(ac_device_open(ac_device_cpu_vtable(), 0, 1 << 26, NULL, &cpu, &e) == AC_OK);
}

static void touch(const unsigned char *p, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) sum += p[i];
}

static void check_value(const ac_gguf_value *v) {
  static const int bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  REQUIRE(v->kind <= AC_GGUF_F64 && v->key[0] != 0 && strlen(v->key) <= 1024);
  if (v->kind == AC_GGUF_STRING) {
    touch(v->at, v->n);
  } else if (v->kind != AC_GGUF_ARRAY) {
    touch(v->at, (uint64_t)bytes[v->kind]);
  } else if (v->item_kind != AC_GGUF_STRING) {
    REQUIRE(v->item_kind <= AC_GGUF_F64 && v->item_kind != AC_GGUF_ARRAY);
    touch(v->at, v->n * (uint64_t)bytes[v->item_kind]);
  } else {
    const unsigned char *p = v->at;
    for (uint64_t i = 0; i < v->n; i++) {
      uint64_t len = 0;
      for (int k = 7; k >= 0; k--) len = len << 8 | p[k];
      touch(p, 8 + len);
      p += 8 + len;
    }
  }
}

/* 0: the device has no room for it */
static int read_tensor(ac_gguf *f, int i) {
  const ac_gguf_entry *t = ac_gguf_tensor(f, i);
  ac_tensor *out = NULL;
  ac_err e;
  ac_status st = ac_tensor_new(cpu, t->dtype, t->ndim, t->shape, &out, &e);
  if (st != AC_OK) {
    REQUIRE(st == AC_OOM || st == AC_SHAPE);
    return 0;
  }
  st = ac_gguf_read(f, i, out, &e);
  REQUIRE(st == AC_OK);
  if (st == AC_OK) touch(ac_tensor_data(out), (uint64_t)ac_tensor_numel(out) * ac_dtype_bytes(t->dtype));
  ac_tensor_release(out);
  return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  ac_err e;
  ac_gguf *f;
  open_once();
  REQUIRE(ftruncate(mem, (off_t)n) == 0 && pwrite(mem, data, n, 0) == (ssize_t)n);
  const ac_status st = ac_gguf_open(path, &f, &e);
  if (st != AC_OK) {
    REQUIRE(st == AC_PARSE && f == NULL && strstr(e.msg, "not a GGUF file that can be read: rule ") != NULL);
    return 0;
  }
  uint64_t all = 0;
  for (int i = 0; i < ac_gguf_n_meta(f); i++) {
    const ac_gguf_value *v = ac_gguf_meta(f, i);
    check_value(v);
    REQUIRE(ac_gguf_find_meta(f, v->key) == v);
  }
  for (int i = 0; i < ac_gguf_n_tensors(f); i++) {
    all += ac_gguf_tensor(f, i)->bytes;
    read_tensor(f, i);
  }
  REQUIRE(all <= n);
  ac_gguf_close(f);
  REQUIRE(ac_tensor_live() == 0);
  return 0;
}
