/* The server of pages under connections that say nothing: who knows the token is answered at once, and keeps the connection. */
#include "support/test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "accel/http.h"
#include "comm/segment.h"

enum { IDLE = 300 };
static ac_http *h;

static int dial(void) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)ac_http_port(h)), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
  return fd;
}

static void answer(void *user, const ac_http_request *r, ac_http_answer *out) {
  (void)user;
  const char *token = ac_http_query(r, "token");
  out->status = token != NULL && strcmp(token, "right") == 0 ? 200 : 403;
}

/* The status of a GET; 0: none came within the turns. */
static int get(int fd, const char *token) {
  char text[200], got[2000];
  ac_err e;
  int status = 0;
  snprintf(text, sizeof text, "GET /?token=%s HTTP/1.1\r\nHost: x\r\n\r\n", token);
  if (send(fd, text, strlen(text), MSG_NOSIGNAL) != (ssize_t)strlen(text)) return 0;
  for (int turn = 0; turn < 200 && status == 0; turn++) {
    assert_ok(ac_http_poll(h, 0.005, answer, NULL, &e), e);
    const ssize_t n = recv(fd, got, sizeof got - 1, MSG_DONTWAIT);
    if (n == 0) return 0;
    got[n > 0 ? n : 0] = 0;
    if (n > 0) sscanf(got, "HTTP/1.1 %d", &status);
  }
  return status;
}

static void idle_connections(void **state) {
  int idle[IDLE];
  ac_err e;
  const int kept = dial();
  assert_int_equal(get(kept, "right"), 200);
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < IDLE; i++) idle[i] = dial();
    const int64_t began = aci_now_ns();
    const int fd = dial();
    assert_int_equal(get(fd, "right"), 200);
    if (aci_now_ns() - began > 2000000000) ac_test_late("an answer beside idle connections", (double)(aci_now_ns() - began) * 1e-9);
    assert_int_equal(get(kept, "right"), 200);
    assert_int_equal(get(fd, "wrong"), 403);
    close(fd);
    int open = 0;
    for (int turn = 0; turn < 20; turn++) assert_ok(ac_http_poll(h, 0, answer, NULL, &e), e);
    for (int i = 0; i < IDLE; i++) {
      char byte;
      open += recv(idle[i], &byte, 1, MSG_DONTWAIT) < 0;
      close(idle[i]);
    }
    assert_in_range(open, 0, 64);
  }
  close(kept);
}

/* A body of who has not shown the token is limited, whatever follows. */
static void large_body(void **state) {
  enum { LARGE = 2 << 20 };
  static char body[LARGE];
  char head[100], got[100];
  ac_err e;
  int status = 0;
  const int fd = dial();
  size_t sent = 0;
  snprintf(head, sizeof head, "POST /?token=right HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", (int)LARGE);
  assert_int_equal(send(fd, head, strlen(head), MSG_NOSIGNAL), strlen(head));
  for (int turn = 0; turn < 20000 && status == 0; turn++) {
    const ssize_t k = sent < LARGE ? send(fd, body + sent, LARGE - sent, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
    if (k > 0) sent += (size_t)k;
    assert_ok(ac_http_poll(h, 0, answer, NULL, &e), e);
    const ssize_t n = recv(fd, got, sizeof got - 1, MSG_DONTWAIT);
    if (n > 0) got[n] = 0, sscanf(got, "HTTP/1.1 %d", &status);
  }
  assert_int_equal(status, 413);
  close(fd);
}

int main(void) {
  ac_err e;
  ac_log_set(NULL, NULL, AC_LOG_OFF);
  if (ac_http_open(0, &h, &e) != AC_OK) {
    printf("skipped: %s\n", e.msg);
    return 77;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(idle_connections), cmocka_unit_test(large_body)};
  const int status = cmocka_run_group_tests(tests, NULL, NULL);
  ac_http_close(h);
  return status;
}
