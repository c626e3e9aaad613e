/* gzip files and zlib's blocks, by zlib. */
#include "base/library.h"
#include "file/compress/compress.h"

#ifdef ACCEL_HAVE_ZLIB
#include <limits.h>
#include <stdlib.h>
#include <zlib.h>

typedef struct library {
  int (*init)(z_streamp, int, const char *, int);
  int (*step)(z_streamp, int);
  int (*reset)(z_streamp);
  int (*end)(z_streamp);
} library;

typedef struct state {
  library lib;
  z_stream z;
} state;

static ac_status load(library *l, ac_err *e) {
  const aci_symbol list[] = {{"inflateInit2_", &l->init},
                             {"inflate", &l->step},
                             {"inflateReset", &l->reset},
                             {"inflateEnd", &l->end}};
  return aci_library_open("zlib", list, 4, e);
}

/* window: of inflateInit2, which also chooses among gzip (16 more) and either (32 more). */
static ac_status begin(state *s, int window, ac_err *e) {
  AC_TRY(load(&s->lib, e));
  s->z = (z_stream){0};
  if (s->lib.init(&s->z, window, ZLIB_VERSION, (int)sizeof s->z) != Z_OK)
    return AC_FAIL(e, OOM, "no memory for zlib");
  return AC_OK;
}

static ac_status open_gzip(void **out, ac_err *e) {
  state *s = malloc(sizeof *s);
  if (s == NULL) return AC_FAIL(e, OOM, "no memory for zlib");
  const ac_status st = begin(s, 15 + 16, e);
  if (st != AC_OK) free(s);
  else *out = s;
  return st;
}

static ac_status step(void *p, aci_unpack_io *io, ac_err *e) {
  state *s = p;
  const uInt in = (uInt)(io->n_in < INT_MAX ? io->n_in : INT_MAX);
  const uInt room = (uInt)(io->n_out < INT_MAX ? io->n_out : INT_MAX);
  s->z.next_in = (Bytef *)io->in;
  s->z.avail_in = in;
  s->z.next_out = io->out;
  s->z.avail_out = room;
  const int rc = s->lib.step(&s->z, Z_NO_FLUSH);
  io->used = in - s->z.avail_in;
  io->made = room - s->z.avail_out;
  io->ended = rc == Z_STREAM_END;
  if (rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR) return AC_OK;
  if (rc == Z_MEM_ERROR) return AC_FAIL(e, OOM, "no memory for zlib");
  return AC_FAIL(e, PARSE, "the gzip data is damaged (%s)",
                 s->z.msg != NULL ? s->z.msg : "it needs a dictionary");
}

static ac_status next(void *p, ac_err *e) {
  state *s = p;
  return s->lib.reset(&s->z) == Z_OK ? AC_OK : AC_FAIL(e, INTERNAL, "zlib cannot begin again");
}

static void close_gzip(void *p) {
  state *s = p;
  s->lib.end(&s->z);
  free(s);
}

ac_status aci_block_gzip(const void *in, size_t n_in, void *out, size_t n_out, ac_err *e) {
  state s;
  if (n_in > INT_MAX || n_out > INT_MAX) return AC_FAIL(e, PARSE, "a gzip block of over 2 GiB");
  AC_TRY(begin(&s, 15 + 32, e));
  unsigned char spare;
  aci_unpack_io io = {.in = in, .n_in = n_in, .out = out, .n_out = n_out};
  ac_status st = step(&s, &io, e);
  size_t made = io.made;
  if (st == AC_OK && !io.ended && made == n_out) { /* the checksum, or more than promised */
    io = (aci_unpack_io){.in = (const unsigned char *)in + io.used,
                         .n_in = n_in - io.used,
                         .out = &spare,
                         .n_out = 1};
    st = step(&s, &io, e);
    made += io.made;
  }
  s.lib.end(&s.z);
  if (st != AC_OK) return st;
  if (!io.ended || made != n_out)
    return AC_FAIL(e, PARSE, "the gzip block does not hold %zu bytes", n_out);
  return AC_OK;
}

#define OPEN open_gzip
#else
#define OPEN NULL
#define step NULL
#define next NULL
#define close_gzip NULL

ac_status aci_block_gzip(const void *in, size_t n_in, void *out, size_t n_out, ac_err *e) {
  return aci_library_absent("zlib", e);
}
#endif

static bool member(const unsigned char *p, size_t n) {
  return n >= 2 && p[0] == 0x1F && p[1] == 0x8B;
}

const aci_unpacker aci_unpack_gzip = {.name = "gzip",
                                      .library = "zlib",
                                      .open = OPEN,
                                      .step = step,
                                      .next = next,
                                      .close = close_gzip,
                                      .zeros = true,
                                      .member = member};
