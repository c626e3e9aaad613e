/* Sink: TensorBoard's event files. A file is records, each uint64 length, masked CRC-32C of these 8
 * bytes, data, masked CRC-32C of the data, all little-endian. data is an Event of TensorBoard's
 * event.proto. Called through ac_track_open_events.
 *
 *   Event     1 double wall_time, 2 int64 step, 3 string file_version (the first record), 5 Summary
 *   Summary   1 repeated Value { 1 string tag, 2 float simple_value, ... }
 *
 * Summaries that are more than a number come encoded (stdlib/accel/track/summary.lua). A file that
 * ends within a record and cannot be cut is abandoned, and a new one is started. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/strbuf.h"
#include "track/track_impl.h"

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5, HEAD = 12, FOOT = 4 };

typedef struct events {
  aci_append file;
  char *folder, *path;
  aci_strbuf event;
} events;

static _Atomic unsigned counter; /* of the process: part of a file's name */

static void put_le(aci_strbuf *b, uint64_t v, int n) {
  char c[8];
  for (int i = 0; i < n; i++) c[i] = (char)(v >> (8 * i));
  aci_strbuf_add(b, c, (size_t)n);
}
static void put_varint(aci_strbuf *b, uint64_t v) {
  for (; v >= 0x80; v >>= 7) aci_strbuf_putc(b, (char)(v | 0x80));
  aci_strbuf_putc(b, (char)v);
}
static int varint_bytes(uint64_t v) {
  int n = 1;
  for (; v >= 0x80; v >>= 7) n++;
  return n;
}
static void put_key(aci_strbuf *b, int field, int wire) {
  put_varint(b, (uint64_t)(field << 3 | wire));
}
static void put_bytes(aci_strbuf *b, int field, const char *p, size_t n) {
  put_key(b, field, BYTES);
  put_varint(b, n);
  aci_strbuf_add(b, p, n);
}

static void begin(events *s, double wall, int64_t step) {
  uint64_t bits;
  s->event.len = 0;
  for (int i = 0; i < HEAD; i++) aci_strbuf_putc(&s->event, 0);
  memcpy(&bits, &wall, 8);
  put_key(&s->event, 1, FIXED64);
  put_le(&s->event, bits, 8);
  if (step == 0) return;
  put_key(&s->event, 2, VARINT);
  put_varint(&s->event, (uint64_t)step);
}

/* Head and foot of the record, and its one write. */
static ac_status end(events *s, ac_err *e) {
  aci_strbuf *b = &s->event;
  if (b->failed || !aci_strbuf_reserve(b, FOOT)) {
    aci_strbuf_fini(b);
    *b = (aci_strbuf){0};
    return AC_FAIL(e, OOM, "no memory for an event of %s", s->path);
  }
  const uint64_t n = b->len - HEAD;
  for (int i = 0; i < 8; i++) b->s[i] = (char)(n >> (8 * i));
  const uint32_t head = aci_crc32c_mask(aci_crc32c(0, b->s, 8));
  for (int i = 0; i < 4; i++) b->s[8 + i] = (char)(head >> (8 * i));
  put_le(b, aci_crc32c_mask(aci_crc32c(0, b->s + HEAD, n)), 4);
  return aci_append_record(&s->file, s->path, b->s, b->len, e);
}

static void write_scalar(events *s, const aci_track_record *r) {
  const float value = (float)r->value;
  const size_t inner = 1 + (size_t)varint_bytes(r->n) + r->n + 5;
  uint32_t bits;
  aci_strbuf *b = &s->event;
  memcpy(&bits, &value, 4);
  put_key(b, 5, BYTES);
  put_varint(b, 1 + (uint64_t)varint_bytes(inner) + inner);
  put_key(b, 1, BYTES);
  put_varint(b, inner);
  put_bytes(b, 1, aci_track_data(r), r->n);
  put_key(b, 2, FIXED32);
  put_le(b, bits, 4);
}

/* A new file with its first record. */
static ac_status open_file(events *s, ac_err *e) {
  static const char version[] = "brain.Event:2";
  char host[65] = "localhost";
  const time_t now = time(NULL);
  gethostname(host, sizeof host - 1);
  for (char *c = host; *c != 0; c++)
    if (*c == '/') *c = '_';
  for (;;) {
    aci_strbuf name = {0};
    aci_strbuf_printf(&name, "%s/events.out.tfevents.%010lld.%s.%d.%u", s->folder, (long long)now,
                      host, (int)getpid(), atomic_fetch_add(&counter, 1));
    char *path = aci_strbuf_take(&name, NULL);
    if (path == NULL) return AC_FAIL(e, OOM, "no memory for a path");
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST) {
      free(path);
      continue;
    }
    if (fd < 0) {
      AC_FAIL(e, IO, "cannot make %s: %s", path, strerror(errno));
      free(path);
      return AC_IO;
    }
    free(s->path);
    s->path = path;
    s->file = (aci_append){.fd = fd};
    break;
  }
  begin(s, (double)now, 0);
  put_bytes(&s->event, 3, version, sizeof version - 1);
  put_bytes(&s->event, 10,
            "\x0a\x05"
            "accel",
            7); /* source_metadata { 1 writer } */
  const ac_status st = end(s, e);
  if (st != AC_OK) { /* a file without its head is none */
    unlink(s->path);
    close(s->file.fd);
    s->file.fd = -1;
  }
  return st;
}

static ac_status write_events(void *self, const char *p, size_t n, size_t *taken, ac_err *e) {
  events *s = self;
  *taken = 0;
  if (s->file.torn) {
    close(s->file.fd);
    s->file.fd = -1;
    s->file.torn = false;
  }
  if (s->file.fd < 0) {
    const ac_status st = open_file(s, e);
    if (st != AC_OK) return st;
  }
  while (*taken < n) {
    const aci_track_record *r = (const void *)(p + *taken);
    begin(s, r->wall, r->step);
    if (r->kind == ACI_TRACK_SCALAR) write_scalar(s, r);
    else put_bytes(&s->event, 5, aci_track_data(r), r->n);
    const ac_status st = end(s, e);
    if (st != AC_OK) return st;
    *taken += aci_track_size(r->n);
  }
  return AC_OK;
}

static void close_events(void *self) {
  events *s = self;
  aci_append_close(&s->file, s->path);
  aci_strbuf_fini(&s->event);
  free(s->folder);
  free(s->path);
  free(s);
}

ac_status ac_track_open_events(const char *folder, ac_track **out, ac_err *e) {
  static const aci_track_sink sink = {true, write_events, close_events, NULL, NULL};
  events *s = calloc(1, sizeof *s);
  if (s == NULL) return AC_FAIL(e, OOM, "no memory for an event file");
  s->file.fd = -1;
  s->folder = strdup(folder);
  const ac_status st =
      s->folder == NULL ? AC_FAIL(e, OOM, "no memory for a path") : open_file(s, e);
  if (st != AC_OK) {
    close_events(s);
    return st;
  }
  return aci_track_new(&sink, s, strdup(s->path), out, e);
}
