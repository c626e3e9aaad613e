/* Fuzz entry of the service that lets other programs look into a rank (host/attach): what a client sends, before and after its token, ends its
 * connection or is answered, and the next client is served. Built with libFuzzer by clang, with driver.c otherwise (CMakeLists.txt here). */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "accel/attach.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define REQUIRE(x) \
  if (!(x)) (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), abort())

static char folder[64], hello[4 + 6 + 64];
static ac_attach *service;

static size_t stacks(void *user, bool all, char *buf, size_t n) {
  (void)user, (void)all;
  memset(buf, 'x', n);
  return n;
}

static void finish(void) {
  ac_attach_close(service);
  char path[96];
  snprintf(path, sizeof path, "%s/accel", folder);
  rmdir(path);
  rmdir(folder);
}

static void start(void) {
  ac_attach_options o = AC_ATTACH_OPTIONS_INIT;
  ac_err e;
  char path[140];
  signal(SIGPIPE, SIG_IGN);
  snprintf(folder, sizeof folder, "/tmp/accel-fuzz-XXXXXX");
  REQUIRE(mkdtemp(folder) != NULL);
  setenv("XDG_RUNTIME_DIR", folder, 1);
  o.stacks = stacks;
  REQUIRE(ac_attach_open(&o, &service, &e) == AC_OK);
  atexit(finish);
  snprintf(path, sizeof path, "%s/accel/%s/token", folder, ac_attach_job(service));
  memcpy(hello, "\x46\0\0\0hello ", 10); /* 70 bytes */
  const int fd = open(path, O_RDONLY);
  REQUIRE(fd >= 0 && read(fd, hello + 10, 64) == 64);
  close(fd);
}

static int dial(void) {
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  snprintf(a.sun_path, sizeof a.sun_path, "%s/accel/%s/rank0", folder, ac_attach_job(service));
  REQUIRE(fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
  return fd;
}

static int receive(int fd, void *to, size_t n) {
  struct pollfd p = {.fd = fd, .events = POLLIN};
  for (size_t at = 0; at < n;) {
    const ssize_t k = poll(&p, 1, 5000) > 0 ? recv(fd, (char *)to + at, n - at, 0) : 0;
    if (k <= 0) return 0;
    at += (size_t)k;
  }
  return 1;
}

/* Whether the next frame begins with this text. */
static int answers(int fd, const char *text) {
  unsigned char head[4];
  char got[64] = "";
  if (!receive(fd, head, 4) || head[0] >= sizeof got || (head[1] | head[2] | head[3]) != 0) return 0;
  return receive(fd, got, head[0]) && strncmp(got, text, strlen(text)) == 0;
}

static void take(const uint8_t *data, size_t n, int admitted) {
  const int fd = dial();
  if (admitted) {
    REQUIRE(send(fd, hello, sizeof hello, MSG_NOSIGNAL) == (ssize_t)sizeof hello);
    REQUIRE(answers(fd, "ok "));
  }
  for (size_t at = 0; at < n;) {
    const ssize_t k = send(fd, data + at, n - at, MSG_NOSIGNAL);
    if (k <= 0) break;
    at += (size_t)k;
  }
  shutdown(fd, SHUT_WR);
  char rest[4096];
  while (recv(fd, rest, sizeof rest, 0) > 0) continue; /* until it has ended the connection */
  close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (service == NULL) start();
  take(data, n, 0);
  take(data, n, 1);
  const int fd = dial();
  REQUIRE(send(fd, hello, sizeof hello, MSG_NOSIGNAL) == (ssize_t)sizeof hello);
  REQUIRE(answers(fd, "ok "));
  REQUIRE(send(fd, "\6\0\0\0status", 10, MSG_NOSIGNAL) == 10);
  REQUIRE(answers(fd, "step 0"));
  close(fd);
  return 0;
}
