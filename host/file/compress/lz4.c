/* LZ4 files (frames) and blocks, by liblz4. */
#include "base/library.h"
#include "file/compress/compress.h"

#ifdef ACCEL_HAVE_LZ4
#include <limits.h>
#include <lz4frame.h>
#include <stdlib.h>

typedef struct library {
  size_t (*create)(LZ4F_dctx **, unsigned);
  size_t (*destroy)(LZ4F_dctx *);
  size_t (*step)(LZ4F_dctx *, void *, size_t *, const void *, size_t *,
                 const LZ4F_decompressOptions_t *);
  unsigned (*failed)(size_t);
  const char *(*text)(size_t);
} library;

typedef struct state {
  library lib;
  LZ4F_dctx *z;
} state;

static ac_status open_lz4(void **out, ac_err *e) {
  state *s = malloc(sizeof *s);
  if (s == NULL) return AC_FAIL(e, OOM, "no memory for liblz4");
  const aci_symbol list[] = {{"LZ4F_createDecompressionContext", &s->lib.create},
                             {"LZ4F_freeDecompressionContext", &s->lib.destroy},
                             {"LZ4F_decompress", &s->lib.step},
                             {"LZ4F_isError", &s->lib.failed},
                             {"LZ4F_getErrorName", &s->lib.text}};
  ac_status st = aci_library_open("lz4", list, 5, e);
  if (st == AC_OK && s->lib.failed(s->lib.create(&s->z, LZ4F_VERSION)))
    st = AC_FAIL(e, OOM, "no memory for liblz4");
  if (st != AC_OK) free(s);
  else *out = s;
  return st;
}

static ac_status step(void *p, aci_unpack_io *io, ac_err *e) {
  state *s = p;
  size_t used = io->n_in, made = io->n_out;
  const size_t rc = s->lib.step(s->z, io->out, &made, io->in, &used, NULL);
  if (s->lib.failed(rc)) return AC_FAIL(e, PARSE, "the LZ4 data is damaged (%s)", s->lib.text(rc));
  io->used = used;
  io->made = made;
  io->ended = rc == 0;
  return AC_OK;
}

static ac_status next(void *p, ac_err *e) { return AC_OK; } /* the decoder begins by itself */

static void close_lz4(void *p) {
  state *s = p;
  s->lib.destroy(s->z);
  free(s);
}

ac_status aci_block_lz4(const void *in, size_t n_in, void *out, size_t n_out, ac_err *e) {
  int (*block)(const char *, char *, int, int);
  AC_TRY(aci_library_open("lz4", &(aci_symbol){"LZ4_decompress_safe", &block}, 1, e));
  if (n_in > INT_MAX || n_out > INT_MAX) return AC_FAIL(e, PARSE, "an LZ4 block of over 2 GiB");
  const int rc = block(in, out, (int)n_in, (int)n_out);
  if (rc >= 0 && (size_t)rc == n_out) return AC_OK;
  return AC_FAIL(e, PARSE, "the LZ4 block is damaged or does not hold %zu bytes", n_out);
}

#define OPEN open_lz4
#else
#define OPEN NULL
#define step NULL
#define next NULL
#define close_lz4 NULL

ac_status aci_block_lz4(const void *in, size_t n_in, void *out, size_t n_out, ac_err *e) {
  return aci_library_absent("lz4", e);
}
#endif

/* A frame, or one that readers skip. */
static bool member(const unsigned char *p, size_t n) {
  return n >= 4 && p[3] == 0x18 &&
         ((p[0] == 0x04 && p[1] == 0x22 && p[2] == 0x4D) ||
          ((p[0] & 0xF0) == 0x50 && p[1] == 0x2A && p[2] == 0x4D));
}

const aci_unpacker aci_unpack_lz4 = {.name = "lz4",
                                     .library = "lz4",
                                     .open = OPEN,
                                     .step = step,
                                     .next = next,
                                     .close = close_lz4,
                                     .member = member};
