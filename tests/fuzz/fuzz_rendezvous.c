/* Fuzz entry of what a stranger may send to the port of a job (host/comm/tcp: auth.c, door.c) and a program that listens in place of rank 0
 * to a rank: nobody gets in, each connection ends, and a rank that knows the secret gets in afterwards. The bytes are also an info that an
 * authenticated rank shows. Built with libFuzzer by clang, with driver.c otherwise (CMakeLists.txt here). */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/tcp/door.h"
#include "comm/tcp/rendezvous.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define REQUIRE(x) \
  if (!(x)) (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), abort())

static ac_world world;
static aci_mesh *mesh;
static aci_door *door;
static int listener, port, admitted;

static void finish(void) {
  aci_door_free(door);
  close(listener);
  aci_mesh_close(mesh, NULL);
}

static void start(void) {
  ac_err e;
  char why[64];
  static const uint8_t key[ACI_HMAC] = {1, 2, 3};
  signal(SIGPIPE, SIG_IGN);
  ac_log_set(NULL, NULL, AC_LOG_OFF);
  world.place = (aci_place){.rank = 0, .size = 4, .local_size = 2, .machines = 2, .run_id = "job"};
  world.timeout_ns = 1000000000;
  REQUIRE(aci_mesh_new(&world, &mesh, &e) == AC_OK);
  aci_mesh_set_key(mesh, key);
  listener = aci_socket_listen("127.0.0.1", 0, &port, why, sizeof why);
  REQUIRE(listener >= 0);
  door = aci_door_new(mesh, ACI_FOR_RENDEZVOUS, NULL, listener);
  REQUIRE(door != NULL);
  atexit(finish);
}

static void admit(void *user, int fd, int from, int size) {
  (void)user;
  REQUIRE(from == 2 && size == 4);
  admitted++;
  close(fd);
}

static void turn(void) {
  struct pollfd p[ACI_DOOR_POLLS];
  poll(p, (nfds_t)aci_door_polls(door, p), 1);
  aci_door_serve(door, admit, NULL);
}

static int dial(void) {
  char why[64];
  const int fd = aci_socket_dial("127.0.0.1", port, why, sizeof why);
  struct pollfd p = {.fd = fd, .events = POLLOUT};
  REQUIRE(fd >= 0 && poll(&p, 1, 5000) == 1 && aci_socket_error(fd) == 0);
  return fd;
}

static aci_auth rank_2(void) {
  return (aci_auth){.key = mesh->key.key, .run_id = mesh->run_id, .purpose = ACI_FOR_RENDEZVOUS, .from = 2, .world = 4};
}

/* To the door. */
static void stranger(const uint8_t *data, size_t n) {
  const int fd = dial();
  (void)!send(fd, data, n, MSG_NOSIGNAL);
  shutdown(fd, SHUT_WR);
  char rest[256];
  size_t got = 0;
  for (int i = 0;; i++) {
    const ssize_t k = recv(fd, rest, sizeof rest, 0);
    if (k > 0) got += (size_t)k;
    if (k == 0 || (k < 0 && errno != EAGAIN)) break;
    REQUIRE(i < 1000);
    turn();
  }
  REQUIRE(got <= ACI_CHALLENGE && admitted == 0);
  close(fd);
}

/* To a rank that dials, and to a listener without a network between. */
static void impostor(const uint8_t *data, size_t n, bool listens) {
  int fd[2];
  size_t taken;
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd) == 0);
  aci_auth a = rank_2();
  a.listens = listens;
  (void)!send(fd[1], data, n < 4096 ? n : 4096, MSG_NOSIGNAL);
  shutdown(fd[1], SHUT_WR);
  aci_auth_state s = ACI_AUTH_MORE;
  for (int i = 0; i < 4 && s == ACI_AUTH_MORE; i++) s = aci_auth_step(&a, fd[0], &taken);
  REQUIRE(s == ACI_AUTH_FAILED && aci_auth_why(&a)[0] != 0);
  close(fd[0]);
  close(fd[1]);
}

static void info(const uint8_t *data, size_t n) {
  aci_peer_info theirs = mesh->own;
  char text[400];
  bool foreign;
  memcpy(&theirs, data, n < sizeof theirs ? n : sizeof theirs);
  const ac_status st = aci_peer_info_check(&mesh->own, &theirs, &foreign, text, sizeof text);
  for (const char *c = text; st != AC_OK && *c != 0; c++) REQUIRE((unsigned char)*c >= ' ' && *c != 127);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  const char *version;
  if (aci_hmac_library(&version, NULL) != AC_OK) return 0;
  if (door == NULL) start();
  stranger(data, n);
  impostor(data, n, false);
  impostor(data, n, true);
  info(data, n);
  aci_auth a = rank_2();
  size_t taken;
  const int fd = dial();
  aci_auth_state s = ACI_AUTH_MORE;
  for (int i = 0; i < 1000 && s == ACI_AUTH_MORE; i++) {
    turn();
    s = aci_auth_step(&a, fd, &taken);
  }
  REQUIRE(s == ACI_AUTH_DONE);
  REQUIRE(admitted == 1);
  admitted = 0;
  close(fd);
  return 0;
}
