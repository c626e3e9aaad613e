/* The handshake of connections, both ends in this process: who gets in, and what does not: other secrets, recordings, reflections,
 * cut and changed messages. Then the cost of one. */
#include "support/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/segment.h"
#include "comm/tcp/auth.h"

static const uint8_t key[ACI_HMAC] = {1, 2, 3}, other_key[ACI_HMAC] = {1, 2, 4};

typedef struct pair {
  aci_auth d, l; /* dialer, listener */
  int fd[2];     /* theirs */
  aci_auth_state ds, ls;
} pair;

static void open_pair(pair *p) {
  memset(p, 0, sizeof *p);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, p->fd), 0);
  p->d = (aci_auth){.key = key, .run_id = "job", .purpose = ACI_FOR_LINK, .from = 3, .to = 1, .world = 4, .token = {9}};
  p->l = (aci_auth){.key = key, .run_id = "job", .purpose = ACI_FOR_LINK, .to = 1, .token = {9}, .listens = true, .generation = 2};
}

static void close_pair(pair *p) {
  close(p->fd[0]);
  close(p->fd[1]);
}

/* Until nothing moves. */
static void meet(pair *p) {
  size_t n;
  for (int i = 0; i < 8; i++) {
    if (p->ls == ACI_AUTH_MORE) p->ls = aci_auth_step(&p->l, p->fd[1], &n);
    if (p->ds == ACI_AUTH_MORE) p->ds = aci_auth_step(&p->d, p->fd[0], &n);
    if (p->ls == ACI_AUTH_FAILED) shutdown(p->fd[1], SHUT_RDWR); /* as the door does */
    if (p->ds == ACI_AUTH_FAILED) shutdown(p->fd[0], SHUT_RDWR);
  }
}

static void both_know(void **state) {
  pair p;
  open_pair(&p);
  meet(&p);
  assert_int_equal(p.ds, ACI_AUTH_DONE);
  assert_int_equal(p.ls, ACI_AUTH_DONE);
  assert_int_equal(p.l.from, 3);
  assert_int_equal(p.l.world, 4);
  assert_int_equal(p.d.generation, 2);
  assert_int_equal(send(p.fd[0], "x", 1, 0), 1); /* what follows is left to the caller */
  char byte;
  assert_int_equal(recv(p.fd[1], &byte, 1, 0), 1);
  close_pair(&p);
  open_pair(&p);
  p.d.key = p.l.key = NULL; /* --insecure */
  meet(&p);
  assert_true(p.ds == ACI_AUTH_DONE && p.ls == ACI_AUTH_DONE);
  close_pair(&p);
}

static void ends_that_differ(void **state) {
  for (int i = 0; i < 7; i++) {
    pair p;
    open_pair(&p);
    if (i == 0) p.d.key = other_key;
    if (i == 1) p.d.run_id = "another job";
    if (i == 2) p.d.token[15] = 1; /* another world */
    if (i == 3) p.d.to = 2;
    if (i == 4) p.d.purpose = ACI_FOR_RENDEZVOUS;
    if (i == 5) p.d.key = NULL;
    if (i == 6) p.l.key = NULL;
    meet(&p);
    if (p.ls != ACI_AUTH_FAILED || p.ds != ACI_AUTH_FAILED) fail_msg("case %d got in", i);
    if (i < 3) assert_int_equal(p.l.fault, ACI_AUTH_NO_PROOF);
    if (i < 3) assert_int_equal(p.d.fault, ACI_AUTH_REFUSED);
    if (i == 5) assert_true(p.l.fault == ACI_AUTH_THEY_OPEN && p.d.fault == ACI_AUTH_WE_OPEN);
    if (i == 6) assert_true(p.l.fault == ACI_AUTH_WE_OPEN && p.d.fault == ACI_AUTH_THEY_OPEN);
    close_pair(&p);
  }
  /* with --insecure the token still tells worlds apart */
  pair p;
  open_pair(&p);
  p.d.key = p.l.key = NULL;
  p.d.token[3] = 7;
  meet(&p);
  assert_true(p.ls == ACI_AUTH_FAILED && p.ds == ACI_AUTH_FAILED);
  close_pair(&p);
}

/* Both directions of a handshake that went well. */
static void record(uint8_t *response, uint8_t *confirm) {
  pair p;
  size_t n;
  uint8_t m[ACI_CHALLENGE];
  int middle[2];
  open_pair(&p);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, middle), 0);
  aci_auth_step(&p.l, p.fd[1], &n); /* listener - fd[1] : fd[0] - we - middle[0] : middle[1] - dialer */
  assert_int_equal(recv(p.fd[0], m, sizeof m, 0), sizeof m);
  assert_int_equal(send(middle[0], m, sizeof m, 0), sizeof m);
  assert_int_equal(aci_auth_step(&p.d, middle[1], &n), ACI_AUTH_MORE);
  assert_int_equal(recv(middle[0], response, ACI_RESPONSE, 0), ACI_RESPONSE);
  assert_int_equal(send(p.fd[0], response, ACI_RESPONSE, 0), ACI_RESPONSE);
  assert_int_equal(aci_auth_step(&p.l, p.fd[1], &n), ACI_AUTH_DONE);
  assert_int_equal(recv(p.fd[0], confirm, ACI_CONFIRM, 0), ACI_CONFIRM);
  close_pair(&p);
  close(middle[0]);
  close(middle[1]);
}

static void recordings(void **state) {
  uint8_t response[ACI_RESPONSE], confirm[ACI_CONFIRM], m[ACI_CHALLENGE];
  pair p;
  size_t n;
  record(response, confirm);
  open_pair(&p); /* played to a listener */
  aci_auth_step(&p.l, p.fd[1], &n);
  assert_int_equal(recv(p.fd[0], m, sizeof m, 0), sizeof m);
  send(p.fd[0], response, sizeof response, 0);
  assert_int_equal(aci_auth_step(&p.l, p.fd[1], &n), ACI_AUTH_FAILED);
  assert_int_equal(p.l.fault, ACI_AUTH_NO_PROOF);
  assert_true(recv(p.fd[0], m, 1, 0) < 0); /* and it said no byte more */
  close_pair(&p);
  open_pair(&p); /* played to a dialer */
  send(p.fd[1], m, sizeof m, 0);
  assert_int_equal(aci_auth_step(&p.d, p.fd[0], &n), ACI_AUTH_MORE);
  send(p.fd[1], confirm, sizeof confirm, 0);
  assert_int_equal(aci_auth_step(&p.d, p.fd[0], &n), ACI_AUTH_FAILED);
  assert_int_equal(p.d.fault, ACI_AUTH_NO_PROOF);
  close_pair(&p);
}

/* A peer without the secret plays a listener's challenge to a dialer, and the dialer's own proof back to it. */
static void reflections(void **state) {
  uint8_t challenge[ACI_CHALLENGE], response[ACI_RESPONSE], confirm[ACI_CONFIRM];
  pair p;
  size_t n;
  open_pair(&p);
  aci_auth_step(&p.l, p.fd[1], &n);
  assert_int_equal(recv(p.fd[0], challenge, sizeof challenge, 0), sizeof challenge);
  assert_int_equal(send(p.fd[1], challenge, sizeof challenge, 0), sizeof challenge);
  assert_int_equal(aci_auth_step(&p.d, p.fd[0], &n), ACI_AUTH_MORE);
  assert_int_equal(recv(p.fd[1], response, sizeof response, 0), sizeof response);
  memcpy(confirm, challenge, 8);
  memcpy(confirm + 8, response + ACI_RESPONSE - ACI_HMAC, ACI_HMAC);
  send(p.fd[1], confirm, sizeof confirm, 0);
  assert_int_equal(aci_auth_step(&p.d, p.fd[0], &n), ACI_AUTH_FAILED);
  assert_int_equal(p.d.fault, ACI_AUTH_NO_PROOF);
  close_pair(&p);
  open_pair(&p); /* a challenge sent back as a response */
  aci_auth_step(&p.l, p.fd[1], &n);
  memset(response, 0, sizeof response);
  assert_int_equal(recv(p.fd[0], response, ACI_CHALLENGE, 0), ACI_CHALLENGE);
  send(p.fd[0], response, sizeof response, 0);
  assert_int_equal(aci_auth_step(&p.l, p.fd[1], &n), ACI_AUTH_FAILED);
  close_pair(&p);
}

static void cut_and_changed(void **state) {
  for (size_t at = 0; at < 9 * ACI_RESPONSE; at++) {
    uint8_t m[ACI_RESPONSE];
    pair p;
    size_t n;
    open_pair(&p);
    aci_auth_step(&p.l, p.fd[1], &n);
    assert_int_equal(aci_auth_step(&p.d, p.fd[0], &n), ACI_AUTH_MORE);
    assert_int_equal(recv(p.fd[1], m, sizeof m, 0), sizeof m);
    const bool cut = at >= 8 * ACI_RESPONSE;
    if (!cut) m[at / 8] ^= (uint8_t)(1u << at % 8);
    send(p.fd[0], m, cut ? at - 8 * ACI_RESPONSE : sizeof m, 0);
    if (cut) shutdown(p.fd[0], SHUT_WR);
    const aci_auth_state s = aci_auth_step(&p.l, p.fd[1], &n);
    if (s != ACI_AUTH_FAILED) fail_msg("%s at %zu: %d", cut ? "cut" : "bit changed", at, (int)s);
    close_pair(&p);
  }
}

/* Byte by byte it is the same handshake. */
static void slowly(void **state) {
  pair p;
  size_t n;
  uint8_t m[ACI_RESPONSE];
  open_pair(&p);
  aci_auth_step(&p.l, p.fd[1], &n);
  assert_int_equal(recv(p.fd[0], m, ACI_CHALLENGE, 0), ACI_CHALLENGE);
  for (int i = 0; i < ACI_CHALLENGE; i++) {
    assert_int_equal(send(p.fd[1], m + i, 1, 0), 1);
    assert_int_equal(aci_auth_step(&p.d, p.fd[0], &n), ACI_AUTH_MORE);
  }
  assert_int_equal(recv(p.fd[1], m, sizeof m, 0), sizeof m);
  for (int i = 0; i < ACI_RESPONSE; i++) {
    assert_int_equal(send(p.fd[0], m + i, 1, 0), 1);
    assert_int_equal(aci_auth_step(&p.l, p.fd[1], &n), i + 1 < ACI_RESPONSE ? ACI_AUTH_MORE : ACI_AUTH_DONE);
  }
  assert_int_equal(aci_auth_step(&p.d, p.fd[0], &n), ACI_AUTH_DONE);
  close_pair(&p);
}

static void cost(void **state) {
  enum { N = 200 };
  const int64_t began = aci_now_ns();
  for (int i = 0; i < N; i++) {
    pair p;
    open_pair(&p);
    meet(&p);
    assert_int_equal(p.ds, ACI_AUTH_DONE);
    close_pair(&p);
  }
  print_message("a handshake takes %.1f us of one core\n", (double)(aci_now_ns() - began) / N / 1e3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(both_know),   cmocka_unit_test(ends_that_differ), cmocka_unit_test(recordings), cmocka_unit_test(reflections),
      cmocka_unit_test(cut_and_changed), cmocka_unit_test(slowly),       cmocka_unit_test(cost),
  };
  const char *version;
  ac_err e;
  if (aci_hmac_library(&version, &e) != AC_OK) {
    printf("skipped: %s\n", e.msg);
    return 77;
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
