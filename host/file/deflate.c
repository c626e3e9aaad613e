/* Raw deflate data, as entries of zip archives have it, by zlib: array.h. */
#include <stdlib.h>

#include "base/library.h"
#include "file/array.h"

#ifdef ACCEL_HAVE_ZLIB
#include <zlib.h>

typedef struct library {
  int (*inflate_init)(z_streamp, int, const char *, int);
  int (*inflate)(z_streamp, int);
  int (*inflate_end)(z_streamp);
  int (*deflate_init)(z_streamp, int, int, int, int, int, const char *, int);
  int (*deflate)(z_streamp, int);
  int (*deflate_end)(z_streamp);
  uLong (*bound)(z_streamp, uLong);
} library;

enum { RAW = -15 };
#define MOST ((size_t)1 << 30) /* zlib counts in 32 bits */

static ac_status load(library *l, ac_err *e) {
  const aci_symbol symbols[] = {{"inflateInit2_", &l->inflate_init},
                                {"inflate", &l->inflate},
                                {"inflateEnd", &l->inflate_end},
                                {"deflateInit2_", &l->deflate_init},
                                {"deflate", &l->deflate},
                                {"deflateEnd", &l->deflate_end},
                                {"deflateBound", &l->bound}};
  return aci_library_open("zlib", symbols, sizeof symbols / sizeof *symbols, e);
}

/* Gives the stream the next pieces of what is left. */
static void feed(z_stream *z, size_t *in, size_t *out) {
  if (z->avail_in == 0) {
    z->avail_in = (uInt)(*in < MOST ? *in : MOST);
    *in -= z->avail_in;
  }
  if (z->avail_out == 0) {
    z->avail_out = (uInt)(*out < MOST ? *out : MOST);
    *out -= z->avail_out;
  }
}

ac_status aci_inflate(const void *in, size_t n_in, void *out, size_t n_out, ac_err *e) {
  library l;
  AC_TRY(load(&l, e));
  z_stream z = {.next_in = (Bytef *)(uintptr_t)in, .next_out = out};
  if (l.inflate_init(&z, RAW, ZLIB_VERSION, sizeof z) != Z_OK)
    return AC_FAIL(e, OOM, "out of memory");
  int rc = Z_OK;
  while (rc == Z_OK) {
    feed(&z, &n_in, &n_out);
    rc = l.inflate(&z, Z_NO_FLUSH);
  }
  const bool ended = rc == Z_STREAM_END && n_in == 0 && z.avail_in == 0;
  const bool full = n_out == 0 && z.avail_out == 0;
  l.inflate_end(&z);
  if (ended && full) return AC_OK;
  return AC_FAIL(e, PARSE, "its deflated data is damaged or has another length");
}

ac_status aci_deflate(const void *in, size_t n_in, void **out, size_t *n_out, ac_err *e) {
  library l;
  AC_TRY(load(&l, e));
  z_stream z = {.next_in = (Bytef *)(uintptr_t)in};
  if (l.deflate_init(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, RAW, 8, Z_DEFAULT_STRATEGY,
                     ZLIB_VERSION, sizeof z) != Z_OK)
    return AC_FAIL(e, OOM, "out of memory");
  const size_t most = l.bound(&z, n_in);
  size_t left = most;
  z.next_out = *out = malloc(most);
  int rc = *out == NULL ? Z_MEM_ERROR : Z_OK;
  while (rc == Z_OK) {
    feed(&z, &n_in, &left);
    rc = l.deflate(&z, n_in == 0 ? Z_FINISH : Z_NO_FLUSH);
  }
  *n_out = most - left - z.avail_out;
  l.deflate_end(&z);
  if (rc == Z_STREAM_END) return AC_OK;
  free(*out);
  *out = NULL;
  return AC_FAIL(e, OOM, "out of memory");
}
#else
ac_status aci_inflate(const void *in, size_t n_in, void *out, size_t n_out, ac_err *e) {
  (void)in, (void)n_in, (void)out, (void)n_out;
  return aci_library_absent("zlib", e);
}

ac_status aci_deflate(const void *in, size_t n_in, void **out, size_t *n_out, ac_err *e) {
  (void)in, (void)n_in, (void)out, (void)n_out;
  return aci_library_absent("zlib", e);
}
#endif
