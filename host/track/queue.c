/* ac_track: records from the caller's thread to the writer's. Called by the sinks (aci_track_new)
 * and through accel/track.h. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "track/track_impl.h"

enum { PERIOD_NS = 500000000, WAKE_BYTES = 1 << 20, FIRST_BYTES = 1 << 16, MAX_TAG = 4096 };

typedef struct buffer {
  char *p;
  size_t n, cap;
} buffer;

struct ac_track {
  ac_track *next; /* of the queues of this process */
  pid_t owner;
  const aci_track_sink *sink;
  void *self;
  char *path;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t wake, done;
  buffer in;              /* under lock: the caller's records */
  buffer out;             /* the writer's */
  size_t at;              /* the writer's: so many bytes of out are written */
  size_t waiting;         /* under lock: bytes of out that are not */
  bool stop;              /* under lock */
  bool now;               /* under lock: somebody waits for a round */
  uint64_t rounds, begun; /* under lock: attempts to write that ended, that began */
  uint64_t dropped;       /* under lock */
  bool failed;            /* under lock: so did the last attempt */
  ac_err why;
};

static double now_seconds(void) {
  struct timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Room for n more bytes within the limit of a queue. */
static bool reserve(buffer *b, size_t n, size_t waiting) {
  if (b->n + n + waiting > AC_TRACK_MAX_BYTES) return false;
  if (b->n + n <= b->cap) return true;
  size_t cap = b->cap == 0 ? FIRST_BYTES : b->cap;
  while (cap < b->n + n) cap *= 2;
  char *p = realloc(b->p, cap);
  if (p == NULL) return false;
  b->p = p;
  b->cap = cap;
  return true;
}

static void put(ac_track *t, const aci_track_record *r, const void *p) {
  const size_t n = aci_track_size(r->n);
  pthread_mutex_lock(&t->lock);
  if (reserve(&t->in, n, t->waiting)) {
    char *to = t->in.p + t->in.n;
    const bool was = t->in.n >= WAKE_BYTES;
    memcpy(to, r, sizeof *r);
    if (r->n > 0) memcpy(to + sizeof *r, p, r->n);
    t->in.n += n;
    if (!was && t->in.n >= WAKE_BYTES) pthread_cond_signal(&t->wake);
  } else {
    t->dropped++;
  }
  pthread_mutex_unlock(&t->lock);
}

ac_status ac_track_scalar(ac_track *t, const char *tag, int64_t step, double value, double wall,
                          ac_err *e) {
  const size_t n = strlen(tag);
  if (!t->sink->scalars) return AC_FAIL(e, INVALID, "%s takes no numbers", t->path);
  if (n > MAX_TAG)
    return AC_FAIL(e, INVALID, "the tag '%.40s...' has %zu bytes; %d is the most", tag, n,
                   (int)MAX_TAG);
  put(t,
      &(aci_track_record){ACI_TRACK_SCALAR, (uint32_t)n, wall != 0 ? wall : now_seconds(), value,
                          step},
      tag);
  return AC_OK;
}

ac_status ac_track_bytes(ac_track *t, int64_t step, const void *p, size_t n, double wall,
                         ac_err *e) {
  if (n > AC_TRACK_MAX_RECORD)
    return AC_FAIL(e, INVALID, "a record for %s has %zu bytes; %d is the most", t->path, n,
                   (int)AC_TRACK_MAX_RECORD);
  put(t,
      &(aci_track_record){ACI_TRACK_BYTES, (uint32_t)n, wall != 0 ? wall : now_seconds(), 0, step},
      p);
  return AC_OK;
}

/* One attempt to write all there is. Called with the lock held, and left so. */
static void attempt(ac_track *t) {
  ac_status st = AC_OK;
  ac_err e;
  size_t taken = 0;
  t->begun++;
  if (t->sink->tick != NULL) {
    pthread_mutex_unlock(&t->lock);
    t->sink->tick(t->self);
    pthread_mutex_lock(&t->lock);
  }
  for (;;) {
    if (t->at == t->out.n) { /* the other buffer's turn */
      const buffer empty = {t->out.p, 0, t->out.cap};
      if (t->in.n == 0) break;
      t->out = t->in;
      t->in = empty;
      t->at = 0;
    }
    t->waiting = t->out.n - t->at;
    pthread_mutex_unlock(&t->lock);
    st = t->sink->write(t->self, t->out.p + t->at, t->out.n - t->at, &taken, &e);
    pthread_mutex_lock(&t->lock);
    t->at += taken;
    t->waiting = t->out.n - t->at;
    if (st != AC_OK) break;
  }
  t->failed = st != AC_OK;
  if (t->failed) t->why = e;
  t->rounds = t->begun;
  pthread_cond_broadcast(&t->done);
}

static void *writer(void *p) {
  ac_track *t = p;
  pthread_mutex_lock(&t->lock);
  while (!t->stop) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += PERIOD_NS;
    if (until.tv_nsec >= 1000000000) {
      until.tv_nsec -= 1000000000;
      until.tv_sec++;
    }
    int rc = 0;
    while (!t->stop && !t->now && rc != ETIMEDOUT && (t->failed || t->in.n < WAKE_BYTES))
      rc = pthread_cond_timedwait(&t->wake, &t->lock, &until);
    t->now = false;
    attempt(t);
  }
  attempt(t); /* records that came during the last attempt, and once more those that failed */
  pthread_mutex_unlock(&t->lock);
  return NULL;
}

/* ---- the queues of this process, for its end ---- */

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static ac_track *all;

static void enlist(ac_track *t) {
  pthread_mutex_lock(&all_lock);
  t->next = all;
  all = t;
  pthread_mutex_unlock(&all_lock);
}

static void delist(ac_track *t) {
  pthread_mutex_lock(&all_lock);
  for (ac_track **at = &all; *at != NULL; at = &(*at)->next)
    if (*at == t) {
      *at = t->next;
      break;
    }
  pthread_mutex_unlock(&all_lock);
}

static void stop(ac_track *t) {
  pthread_mutex_lock(&t->lock);
  t->stop = true;
  pthread_cond_signal(&t->wake);
  pthread_mutex_unlock(&t->lock);
  pthread_join(t->thread, NULL);
}

void ac_track_leave(int status) {
  for (ac_track *t = all; t != NULL; t = t->next) {
    if (t->owner != getpid()) continue; /* a child that was forked has no writer */
    stop(t);
    if (t->sink->exit != NULL) t->sink->exit(t->self, status);
  }
}

static void release(ac_track *t) {
  t->sink->close(t->self);
  free(t->path);
  free(t->in.p);
  free(t->out.p);
  free(t);
}

ac_status aci_track_new(const aci_track_sink *sink, void *self, char *path, ac_track **out,
                        ac_err *e) {
  ac_track *t = path != NULL && self != NULL ? calloc(1, sizeof *t) : NULL;
  if (t == NULL) {
    if (self != NULL) sink->close(self);
    free(path);
    return AC_FAIL(e, OOM, "no memory for a queue");
  }
  t->sink = sink;
  t->self = self;
  t->path = path;
  t->owner = getpid();
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_mutex_init(&t->lock, NULL);
  pthread_cond_init(&t->wake, &monotonic);
  pthread_cond_init(&t->done, NULL);
  pthread_condattr_destroy(&monotonic);
  const int rc = pthread_create(&t->thread, NULL, writer, t);
  if (rc != 0) {
    release(t);
    return AC_FAIL(e, OOM, "cannot start a thread: %s", strerror(rc));
  }
  enlist(t);
  *out = t;
  return AC_OK;
}

ac_status ac_track_flush(ac_track *t, ac_err *e) {
  pthread_mutex_lock(&t->lock);
  /* an attempt that began before now may have missed the last records */
  const uint64_t mine = t->begun + 1;
  while (t->rounds < mine) {
    t->now = true;
    pthread_cond_signal(&t->wake);
    pthread_cond_wait(&t->done, &t->lock);
  }
  const bool failed = t->failed;
  if (failed) *e = t->why;
  pthread_mutex_unlock(&t->lock);
  return failed ? e->code : AC_OK;
}

bool ac_track_fault(ac_track *t, ac_err *e) {
  pthread_mutex_lock(&t->lock);
  const bool failed = t->failed;
  if (failed) *e = t->why;
  pthread_mutex_unlock(&t->lock);
  return failed;
}

uint64_t ac_track_dropped(ac_track *t) {
  pthread_mutex_lock(&t->lock);
  const uint64_t n = t->dropped;
  pthread_mutex_unlock(&t->lock);
  return n;
}

const char *ac_track_path(const ac_track *t) { return t->path; }

ac_status ac_track_close(ac_track *t, ac_err *e) {
  delist(t);
  stop(t);
  const bool failed = t->failed;
  if (failed) *e = t->why;
  pthread_mutex_destroy(&t->lock);
  pthread_cond_destroy(&t->wake);
  pthread_cond_destroy(&t->done);
  release(t);
  return failed ? e->code : AC_OK;
}
