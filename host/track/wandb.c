/* Sink: the transaction log of a W&B run, run-ID.wandb, which `wandb sync` reads. Called through
 * ac_track_open_wandb.
 *
 * A file is 7 bytes (":W&B", 0xBEE1 and version 0, little-endian), then blocks of 32 KiB counted
 * from its start. A record is one encoded wandb_internal.Record, cut at the end of a block. Each
 * piece has a head of 7 bytes: CRC-32 of the kind and the data, uint16 length, kind (1 whole, 2
 * first, 3 middle, 4 last). Less than a head at the end of a block is zeros. (LevelDB's log format,
 * doc/log_format.md, with another checksum.) Readers skip the partial record of a killed
 * process. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32.h"
#include "base/sha256.h"
#include "base/strbuf.h"
#include "track/track_impl.h"

enum { BLOCK = 32 << 10, HEAD = 7, WHOLE = 1, FIRST = 2, MIDDLE = 3, LAST = 4 };

typedef struct wandb {
  aci_append file;
  char *path;
  aci_strbuf out;
} wandb;

static void put_piece(aci_strbuf *b, int kind, const char *p, size_t n) {
  const char type = (char)kind;
  const uint32_t crc = aci_crc32(aci_crc32(0, &type, 1), p, n);
  const char head[HEAD] = {
      (char)crc, (char)(crc >> 8), (char)(crc >> 16), (char)(crc >> 24), (char)n, (char)(n >> 8),
      type};
  aci_strbuf_add(b, head, HEAD);
  aci_strbuf_add(b, p, n);
}

/* Appends a record as it stands at this place of the file. */
static void put_record(aci_strbuf *b, uint64_t at, const char *p, size_t n) {
  static const char zeros[HEAD] = {0};
  for (bool first = true;; first = false) {
    size_t room = BLOCK - (size_t)(at % BLOCK);
    if (room < HEAD) {
      aci_strbuf_add(b, zeros, room);
      at += room;
      room = BLOCK;
    }
    const size_t part = n < room - HEAD ? n : room - HEAD;
    const bool last = part == n;
    put_piece(b, first ? last ? WHOLE : FIRST : last ? LAST : MIDDLE, p, part);
    at += HEAD + part;
    p += part;
    n -= part;
    if (last) return;
  }
}

static ac_status write_records(void *self, const char *p, size_t n, size_t *taken, ac_err *e) {
  wandb *s = self;
  for (*taken = 0; *taken < n;) {
    const aci_track_record *r = (const void *)(p + *taken);
    s->out.len = 0;
    put_record(&s->out, s->file.end, aci_track_data(r), r->n);
    if (s->out.failed) {
      aci_strbuf_fini(&s->out);
      s->out = (aci_strbuf){0};
      return AC_FAIL(e, OOM, "no memory for a record of %s", s->path);
    }
    const ac_status st = aci_append_record(&s->file, s->path, s->out.s, s->out.len, e);
    if (st != AC_OK) return st;
    *taken += aci_track_size(r->n);
  }
  return AC_OK;
}

static void close_file(void *self) {
  wandb *s = self;
  aci_append_close(&s->file, s->path);
  aci_strbuf_fini(&s->out);
  free(s->path);
  free(s);
}

ac_status ac_track_open_wandb(const char *path, ac_track **out, ac_err *e) {
  static const aci_track_sink sink = {false, write_records, close_file, NULL, NULL};
  static const char ident[HEAD] = {':', 'W', '&', 'B', (char)0xe1, (char)0xbe, 0};
  wandb *s = calloc(1, sizeof *s);
  if (s == NULL) return AC_FAIL(e, OOM, "no memory for a transaction log");
  s->file.fd = -1;
  s->path = strdup(path);
  ac_status st = s->path == NULL ? AC_FAIL(e, OOM, "no memory for a path") : AC_OK;
  if (st == AC_OK) {
    s->file.fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    st = s->file.fd < 0 ? AC_FAIL(e, IO, "cannot make %s: %s", path, strerror(errno))
                        : aci_append_record(&s->file, path, ident, sizeof ident, e);
  }
  if (st != AC_OK) {
    close_file(s);
    return st;
  }
  return aci_track_new(&sink, s, strdup(path), out, e);
}

void ac_sha256(const void *p, size_t n, uint8_t out[32]) { aci_sha256(p, n, out); }
