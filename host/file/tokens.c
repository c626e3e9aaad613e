/* Token files: integers on disk, read by row offsets through the page cache. Called by the loader
 * of training text.
 *
 * pread and not a map: somebody who cuts a mapped file kills us with SIGBUS. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accel/file.h"
#include "file/io.h"
#include "tensor/tensor_impl.h"

struct ac_tokens {
  int fd;
  char *path;
  ac_dtype dt;
  uint64_t header;
  int64_t n;
};

ac_status ac_tokens_open(const char *path, ac_dtype dt, uint64_t header_bytes, ac_tokens **out,
                         ac_err *e) {
  size_t es = aci_dsize(dt);
  char shown[ACI_PATH_SHOWN];
  uint64_t bytes;
  int fd;
  *out = NULL;
  if (dt != AC_U8 && dt != AC_U16 && dt != AC_I32 && dt != AC_U32 && dt != AC_I64)
    return AC_FAIL(e, DTYPE, "%s: token files hold u8, u16, i32, u32 or i64, not %s",
                   aci_path_shown(path, shown), ac_dtype_name(dt));
  AC_TRY(aci_open_read(path, &fd, &bytes, e));
  if (bytes < header_bytes || (bytes - header_bytes) % es != 0) {
    close(fd);
    return AC_FAIL(e, PARSE,
                   "%s: %llu bytes are not a whole number of %s tokens after a header of %llu",
                   aci_path_shown(path, shown), (unsigned long long)bytes, ac_dtype_name(dt),
                   (unsigned long long)header_bytes);
  }
  ac_tokens *t = malloc(sizeof *t);
  char *copy = strdup(path);
  if (t == NULL || copy == NULL) {
    free(t);
    free(copy);
    close(fd);
    return AC_FAIL(e, OOM, "%s: no memory", aci_path_shown(path, shown));
  }
  *t = (ac_tokens){fd, copy, dt, header_bytes, (int64_t)((bytes - header_bytes) / es)};
  *out = t;
  return AC_OK;
}

void ac_tokens_close(ac_tokens *t) {
  if (t == NULL) return;
  close(t->fd);
  free(t->path);
  free(t);
}

int64_t ac_tokens_length(const ac_tokens *t) { return t->n; }

/* Widens in place: the row was read into the tail of its own place, so that writing never overtakes
 * reading. */
static void widen(ac_dtype dt, const void *src, int64_t *dst, int64_t n) {
#define WIDEN(T)                                                       \
  for (int64_t i = 0; i < n; i++) {                                    \
    T v;                                                               \
    memcpy(&v, (const char *)src + i * (int64_t)sizeof(T), sizeof(T)); \
    dst[i] = (int64_t)v;                                               \
  }                                                                    \
  break
  switch (dt) {
    case AC_U8: WIDEN(uint8_t);
    case AC_U16: WIDEN(uint16_t);
    case AC_I32: WIDEN(int32_t);
    case AC_U32: WIDEN(uint32_t);
    default: WIDEN(int64_t);
  }
#undef WIDEN
}

ac_status ac_tokens_read(const ac_tokens *t, int64_t n_rows, const int64_t *offset, int64_t len,
                         int64_t *out, ac_err *e) {
  size_t es = aci_dsize(t->dt);
  char shown[ACI_PATH_SHOWN];
  if (len < 0)
    return AC_FAIL(e, INDEX, "%s: rows of %lld tokens", aci_path_shown(t->path, shown),
                   (long long)len);
  for (int64_t r = 0; r < n_rows; r++)
    if (offset[r] < 0 || offset[r] > t->n - len)
      return AC_FAIL(e, INDEX,
                     "%s: row %lld asks for %lld tokens from token %lld on; there are %lld",
                     aci_path_shown(t->path, shown), (long long)r, (long long)len,
                     (long long)offset[r], (long long)t->n);
  for (int64_t r = 0; r < n_rows; r++) {
    int64_t *row = out + r * len;
    char *tail = (char *)row + (size_t)len * (8 - es);
    AC_TRY(aci_pread_all(t->fd, t->path, tail, (size_t)len * es,
                         t->header + (uint64_t)offset[r] * es, e));
    widen(t->dt, tail, row, len);
  }
  return AC_OK;
}
