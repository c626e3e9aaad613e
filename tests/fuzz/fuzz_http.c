/* Fuzz entry of the page's server (host/track/http.c): whatever a client sends, its connection ends or gets an answer, and the next client
 * is served. Built with libFuzzer by clang, with driver.c otherwise (CMakeLists.txt here). */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "accel/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define REQUIRE(x) \
  if (!(x)) (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), abort())

static ac_http *server;
static bool absent;

static void finish(void) { ac_http_close(server); }

/* Looks at everything that a handler may look at. */
static void answer(void *user, const ac_http_request *r, ac_http_answer *out) {
  (void)user;
  static const char *const names[] = {"token", "ids", "a"};
  size_t n = 0, sum = strlen(ac_http_path(r)) + strlen(ac_http_method(r));
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const char *q = ac_http_query(r, names[i]), *h = ac_http_header(r, names[i]);
    sum += (q != NULL ? strlen(q) : 0) + (h != NULL ? strlen(h) : 0);
  }
  const char *body = ac_http_body(r, &n);
  for (size_t i = 0; i < n; i++) sum += (unsigned char)body[i];
  const char *token = ac_http_query(r, "token");
  out->status = token != NULL && strcmp(token, "right") == 0 ? 200 : sum % 2 == 0 ? 403 : 405;
}

static int dial(void) {
  struct sockaddr_in a = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)ac_http_port(server)), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
  return fd;
}

/* Sends and turns the server until the connection ends or nothing moves; the first bytes that came back are left in got. */
static void talk(const void *data, size_t n, char *got, size_t room) {
  const int fd = dial();
  char rest[4096];
  ac_err e;
  size_t at = 0;
  for (size_t sent = 0; sent < n;) {
    const ssize_t k = send(fd, (const char *)data + sent, n - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (k > 0) sent += (size_t)k;
    if (k <= 0 && errno != EAGAIN) break;
    REQUIRE(ac_http_poll(server, 0, answer, NULL, &e) == AC_OK);
  }
  shutdown(fd, SHUT_WR);
  for (int idle = 0; idle < 20; idle++) {
    const ssize_t k = recv(fd, rest, sizeof rest, MSG_DONTWAIT);
    if (k == 0 || (k < 0 && errno != EAGAIN)) break;
    if (k > 0 && at + 1 < room) {
      const size_t m = (size_t)k < room - 1 - at ? (size_t)k : room - 1 - at;
      memcpy(got + at, rest, m);
      at += m;
    }
    if (k > 0) idle = 0;
    REQUIRE(ac_http_poll(server, 0, answer, NULL, &e) == AC_OK);
  }
  got[at] = 0;
  close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static const char right[] = "GET /?token=right HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  char got[64];
  ac_err e;
  if (absent) return 0;
  if (server == NULL) {
    signal(SIGPIPE, SIG_IGN);
    ac_log_set(NULL, NULL, AC_LOG_OFF);
    absent = ac_http_open(0, &server, &e) != AC_OK;
    if (absent) return 0;
    atexit(finish);
  }
  talk(data, n, got, sizeof got);
  talk(right, sizeof right - 1, got, sizeof got);
  REQUIRE(strncmp(got, "HTTP/1.1 200", 12) == 0);
  return 0;
}
