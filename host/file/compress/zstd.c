/* Zstandard files and blocks, by libzstd. */
#include "base/library.h"
#include "file/compress/compress.h"

#ifdef ACCEL_HAVE_ZSTD
#include <stdlib.h>
#include <zstd.h>

typedef struct library {
  ZSTD_DStream *(*create)(void);
  size_t (*destroy)(ZSTD_DStream *);
  size_t (*limit)(ZSTD_DCtx *, ZSTD_dParameter, int);
  size_t (*step)(ZSTD_DStream *, ZSTD_outBuffer *, ZSTD_inBuffer *);
  size_t (*block)(void *, size_t, const void *, size_t);
  unsigned (*failed)(size_t);
  const char *(*text)(size_t);
} library;

typedef struct state {
  library lib;
  ZSTD_DStream *z;
} state;

static ac_status load(library *l, ac_err *e) {
  const aci_symbol list[] = {
      {"ZSTD_createDStream", &l->create},    {"ZSTD_freeDStream", &l->destroy},
      {"ZSTD_DCtx_setParameter", &l->limit}, {"ZSTD_decompressStream", &l->step},
      {"ZSTD_decompress", &l->block},        {"ZSTD_isError", &l->failed},
      {"ZSTD_getErrorName", &l->text}};
  return aci_library_open("zstd", list, 7, e);
}

static ac_status open_zstd(void **out, ac_err *e) {
  state *s = malloc(sizeof *s);
  if (s == NULL) return AC_FAIL(e, OOM, "no memory for libzstd");
  ac_status st = load(&s->lib, e);
  if (st == AC_OK && (s->z = s->lib.create()) == NULL)
    st = AC_FAIL(e, OOM, "no memory for libzstd");
  if (st != AC_OK) {
    free(s);
    return st;
  }
  s->lib.limit(s->z, ZSTD_d_windowLogMax, ACI_WINDOW_LOG);
  *out = s;
  return AC_OK;
}

static ac_status step(void *p, aci_unpack_io *io, ac_err *e) {
  state *s = p;
  ZSTD_inBuffer in = {io->in, io->n_in, 0};
  ZSTD_outBuffer out = {io->out, io->n_out, 0};
  const size_t rc = s->lib.step(s->z, &out, &in);
  if (s->lib.failed(rc))
    return AC_FAIL(e, PARSE, "the Zstandard data is damaged or not supported (%s)",
                   s->lib.text(rc));
  io->used = in.pos;
  io->made = out.pos;
  io->ended = rc == 0;
  return AC_OK;
}

static ac_status next(void *p, ac_err *e) { return AC_OK; } /* the decoder begins by itself */

static void close_zstd(void *p) {
  state *s = p;
  s->lib.destroy(s->z);
  free(s);
}

ac_status aci_block_zstd(const void *in, size_t n_in, void *out, size_t n_out, ac_err *e) {
  library lib;
  AC_TRY(load(&lib, e));
  const size_t rc = lib.block(out, n_out, in, n_in);
  if (lib.failed(rc)) return AC_FAIL(e, PARSE, "the Zstandard block is damaged (%s)", lib.text(rc));
  if (rc != n_out)
    return AC_FAIL(e, PARSE, "the Zstandard block holds %zu bytes, expected %zu", rc, n_out);
  return AC_OK;
}

#define OPEN open_zstd
#else
#define OPEN NULL
#define step NULL
#define next NULL
#define close_zstd NULL

ac_status aci_block_zstd(const void *in, size_t n_in, void *out, size_t n_out, ac_err *e) {
  return aci_library_absent("zstd", e);
}
#endif

/* A frame, or one that readers skip. */
static bool member(const unsigned char *p, size_t n) {
  return n >= 4 && p[3] == (p[1] == 0xB5 ? 0xFD : 0x18) &&
         ((p[0] == 0x28 && p[1] == 0xB5 && p[2] == 0x2F) ||
          ((p[0] & 0xF0) == 0x50 && p[1] == 0x2A && p[2] == 0x4D));
}

const aci_unpacker aci_unpack_zstd = {.name = "zstd",
                                      .library = "zstd",
                                      .open = OPEN,
                                      .step = step,
                                      .next = next,
                                      .close = close_zstd,
                                      .member = member};
