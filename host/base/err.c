/* Status names, the filling of ac_err, and internal checks that failed. Called from everywhere. */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "accel/base.h"
#include "base/base_impl.h"
#include "base/fault.h"
#include "base/visible.h"

const char *ac_status_name(ac_status s) {
  switch (s) {
#define AC_X(name, code, text, rec) \
  case AC_##name: return text;
    AC_STATUS_LIST(AC_X)
#undef AC_X
  }
  return "unknown";
}

/* Bytes of a text that was cut at n, without a character that the cut left incomplete. */
static size_t whole_characters(const char *text, size_t n) {
  size_t lead = n;
  while (lead > 0 && n - lead < 4 && ((unsigned char)text[lead - 1] & 0xC0) == 0x80) lead--;
  return lead > 0 && (unsigned char)text[lead - 1] >= 0xC0 ? lead - 1 : n;
}

ac_status ac_err_set(ac_err *e, ac_status code, const char *file, int line, const char *fmt, ...) {
  if (e == NULL) return code;
  int saved = errno; /* callers may format strerror(errno) and still want errno after */
  e->code = code;
  e->line = line;
  e->file = file;
  e->rank = -1;
  e->op[0] = '\0';
  e->device[0] = '\0';
  va_list ap;
  va_start(ap, fmt);
  /* through a second buffer: an argument may point into e->msg when a frame adds to the message */
  char text[sizeof e->msg];
  if (vsnprintf(text, sizeof text, fmt, ap) < 0) text[0] = '\0';
  va_end(ap);
  /* names in it may come from others, and the message may go to a terminal */
  const size_t n = strlen(text);
  aci_visible(e->msg, sizeof e->msg, text, n == sizeof text - 1 ? whole_characters(text, n) : n,
              true, NULL);
  errno = saved;
  return code;
}

/* ---- internal checks ---- */
atomic_bool aci_fault_pending;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static aci_fault latest;

ac_status ac_fault(ac_err *e, const char *expr, const char *file, int line) {
  ac_log_write(AC_LOG_ERROR, "base", "%s:%d: internal check failed: %s (this is a bug in accel)",
               file, line, expr);
  pthread_mutex_lock(&lock);
  latest = (aci_fault){expr, file, line};
  atomic_store(&aci_fault_pending, true);
  pthread_mutex_unlock(&lock);
  return aci_fault_err((aci_fault){expr, file, line}, e);
}

bool aci_fault_claim(aci_fault *f) {
  pthread_mutex_lock(&lock);
  const bool was = atomic_exchange(&aci_fault_pending, false);
  if (was) *f = latest;
  pthread_mutex_unlock(&lock);
  return was;
}

ac_status aci_fault_err(aci_fault f, ac_err *e) {
  return ac_err_set(
      e, AC_INTERNAL, f.file, f.line,
      "internal check failed: %s (%s:%d); this is a bug in accel, and this context takes no more calls",
      f.expr, f.file, f.line);
}
