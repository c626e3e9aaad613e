/* What the tests of the service share: a service of the test's own, and clients of it. Everything here is static: one program a file. */
#ifndef AC_TEST_ATTACH_CLIENT_H
#define AC_TEST_ATTACH_CLIENT_H
#include "support/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "accel/attach.h"

static char *runtime_dir; /* XDG_RUNTIME_DIR of the tests */
static char token[65], folder[300];
static ac_attach *service;
static _Atomic int interrupts;

static size_t stacks(void *user, bool all, char *buf, size_t n) {
  (void)user, (void)all;
  return (size_t)snprintf(buf, n, "  train.lua:3: in main chunk\n");
}
static void interrupt(void *user) { atomic_fetch_add((_Atomic int *)user, 1); }

static ac_status open_service(const char *job, int rank, ac_attach **out, ac_err *e) {
  ac_attach_options o = AC_ATTACH_OPTIONS_INIT;
  o.job = job;
  o.rank = rank;
  o.ranks = 2;
  o.script = "train.lua";
  o.stacks = stacks;
  o.interrupt = interrupt;
  o.user = &interrupts;
  return ac_attach_open(&o, out, e);
}

static int setup(void **state) {
  ac_err e;
  (void)state;
  signal(SIGPIPE, SIG_IGN);
  runtime_dir = ac_test_tmp_path("run");
  mkdir(runtime_dir, 0700);
  setenv("XDG_RUNTIME_DIR", runtime_dir, 1);
  assert_ok(open_service("job", 0, &service, &e), e);
  snprintf(folder, sizeof folder, "%s/accel/%s", runtime_dir, ac_attach_job(service));
  char path[340];
  snprintf(path, sizeof path, "%s/token", folder);
  char *text = ac_test_read(path, NULL);
  memcpy(token, text, 64);
  free(text);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  ac_attach_close(service);
  assert_int_equal(rmdir(folder), -1); /* it went with the last rank */
  assert_int_equal(errno, ENOENT);
  free(runtime_dir);
  return 0;
}

static int dial(const char *name) {
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  const int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/%s", dir, name);
  assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
  close(dir);
  return fd;
}

static bool put(int fd, const char *text) {
  const uint32_t n = (uint32_t)strlen(text);
  const unsigned char head[4] = {(unsigned char)n, (unsigned char)(n >> 8), (unsigned char)(n >> 16), (unsigned char)(n >> 24)};
  return write(fd, head, 4) == 4 && write(fd, text, n) == (ssize_t)n;
}

/* The next frame, into a buffer of its own; "" at the end of the connection, "(nothing)" when none comes for two seconds. */
static const char *get(int fd) {
  static char text[2048];
  unsigned char head[4];
  size_t at = 0, n = 4;
  struct pollfd p = {.fd = fd, .events = POLLIN};
  for (char *to = (char *)head; at < n;) {
    if (poll(&p, 1, 2000) == 0) return "(nothing)";
    const ssize_t k = read(fd, to + at, n - at);
    if (k <= 0) return "";
    at += (size_t)k;
    if (to == (char *)head && at == 4) {
      n = (size_t)head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16;
      assert_true(n < sizeof text);
      text[n] = 0;
      at = 0;
      to = text;
    }
  }
  return text;
}

static const char *ask(int fd, const char *text) { return put(fd, text) ? get(fd) : ""; }

static uint32_t admitted(int fd) {
  char hello[80];
  uint32_t id = 0;
  snprintf(hello, sizeof hello, "hello %s", token);
  assert_int_equal(sscanf(ask(fd, hello), "ok %u", &id), 1);
  return id;
}

#endif
