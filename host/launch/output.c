/* Output of ranks: from their pipes, in whole lines with a prefix, to the console, and unchanged to
 * log files. Called by supervise.c, which reads a stream only while its sink has room: a slow
 * reader slows the ranks, not the loop. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/launch_impl.h"

enum {
  AT_ONCE = 4096, /* a pipe that polls writable takes as much without blocking */
  /* a prompt or a progress bar without the end of its line is shown after so long */
  PARTIAL_MS = 50
};

void aci_sink_put(aci_sink *s, const char *text, size_t n) {
  if (s->dead || n == 0) return;
  if (s->begin > 0 && s->end + n > s->cap) {
    memmove(s->buf, s->buf + s->begin, s->end - s->begin);
    s->end -= s->begin;
    s->begin = 0;
  }
  if (s->end + n > s->cap) {
    size_t cap = s->cap * 2 > s->end + n ? s->cap * 2 : s->end + n + ACI_LINE_MAX;
    char *more = realloc(s->buf, cap);
    if (more == NULL) return; /* supervision continues without these bytes */
    s->buf = more;
    s->cap = cap;
  }
  memcpy(s->buf + s->end, text, n);
  s->end += n;
}

bool aci_reader_gone(int fd) {
  struct pollfd p = {.fd = fd, .events = POLLOUT};
  return poll(&p, 1, 0) > 0 && (p.revents & (POLLERR | POLLHUP)) != 0;
}

static void give_up(aci_sink *s) {
  s->closed = errno == EPIPE;
  s->dead = true;
  s->begin = s->end = 0;
}

static void write_some(aci_sink *s) {
  size_t n = s->end - s->begin;
  if (n > AT_ONCE) { /* up to the end of a line: others write to the same console */
    const char *newline = memrchr(s->buf + s->begin, '\n', AT_ONCE);
    n = newline != NULL ? (size_t)(newline - (s->buf + s->begin)) + 1 : AT_ONCE;
  }
  ssize_t k = write(s->fd, s->buf + s->begin, n);
  if (k > 0) s->begin += (size_t)k;
  else if (k < 0 && errno != EINTR && errno != EAGAIN) give_up(s);
  if (s->begin == s->end) s->begin = s->end = 0;
}

void aci_sink_flush(aci_sink *s) {
  while (s->end > s->begin) {
    struct pollfd p = {.fd = s->fd, .events = POLLOUT};
    if (poll(&p, 1, 0) <= 0) return;
    write_some(s); /* an error of the descriptor shows here */
  }
}

void aci_sink_free(aci_sink *s) {
  free(s->buf);
  *s = (aci_sink){.fd = -1};
}

static void put_line(aci_stream *s, const char *text, size_t n, bool whole) {
  aci_sink_put(s->show, s->prefix, strlen(s->prefix));
  aci_sink_put(s->show, text, n);
  if (!whole && s->prefix[0] != 0) aci_sink_put(s->show, "\n", 1);
}

/* Lines of text, and the rest into s->line. */
static void put_lines(aci_stream *s, const char *text, size_t n) {
  while (n > 0) {
    const char *newline = memchr(text, '\n', n);
    size_t k = newline != NULL ? (size_t)(newline - text) + 1 : n;
    /* there is a byte more, for the newline */
    const bool fits = s->n + k - (newline != NULL) <= ACI_LINE_MAX;
    if (newline != NULL && s->n == 0) {
      put_line(s, text, k, true);
    } else {
      if (!fits) k = ACI_LINE_MAX - s->n;
      memcpy(s->line + s->n, text, k);
      s->n += k;
      if (!fits || newline != NULL) {
        put_line(s, s->line, s->n, s->line[s->n - 1] == '\n');
        s->n = 0;
      }
    }
    text += k;
    n -= k;
  }
  if (s->n == 0 || s->prefix[0] != 0) s->partial_at = 0;
  else if (s->partial_at == 0) s->partial_at = aci_now_ns() + PARTIAL_MS * 1000000;
}

void aci_stream_flush_partial(aci_stream *s) {
  put_line(s, s->line, s->n, false);
  s->n = 0;
  s->partial_at = 0;
}

static void put_log(aci_stream *s, const char *text, size_t n) {
  while (n > 0 && s->log >= 0) {
    ssize_t k = write(s->log, text, n);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) {
      ac_log_write(AC_LOG_WARN, "launch", "the log file of rank %d cannot be written any more: %s",
                   s->rank, strerror(errno));
      s->log = -1;
      return;
    }
    text += k;
    n -= (size_t)k;
  }
}

bool aci_stream_read(aci_stream *s) {
  char chunk[ACI_LINE_MAX];
  if (s->fd < 0) return false;
  ssize_t n = read(s->fd, chunk, sizeof chunk);
  if (n < 0) {
    if (errno == EINTR) return true;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    n = 0;
  }
  if (n == 0) {
    aci_stream_close(s);
    return false;
  }
  put_log(s, chunk, (size_t)n);
  if (s->show == NULL || s->show->dead) return true;
  put_lines(s, chunk, (size_t)n);
  return true;
}

void aci_stream_close(aci_stream *s) {
  if (s->n > 0) put_line(s, s->line, s->n, false);
  if (s->fd >= 0) close(s->fd);
  free(s->line);
  s->line = NULL;
  s->n = 0;
  s->partial_at = 0;
  s->fd = -1;
}
