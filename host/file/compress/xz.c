/* .xz and .lzma files, by liblzma. Its decoder reads all streams of a file and the padding between
 * them. */
#include "base/library.h"
#include "file/compress/compress.h"

#ifdef ACCEL_HAVE_LZMA
#include <lzma.h>
#include <stdlib.h>

typedef struct library {
  lzma_ret (*xz)(lzma_stream *, uint64_t, uint32_t);
  lzma_ret (*alone)(lzma_stream *, uint64_t);
  lzma_ret (*step)(lzma_stream *, lzma_action);
  void (*end)(lzma_stream *);
} library;

typedef struct state {
  library lib;
  lzma_stream z;
} state;

static ac_status begin(void **out, bool alone, ac_err *e) {
  const uint64_t memory = ((uint64_t)1 << ACI_WINDOW_LOG) + (1 << 20);
  state *s = malloc(sizeof *s);
  if (s == NULL) return AC_FAIL(e, OOM, "no memory for liblzma");
  const aci_symbol list[] = {{"lzma_stream_decoder", &s->lib.xz},
                             {"lzma_alone_decoder", &s->lib.alone},
                             {"lzma_code", &s->lib.step},
                             {"lzma_end", &s->lib.end}};
  ac_status st = aci_library_open("lzma", list, 4, e);
  s->z = (lzma_stream)LZMA_STREAM_INIT;
  if (st == AC_OK &&
      (alone
           ? s->lib.alone(&s->z, memory)
           : s->lib.xz(&s->z, memory, LZMA_CONCATENATED | LZMA_TELL_UNSUPPORTED_CHECK)) != LZMA_OK)
    st = AC_FAIL(e, OOM, "no memory for liblzma");
  if (st != AC_OK) free(s);
  else *out = s;
  return st;
}

static ac_status open_xz(void **out, ac_err *e) { return begin(out, false, e); }

static ac_status open_lzma(void **out, ac_err *e) { return begin(out, true, e); }

static ac_status step(void *p, aci_unpack_io *io, ac_err *e) {
  state *s = p;
  s->z.next_in = io->in;
  s->z.avail_in = io->n_in;
  s->z.next_out = io->out;
  s->z.avail_out = io->n_out;
  const lzma_ret rc = s->lib.step(&s->z, io->last ? LZMA_FINISH : LZMA_RUN);
  io->used = io->n_in - s->z.avail_in;
  io->made = io->n_out - s->z.avail_out;
  io->ended = rc == LZMA_STREAM_END;
  switch (rc) {
    case LZMA_OK:
    case LZMA_STREAM_END:
    case LZMA_BUF_ERROR: return AC_OK;
    case LZMA_MEM_ERROR: return AC_FAIL(e, OOM, "no memory for liblzma");
    case LZMA_MEMLIMIT_ERROR:
      return AC_FAIL(e, PARSE, "the xz data asks for a dictionary of more than %d MiB",
                     1 << (ACI_WINDOW_LOG - 20));
    case LZMA_UNSUPPORTED_CHECK:
      return AC_FAIL(e, PARSE, "the xz data has a checksum of an unknown kind");
    case LZMA_OPTIONS_ERROR: return AC_FAIL(e, PARSE, "the xz data has unknown options or filters");
    case LZMA_FORMAT_ERROR:
      return AC_FAIL(e, PARSE, "bytes that are not xz data; cut off what follows its end");
    default: return AC_FAIL(e, PARSE, "the xz data is damaged");
  }
}

static ac_status next(void *p, ac_err *e) { return AC_OK; }

static void close_xz(void *p) {
  state *s = p;
  s->lib.end(&s->z);
  free(s);
}

#define OPEN_XZ open_xz
#define OPEN_LZMA open_lzma
#else
#define OPEN_XZ NULL
#define OPEN_LZMA NULL
#define step NULL
#define next NULL
#define close_xz NULL
#endif

static bool never(const unsigned char *p, size_t n) { return false; }

const aci_unpacker aci_unpack_xz = {.name = "xz",
                                    .library = "lzma",
                                    .open = OPEN_XZ,
                                    .step = step,
                                    .next = next,
                                    .close = close_xz,
                                    .member = never};

const aci_unpacker aci_unpack_lzma = {.name = "lzma",
                                      .library = "lzma",
                                      .open = OPEN_LZMA,
                                      .step = step,
                                      .next = next,
                                      .close = close_xz,
                                      .member = never};
