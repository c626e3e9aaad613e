/* A file as a stream of its content, compressed or not. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/library.h"
#include "file/compress/compress.h"
#include "file/io.h"

enum { BUFFER = 1 << 16 };

struct aci_content {
  int fd;
  char *path;
  const aci_unpacker *unpacker; /* NULL: plain */
  void *state;
  uint64_t size, file_at; /* of the file: bytes, and those read into the buffer */
  uint64_t at, most;
  size_t from, to; /* unread bytes of the buffer */
  bool between;    /* no member is under way */
  bool over, failed;
  unsigned char buffer[BUFFER];
};

/* More bytes for the buffer, in addition to those in it. */
static ac_status fill(aci_content *s, ac_err *e) {
  if (s->from > 0) {
    memmove(s->buffer, s->buffer + s->from, s->to - s->from);
    s->to -= s->from;
    s->from = 0;
  }
  while (s->to < BUFFER && s->file_at < s->size) {
    ssize_t k;
    ACI_AGAIN(k, pread(s->fd, s->buffer + s->to, BUFFER - s->to, (off_t)s->file_at));
    if (k < 0) return aci_io_error(e, s->path, "read", errno);
    if (k == 0) s->size = s->file_at; /* cut while it is read: the decoder reports it */
    s->to += (size_t)k;
    s->file_at += (uint64_t)k;
  }
  return AC_OK;
}

static ac_status begin(aci_content *s, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  AC_TRY(fill(s, e));
  s->unpacker = aci_unpacker_of(s->buffer, s->to);
  const char *named = aci_unpacker_named(s->path);
  if (s->unpacker == NULL) {
    if (named == NULL) return AC_OK;
    return AC_FAIL(e, PARSE, "%s: the name ends as %s files do, but the content %s", s->path, named,
                   s->size == 0 ? "is empty; copy the file again"
                                : "is not compressed by it; rename the file or copy it again");
  }
  if (s->unpacker->open == NULL) return aci_library_absent(s->unpacker->library, e);
  ac_err why;
  const ac_status st = s->unpacker->open(&s->state, &why);
  s->between = false;
  if (st == AC_OK) return AC_OK;
  return ac_err_set(e, st, __FILE__, __LINE__, "%s: %s", aci_path_shown(s->path, shown), why.msg);
}

ac_status aci_content_open(const char *path, uint64_t most, aci_content **out, ac_err *e) {
  *out = NULL;
  int fd;
  uint64_t bytes;
  AC_TRY(aci_open_read(path, &fd, &bytes, e));
  aci_content *s = malloc(sizeof *s);
  char *copy = strdup(path);
  if (s == NULL || copy == NULL) {
    free(s);
    free(copy);
    close(fd);
    return AC_FAIL(e, OOM, "no memory to read a file");
  }
  memset(s, 0, offsetof(aci_content, buffer));
  s->fd = fd;
  s->path = copy;
  s->size = bytes;
  s->most = most;
  const ac_status st = begin(s, e);
  if (st != AC_OK) {
    aci_content_close(s);
    return st;
  }
  *out = s;
  return AC_OK;
}

void aci_content_close(aci_content *s) {
  if (s == NULL) return;
  if (s->state != NULL) s->unpacker->close(s->state);
  close(s->fd);
  free(s->path);
  free(s);
}

const char *aci_content_codec(const aci_content *s) {
  return s->unpacker != NULL ? s->unpacker->name : NULL;
}

const char *aci_content_path(const aci_content *s) { return s->path; }

uint64_t aci_content_at(const aci_content *s) { return s->at; }

uint64_t aci_content_size(const aci_content *s) { return s->size; }

static ac_status fault(const aci_content *s, ac_status code, const char *what, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  return ac_err_set(e, code, __FILE__, __LINE__, "%s: %s, at byte %llu of the file",
                    aci_path_shown(s->path, shown), what,
                    (unsigned long long)(s->file_at - (s->to - s->from)));
}

/* After a member: another one, allowed zeros, or the end. */
static ac_status after_member(aci_content *s, ac_err *e) {
  AC_TRY(fill(s, e));
  if (s->from == s->to) {
    s->over = true;
    return AC_OK;
  }
  if (s->unpacker->member(s->buffer + s->from, s->to - s->from)) {
    s->between = false;
    return s->unpacker->next(s->state, e);
  }
  while (s->unpacker->zeros && s->from < s->to && s->buffer[s->from] == 0) {
    if (++s->from == s->to) AC_TRY(fill(s, e));
    if (s->from == s->to) s->over = true;
  }
  if (s->over) return AC_OK;
  return fault(s, AC_PARSE, "other bytes follow the end of the compressed data; cut them off", e);
}

static ac_status unpack(aci_content *s, unsigned char *p, size_t n, size_t *got, ac_err *e) {
  *got = 0;
  while (*got < n && !s->over) {
    if (s->between) {
      AC_TRY(after_member(s, e));
      continue;
    }
    if (s->from == s->to) AC_TRY(fill(s, e));
    aci_unpack_io io = {.in = s->buffer + s->from,
                        .n_in = s->to - s->from,
                        .out = p + *got,
                        .n_out = n - *got,
                        .last = s->file_at == s->size};
    ac_err why;
    const ac_status st = s->unpacker->step(s->state, &io, &why);
    if (st != AC_OK) return fault(s, st, why.msg, e);
    s->from += io.used;
    *got += io.made;
    if (io.ended) {
      s->between = true;
    } else if (io.used == 0 && io.made == 0) {
      const size_t before = s->to - s->from;
      AC_TRY(fill(s, e));
      if (s->to - s->from == before)
        return fault(s, AC_PARSE, "the compressed data is cut off; copy the file again", e);
    }
  }
  return AC_OK;
}

static ac_status plain(aci_content *s, unsigned char *p, size_t n, size_t *got, ac_err *e) {
  size_t k = s->to - s->from < n ? s->to - s->from : n;
  memcpy(p, s->buffer + s->from, k);
  s->from += k;
  *got = k;
  while (*got < n && s->file_at < s->size) {
    if (n - *got < BUFFER / 2) {
      AC_TRY(fill(s, e));
      k = s->to - s->from < n - *got ? s->to - s->from : n - *got;
      memcpy(p + *got, s->buffer + s->from, k);
      s->from += k;
      *got += k;
      continue;
    }
    ssize_t r;
    ACI_AGAIN(r, pread(s->fd, p + *got, n - *got, (off_t)s->file_at));
    if (r < 0) return aci_io_error(e, s->path, "read", errno);
    if (r == 0) s->size = s->file_at;
    *got += (size_t)r;
    s->file_at += (uint64_t)r;
  }
  return AC_OK;
}

ac_status aci_content_read(aci_content *s, void *p, size_t n, size_t *got, ac_err *e) {
  *got = 0;
  if (s->failed) return fault(s, AC_STATE, "an earlier read failed", e);
  const ac_status st = (s->unpacker != NULL ? unpack : plain)(s, p, n, got, e);
  s->failed = st != AC_OK;
  if (st != AC_OK) return st;
  s->at += *got;
  if (s->most == 0 || s->at <= s->most) return AC_OK;
  s->failed = true;
  return aci_over_limit(s->path, "the content", s->most, e);
}

ac_status aci_content_skip(aci_content *s, uint64_t n, uint64_t *got, ac_err *e) {
  *got = 0;
  if (s->unpacker == NULL && !s->failed) {
    const uint64_t left = s->to - s->from + (s->size - s->file_at);
    *got = n < left ? n : left;
    return aci_content_seek(s, s->at + *got, e);
  }
  unsigned char scrap[4096];
  while (*got < n) {
    size_t k;
    AC_TRY(aci_content_read(s, scrap, n - *got < sizeof scrap ? (size_t)(n - *got) : sizeof scrap,
                            &k, e));
    if (k == 0) break;
    *got += k;
  }
  return AC_OK;
}

ac_status aci_content_seek(aci_content *s, uint64_t at, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  if (s->unpacker != NULL)
    return AC_FAIL(e, UNSUPPORTED, "%s: a compressed file is read in order only",
                   aci_path_shown(s->path, shown));
  if (at > s->size)
    return AC_FAIL(e, INDEX, "%s: byte %llu is after the end", aci_path_shown(s->path, shown),
                   (unsigned long long)at);
  const uint64_t first = s->file_at - s->to; /* of the buffer */
  if (at >= first && at <= s->file_at) {
    s->from = (size_t)(at - first);
  } else {
    s->from = s->to = 0;
    s->file_at = at;
  }
  s->at = at;
  return AC_OK;
}

uint64_t aci_unpacked_limit(uint64_t given, uint64_t file) {
  const uint64_t base = (uint64_t)128 << 20;
  if (given > 0) return given;
  return file > (UINT64_MAX - base) / 64 ? UINT64_MAX : base + 64 * file;
}

ac_status aci_over_limit(const char *path, const char *what, uint64_t limit, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  return AC_FAIL(e, PARSE, "%s: %s is larger than the limit of %llu bytes; " ACI_RAISE_LIMIT,
                 aci_path_shown(path, shown), what, (unsigned long long)limit);
}

ac_status aci_content_unpack(const char *path, uint64_t limit, int *fd, uint64_t *bytes,
                             ac_err *e) {
  aci_content *s;
  *fd = -1;
  *bytes = 0;
  AC_TRY(aci_content_open(path, 0, &s, e));
  s->most = aci_unpacked_limit(limit, s->size);
  ac_status st = AC_OK;
  unsigned char *piece = malloc(BUFFER);
  const int to = memfd_create("accel-unpacked", MFD_CLOEXEC);
  if (piece == NULL) st = AC_FAIL(e, OOM, "no memory to unpack a file");
  else if (to < 0) st = aci_io_error(e, path, "make a file in memory for", errno);
  for (size_t got = 1; st == AC_OK && got > 0;) {
    st = aci_content_read(s, piece, BUFFER, &got, e);
    if (st == AC_OK && got > 0) st = aci_pwrite_all(to, path, piece, got, *bytes, e);
    *bytes += got;
  }
  free(piece);
  aci_content_close(s);
  if (st == AC_OK) *fd = to;
  else if (to >= 0) close(to);
  return st;
}
