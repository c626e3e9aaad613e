/* Fuzz entry of the messages of a link between two ranks (host/comm/tcp: in.c): whatever a peer sends, it ends the link with one reason
 * or is taken, and nothing outside the places of the transfers is touched. Built with libFuzzer by clang, with driver.c otherwise
 * (CMakeLists.txt here). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/tcp/mesh_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define REQUIRE(x) \
  if (!(x)) (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), abort())

enum { MOVES = 3, PLACE = 4096, EDGE = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static ac_world w;
  static unsigned char place[MOVES][PLACE + EDGE];
  ac_err e;
  aci_mesh *m;
  int fd[2];
  signal(SIGPIPE, SIG_IGN);
  ac_log_set(NULL, NULL, AC_LOG_OFF);
  memset(&w, 0, sizeof w);
  w.place = (aci_place){.rank = 0, .size = 2, .local_size = 2, .machines = 1};
  w.timeout_ns = 1000000000;
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd) == 0);
  REQUIRE(aci_mesh_new(&w, &m, &e) == AC_OK);
  m->infos[1] = m->own;
  aci_mesh_adopt(m, 1, fd[0]);
  memset(place, 0x5a, sizeof place);
  aci_request v[MOVES];
  for (int i = 0; i < MOVES; i++) {
    v[i] = (aci_request){.peer = 1, .channel = (uint64_t)i & 1, .ptr = place[i], .bytes = i == 2 ? 0 : (size_t)(i == 0 ? PLACE : 100)};
    REQUIRE(aci_mesh_start(m, &v[i], &e) == AC_OK);
  }
  for (size_t at = 0; at < n;) {
    const ssize_t k = send(fd[1], data + at, n - at < 700 ? n - at : 700, MSG_NOSIGNAL);
    if (k <= 0) break;
    at += (size_t)k;
    aci_mesh_poll(m, 0);
  }
  for (int i = 0; i < 4; i++) aci_mesh_poll(m, 0);
  e.msg[0] = 0;
  const ac_status st = aci_mesh_check_end(m, &e);
  for (const char *c = e.msg; st != AC_OK && *c != 0; c++) REQUIRE((unsigned char)*c >= ' ' && *c != 127);
  for (int i = 0; i < MOVES; i++) {
    if (!v[i].over) aci_mesh_cancel(m, &v[i]);
    for (size_t k = v[i].bytes; k < PLACE + EDGE; k++) REQUIRE(place[i][k] == 0x5a);
  }
  close(fd[1]);
  aci_mesh_close(m, NULL);
  return 0;
}
