/* Fuzz entry of the pickles of torch.save: the input is the data.pkl of an archive with two storages, or,
 * behind a first byte of 'M', the metadata of torch.distributed.checkpoint. It is refused by a named rule,
 * or a tree of plain values and tensors. Built with libFuzzer by clang, with driver.c otherwise
 * (CMakeLists.txt here). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../host/file/pt_archive.h"
#include "file/pt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define REQUIRE(x) \
  if (!(x)) (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), abort())

static ac_device *cpu;

/* Bytes of every storage: in the archive, in the pickle, and converted from another. */
static void read_storages(ac_pt *f) {
  ac_err e;
  if (cpu == NULL) REQUIRE(ac_device_open(ac_device_cpu_vtable(), 0, 1 << 26, NULL, &cpu, &e) == AC_OK);
  for (int i = 0; i < ac_pt_n_storages(f) && i < 100; i++) {
    ac_tensor *bytes;
    const int64_t n = (int64_t)ac_pt_storage_bytes(f, i);
    REQUIRE(ac_tensor_new(cpu, AC_U8, 1, &n, &bytes, &e) == AC_OK);
    const ac_status st = ac_pt_read(f, i, bytes, &e);
    REQUIRE(st == AC_OK || st == AC_PARSE); /* a uint64 that is too large */
    ac_tensor_release(bytes);
  }
}

static const char *in_memory(const void *p, size_t n) {
  static int fd = -1;
  static char path[40];
  if (fd < 0) fd = memfd_create("fuzz", MFD_CLOEXEC);
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  REQUIRE(ftruncate(fd, (off_t)n) == 0 && pwrite(fd, p, n, 0) == (ssize_t)n);
  return path;
}

static void check_value(ac_pt *f, uint32_t id, int depth, int *budget) {
  const ac_pt_value *v = ac_pt_at(f, id);
  REQUIRE(v->kind < AC_PT_KINDS && depth <= 256);
  if ((*budget)-- < 0) return; /* shared values are met at every place */
  uint64_t sum = 0;
  if (v->kind == AC_PT_STR || v->kind == AC_PT_BYTES || v->kind == AC_PT_DTYPE)
    for (uint32_t i = 0; i < v->n; i++) sum += (unsigned char)v->s[i]; /* every byte is there */
  REQUIRE(sum <= (uint64_t)v->n * 255);
  if (v->kind == AC_PT_TENSOR) {
    const ac_pt_tensor *t = ac_pt_tensor_at(f, v->i);
    int64_t last = t->offset, numel = 1;
    for (int d = 0; d < t->ndim; d++) {
      REQUIRE(t->shape[d] >= 0 && t->stride[d] >= 0);
      numel *= t->shape[d] != 0;
    }
    for (int d = 0; d < t->ndim && numel > 0; d++) last += (t->shape[d] - 1) * t->stride[d];
    REQUIRE(numel == 0 || !t->has_dtype ||
            (uint64_t)(last + 1) * ac_dtype_bytes(t->dtype) <= ac_pt_storage_bytes(f, t->storage));
  }
  if (v->kind == AC_PT_WIDE_INT) {
    char *digits = ac_pt_decimal(v);
    REQUIRE(digits != NULL);
    free(digits);
  }
  if (v->kind == AC_PT_LIST || v->kind == AC_PT_TUPLE || v->kind == AC_PT_SET || v->kind == AC_PT_DICT ||
      v->kind == AC_PT_OBJECT || v->kind == AC_PT_COMPLEX)
    for (uint32_t i = 0; i < v->n; i++) check_value(f, v->item[i], depth + 1, budget);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static pt_bytes o;
  ac_err e;
  ac_pt *f;
  ac_status st;
  int budget = 10000;
  if (n > 0 && data[0] == 'M') {
    st = aci_pt_open_metadata(in_memory(data + 1, n - 1), &f, &e);
  } else {
    if (n > sizeof o.b - 1024) return 0;
    pt_archive a = {0};
    pt_entry x[] = {PT_ENTRY("a/data.pkl", data, n), PT_ENTRY("a/data/0", pt_four, sizeof pt_four),
                    PT_ENTRY("a/data/1", pt_four, 8)};
    pt_put(&o, &a, x, 3);
    st = ac_pt_open(in_memory(o.b, o.n), &f, &e);
  }
  if (st != AC_OK) {
    REQUIRE(st == AC_PARSE && f == NULL &&
            strstr(e.msg, "not a torch.save file that can be read: rule ") != NULL);
    return 0;
  }
  check_value(f, ac_pt_root(f), 0, &budget);
  read_storages(f);
  ac_pt_close(f);
  return 0;
}
