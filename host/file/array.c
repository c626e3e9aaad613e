/* Arrays of one dtype in a file, read or mapped: array.h. */
#include "file/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "file/io.h"
#include "tensor/tensor_impl.h"

typedef struct mapping {
  void *base;
  size_t bytes;
} mapping;

static void unmap(void *user) {
  mapping *m = user;
  munmap(m->base, m->bytes);
  free(m);
}

static ac_status map(ac_device *cpu, int fd, const char *path, const aci_array *a, uint64_t bytes,
                     ac_tensor **out, ac_err *e) {
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), before = a->at % page;
  mapping *m = malloc(sizeof *m);
  if (m == NULL) return AC_FAIL(e, OOM, "out of memory");
  m->bytes = (size_t)(bytes + before);
  m->base = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd,
                 (off_t)(a->at - before));
  if (m->base == MAP_FAILED) {
    free(m);
    return aci_io_error(e, path, "cannot map", errno);
  }
  const ac_status st =
      ac_tensor_wrap(cpu, a->dtype, a->ndim, a->shape, (char *)m->base + before, unmap, m, out, e);
  if (st != AC_OK) unmap(m);
  return st;
}

static void swap_bytes(unsigned char *p, uint64_t bytes, int unit) {
  for (uint64_t i = 0; i + (uint64_t)unit <= bytes; i += (uint64_t)unit)
    for (int k = 0; k < unit / 2; k++) {
      const unsigned char c = p[i + (uint64_t)k];
      p[i + (uint64_t)k] = p[i + (uint64_t)(unit - 1 - k)];
      p[i + (uint64_t)(unit - 1 - k)] = c;
    }
}

static ac_status fill(ac_device *cpu, int fd, const char *path, const aci_array *a, uint64_t bytes,
                      ac_tensor **out, ac_err *e) {
  AC_TRY(ac_tensor_new(cpu, a->dtype, a->ndim, a->shape, out, e));
  if (bytes == 0) return AC_OK;
  unsigned char *p = ac_tensor_data(*out);
  const ac_status st = aci_read_blocks(fd, path, p, bytes, a->at, cpu->team, NULL, e);
  if (st == AC_OK && a->swap > 1) swap_bytes(p, bytes, a->swap);
  if (st == AC_OK) return st;
  ac_tensor_release(*out);
  *out = NULL;
  return st;
}

ac_status aci_array_read(ac_device *cpu, const char *path, const aci_array *a, ac_tensor **out,
                         ac_err *e) {
  int fd;
  uint64_t size, bytes = (uint64_t)ac_dtype_bytes(a->dtype);
  char shown[ACI_PATH_SHOWN];
  *out = NULL;
  AC_TRY(aci_open_read(path, &fd, &size, e));
  bool empty = false;
  for (int d = 0; d < a->ndim; d++) empty = empty || a->shape[d] == 0;
  bool fits = a->at <= size;
  for (int d = 0; fits && !empty && d < a->ndim; d++) {
    fits = (uint64_t)a->shape[d] <= size / bytes;
    bytes *= (uint64_t)a->shape[d];
  }
  if (empty) bytes = 0;
  ac_status st;
  if (!fits || bytes > size - a->at)
    st = AC_FAIL(e, PARSE, "%s: the file ends before its values do: %llu bytes from byte %llu on",
                 aci_path_shown(path, shown),
                 (unsigned long long)(a->at <= size ? size - a->at : 0), (unsigned long long)a->at);
  else if (a->map && bytes > 0 && a->swap <= 1 && a->at % (uint64_t)ac_dtype_bytes(a->dtype) == 0)
    st = map(cpu, fd, path, a, bytes, out, e);
  else st = fill(cpu, fd, path, a, bytes, out, e);
  close(fd);
  return st;
}
