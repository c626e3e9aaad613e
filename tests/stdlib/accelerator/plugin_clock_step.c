/* Stands before the C library (LD_PRELOAD): the clock of the day is ACCEL_TEST_CLOCK_STEP seconds off, as after somebody has set it.
 * For checkpoint_age_test.lua. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t step(void) {
  const char *s = getenv("ACCEL_TEST_CLOCK_STEP");
  return s != NULL ? (time_t)atoll(s) : 0;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *t) {
  const int rc = (int)syscall(SYS_clock_gettime, id, t);
  if (rc == 0 && id == CLOCK_REALTIME) t->tv_sec += step();
  return rc;
}

__attribute__((visibility("default"))) time_t time(time_t *out) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  if (out != NULL) *out = t.tv_sec;
  return t.tv_sec;
}

__attribute__((visibility("default"))) int gettimeofday(struct timeval *restrict t, void *restrict zone) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  t->tv_sec = now.tv_sec;
  t->tv_usec = now.tv_nsec / 1000;
  (void)zone;
  return 0;
}
