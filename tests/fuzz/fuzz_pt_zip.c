/* Fuzz entry of the reader of torch.save files, both layouts: any bytes are refused by a named rule, or are
 * a file whose tensors lie in storages that can be read. Built with libFuzzer by clang, with driver.c
 * otherwise (CMakeLists.txt here). */
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
  REQUIRE(ac_device_open(ac_device_cpu_vtable(), 0, 1 << 26, NULL, &cpu, &e) == AC_OK);
}

/* The storage's bytes, and every tensor that looks at it as a view that the tensor stage takes. */
static void read_storage(ac_pt *f, int i) {
  ac_err e;
  ac_tensor *bytes = NULL;
  const int64_t n = (int64_t)ac_pt_storage_bytes(f, i);
  REQUIRE(ac_tensor_new(cpu, AC_U8, 1, &n, &bytes, &e) == AC_OK);
  const ac_status st = ac_pt_read(f, i, bytes, &e);
  REQUIRE(st == AC_OK || (st == AC_PARSE && strstr(e.msg, "rule ") != NULL));
  ac_tensor_release(bytes);
}

static void check_value(ac_pt *f, uint32_t id, int depth, int *budget) {
  const ac_pt_value *v = ac_pt_at(f, id);
  REQUIRE(v->kind < AC_PT_KINDS && depth <= 256);
  if ((*budget)-- < 0) return; /* shared values are met at every place */
  if (v->kind == AC_PT_TENSOR) {
    ac_err e;
    ac_tensor *bytes = NULL, *view = NULL;
    const ac_pt_tensor *t = ac_pt_tensor_at(f, v->i);
    REQUIRE(t->storage >= 0 && t->storage < ac_pt_n_storages(f));
    const int64_t n = (int64_t)ac_pt_storage_bytes(f, t->storage);
    if (!t->has_dtype) return;
    REQUIRE(ac_tensor_new(cpu, AC_U8, 1, &n, &bytes, &e) == AC_OK);
    REQUIRE(ac_tensor_view(ac_tensor_storage(bytes), t->dtype, t->ndim, t->shape, t->stride, t->offset, &view,
                           &e) == AC_OK);
    ac_tensor_release(view);
    ac_tensor_release(bytes);
  } else if (v->kind == AC_PT_WIDE_INT) {
    char *digits = ac_pt_decimal(v);
    REQUIRE(digits != NULL && strlen(digits) > 18);
    free(digits);
  } else if (v->kind == AC_PT_LIST || v->kind == AC_PT_TUPLE || v->kind == AC_PT_SET ||
             v->kind == AC_PT_DICT) {
    for (uint32_t i = 0; i < v->n; i++) check_value(f, v->item[i], depth + 1, budget);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  ac_err e;
  ac_pt *f;
  int budget = 10000;
  open_once();
  REQUIRE(ftruncate(mem, (off_t)n) == 0 && pwrite(mem, data, n, 0) == (ssize_t)n);
  const ac_status st = ac_pt_open(path, &f, &e);
  if (st != AC_OK) {
    REQUIRE(st == AC_PARSE && f == NULL &&
            strstr(e.msg, "not a torch.save file that can be read: rule ") != NULL);
    return 0;
  }
  uint64_t all = 0;
  for (int i = 0; i < ac_pt_n_storages(f); i++) {
    all += ac_pt_storage_bytes(f, i);
    read_storage(f, i);
  }
  REQUIRE(all <= n);
  check_value(f, ac_pt_root(f), 0, &budget);
  ac_pt_close(f);
  REQUIRE(ac_tensor_live() == 0);
  return 0;
}
