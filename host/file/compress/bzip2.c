/* .bz2 files, by libbz2. */
#include "base/library.h"
#include "file/compress/compress.h"

#ifdef ACCEL_HAVE_BZIP2
#include <bzlib.h>
#include <limits.h>
#include <stdlib.h>

typedef struct library {
  int (*init)(bz_stream *, int, int);
  int (*step)(bz_stream *);
  int (*end)(bz_stream *);
} library;

typedef struct state {
  library lib;
  bz_stream z;
} state;

static ac_status begin(state *s, ac_err *e) {
  s->z = (bz_stream){0};
  return s->lib.init(&s->z, 0, 0) == BZ_OK ? AC_OK : AC_FAIL(e, OOM, "no memory for libbz2");
}

static ac_status open_bzip2(void **out, ac_err *e) {
  state *s = malloc(sizeof *s);
  if (s == NULL) return AC_FAIL(e, OOM, "no memory for libbz2");
  const aci_symbol list[] = {{"BZ2_bzDecompressInit", &s->lib.init},
                             {"BZ2_bzDecompress", &s->lib.step},
                             {"BZ2_bzDecompressEnd", &s->lib.end}};
  ac_status st = aci_library_open("bzip2", list, 3, e);
  if (st == AC_OK) st = begin(s, e);
  if (st != AC_OK) free(s);
  else *out = s;
  return st;
}

static ac_status step(void *p, aci_unpack_io *io, ac_err *e) {
  state *s = p;
  const unsigned in = (unsigned)(io->n_in < INT_MAX ? io->n_in : INT_MAX);
  const unsigned room = (unsigned)(io->n_out < INT_MAX ? io->n_out : INT_MAX);
  s->z.next_in = (char *)io->in;
  s->z.avail_in = in;
  s->z.next_out = (char *)io->out;
  s->z.avail_out = room;
  const int rc = s->lib.step(&s->z);
  io->used = in - s->z.avail_in;
  io->made = room - s->z.avail_out;
  io->ended = rc == BZ_STREAM_END;
  if (rc == BZ_OK || rc == BZ_STREAM_END) return AC_OK;
  if (rc == BZ_MEM_ERROR) return AC_FAIL(e, OOM, "no memory for libbz2");
  return AC_FAIL(e, PARSE, "the bzip2 data is damaged");
}

/* A library that cannot begin again is left closed: a second end does nothing. */
static ac_status next(void *p, ac_err *e) {
  state *s = p;
  s->lib.end(&s->z);
  return begin(s, e);
}

static void close_bzip2(void *p) {
  state *s = p;
  s->lib.end(&s->z);
  free(s);
}

#define OPEN open_bzip2
#else
#define OPEN NULL
#define step NULL
#define next NULL
#define close_bzip2 NULL
#endif

static bool member(const unsigned char *p, size_t n) {
  return n >= 3 && p[0] == 'B' && p[1] == 'Z' && p[2] == 'h';
}

const aci_unpacker aci_unpack_bzip2 = {.name = "bzip2",
                                       .library = "bzip2",
                                       .open = OPEN,
                                       .step = step,
                                       .next = next,
                                       .close = close_bzip2,
                                       .member = member};
