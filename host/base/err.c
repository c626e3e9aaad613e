/* Status names, the filling of ac_err, and the end of a process whose own invariant broke. Called from
 * everywhere. */
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel/base.h"
#include "base/base_impl.h"

const char *ac_status_name(ac_status s) {
  switch (s) {
#define AC_X(name, code, text, rec) \
  case AC_##name: return text;
    AC_STATUS_LIST(AC_X)
#undef AC_X
  }
  return "unknown";
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
  memcpy(e->msg, text, strlen(text) + 1);
  errno = saved;
  return code;
}

typedef void (*hook_fn)(void *user);
static _Atomic(hook_fn) hook;
static _Atomic(void *) hook_user;

void aci_assert_hook_set(void (*fn)(void *user), void *user) {
  atomic_store(&hook, NULL);
  atomic_store(&hook_user, user);
  atomic_store(&hook, fn);
}

void ac_assert_fail(const char *expr, const char *file, int line) {
  ac_log_write(AC_LOG_ERROR, "base", "%s:%d: internal check failed: %s (this is a bug in accel)", file, line, expr);
  /* taken out first, so that a hook that fails a check itself ends in abort and not in recursion */
  hook_fn fn = atomic_exchange(&hook, NULL);
  if (fn != NULL) fn(atomic_load(&hook_user));
  abort();
}
