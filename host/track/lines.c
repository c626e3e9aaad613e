/* Sink: text, one line a record. Called through ac_track_open_lines. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "track/track_impl.h"

typedef struct lines {
  aci_append file;
  char *path;
} lines;

static ac_status write_lines(void *self, const char *p, size_t n, size_t *taken, ac_err *e) {
  lines *s = self;
  for (*taken = 0; *taken < n;) {
    const aci_track_record *r = (const void *)(p + *taken);
    const ac_status st = aci_append_record(&s->file, s->path, aci_track_data(r), r->n, e);
    if (st != AC_OK) return st;
    *taken += aci_track_size(r->n);
  }
  return AC_OK;
}

static void close_lines(void *self) {
  lines *s = self;
  aci_append_close(&s->file, s->path);
  free(s->path);
  free(s);
}

/* The first line of an empty file. The end of a last line that has none. */
static ac_status begin(lines *s, const char *head, ac_err *e) {
  struct stat sb;
  char last = '\n';
  s->file.fd = open(s->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (s->file.fd < 0 || fstat(s->file.fd, &sb) != 0)
    return AC_FAIL(e, IO, "cannot open %s: %s", s->path, strerror(errno));
  s->file.end = (uint64_t)sb.st_size;
  if (sb.st_size > 0 && pread(s->file.fd, &last, 1, sb.st_size - 1) == 1 && last != '\n')
    return aci_append_record(&s->file, s->path, "\n", 1, e);
  return sb.st_size == 0 && head != NULL
             ? aci_append_record(&s->file, s->path, head, strlen(head), e)
             : AC_OK;
}

ac_status ac_track_open_lines(const char *path, const char *head, ac_track **out, ac_err *e) {
  static const aci_track_sink sink = {false, write_lines, close_lines, NULL, NULL};
  lines *s = calloc(1, sizeof *s);
  if (s == NULL) return AC_FAIL(e, OOM, "no memory for a file of lines");
  s->file.fd = -1;
  s->path = strdup(path);
  const ac_status st =
      s->path == NULL ? AC_FAIL(e, OOM, "no memory for a path") : begin(s, head, e);
  if (st != AC_OK) {
    close_lines(s);
    return st;
  }
  return aci_track_new(&sink, s, strdup(path), out, e);
}
