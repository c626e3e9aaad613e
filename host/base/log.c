/* The process-wide log sink: one callback, installed by the program that hosts us. A thread may have
 * a sink of its own instead (log.h). Called everywhere. */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "accel/base.h"
#include "base/log.h"
#include "base/visible.h"

/* The level is an atomic of its own, so that a message below it costs one load. Sinks are called
 * under the read lock: once ac_log_set has returned, the old sink is not running and its user
 * pointer may be freed. */
static _Atomic int threshold = AC_LOG_OFF;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static ac_log_fn sink;
static void *sink_user;

void ac_log_set(ac_log_fn fn, void *user, ac_log_level level) {
  pthread_rwlock_wrlock(&lock);
  sink = fn;
  sink_user = user;
  atomic_store(&threshold, fn == NULL ? AC_LOG_OFF : (int)level);
  pthread_rwlock_unlock(&lock);
}

static _Thread_local aci_log_sink own;

aci_log_sink aci_log_thread(aci_log_sink s) {
  const aci_log_sink was = own;
  own = s;
  return was;
}

void ac_log_write(ac_log_level level, const char *subsystem, const char *fmt, ...) {
  const aci_log_sink mine = own;
  const int from =
      mine.fn != NULL ? (int)mine.level : atomic_load_explicit(&threshold, memory_order_relaxed);
  if ((int)level < from || level >= AC_LOG_OFF) return;
  int saved = errno;
  char msg[1024];
  va_list ap;
  va_start(ap, fmt);
  if (vsnprintf(msg, sizeof msg, fmt, ap) < 0) msg[0] = '\0';
  va_end(ap);
  char shown[sizeof msg]; /* names in it may come from others, and most sinks write to a terminal */
  aci_visible(shown, sizeof shown, msg, strlen(msg), true, NULL);
  if (mine.fn != NULL) {
    mine.fn(mine.user, level, subsystem, shown);
    errno = saved;
    return;
  }
  pthread_rwlock_rdlock(&lock);
  if (sink != NULL) sink(sink_user, level, subsystem, shown);
  pthread_rwlock_unlock(&lock);
  errno = saved;
}
