/* Messages that a peer of the mesh may send, right and wrong: what is not of the protocol ends the link
 * with one reason and touches nothing; noise of every kind is survived. The peer is a socket pair. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/tcp/mesh_impl.h"

typedef struct pair {
  ac_world w;
  ac_group all;
  int ranks[2], fd;
  aci_mesh *m;
} pair;

static void open_pair(pair *p) {
  ac_err e;
  int fds[2];
  memset(p, 0, sizeof *p);
  p->w.place = (aci_place){.rank = 0, .size = 2, .local_size = 2, .machines = 1};
  p->w.timeout_ns = 1000000000;
  p->ranks[1] = 1;
  p->all = (ac_group){.world = &p->w, .slot = -1, .size = 2, .ranks = p->ranks};
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
  assert_ok(aci_mesh_new(&p->w, &p->m, &e), e);
  p->m->infos[1] = p->m->own;
  aci_mesh_adopt(p->m, 1, fds[0]);
  p->fd = fds[1];
}

static void close_pair(pair *p) {
  close(p->fd);
  aci_mesh_close(p->m, NULL);
}

static void give(const pair *p, const void *bytes, size_t n) {
  assert_int_equal(send(p->fd, bytes, n, MSG_NOSIGNAL), n);
}

static void give_frame(const pair *p, aci_message f, const void *body, size_t n) {
  give(p, &f, sizeof f);
  if (n > 0) give(p, body, n);
}

static void turns(pair *p) {
  for (int i = 0; i < 4; i++) aci_mesh_poll(p->m, 0);
}

/* ---- right ---- */
static void messages_pair_up(void **state) {
  pair p;
  ac_err e;
  char first[4] = "", second[4] = "", *all[2] = {first, second};
  open_pair(&p);
  /* the second is asked for before it comes, the first after; both in bits and pieces */
  const aci_message f = {.type = ACI_MSG_DATA, .first = 1, .number = 0, .channel = 9, .total = 4, .bytes = 4};
  give_frame(&p, f, "one", 4);
  turns(&p);
  aci_request v[2];
  for (int i = 0; i < 2; i++) {
    v[i] = (aci_request){.peer = 1, .channel = 9, .ptr = all[i], .bytes = 4};
    assert_ok(aci_mesh_start(p.m, &v[i], &e), e);
  }
  assert_true(v[0].over && !v[1].over);
  const aci_message g = {.type = ACI_MSG_DATA, .first = 1, .number = 1, .channel = 9, .total = 4, .bytes = 4};
  for (size_t i = 0; i < sizeof g; i++) {
    give(&p, (const char *)&g + i, 1);
    aci_mesh_poll(p.m, 0);
  }
  give(&p, "tw", 2);
  turns(&p);
  assert_int_equal(v[1].done, 2);
  give(&p, "o", 2);
  turns(&p);
  assert_true(v[1].over);
  assert_string_equal(first, "one");
  assert_string_equal(second, "two");
  close_pair(&p);
}

static void large_ones_wait_for_a_place(void **state) {
  enum { TOTAL = ACI_EAGER + 1000 };
  pair p;
  ac_err e;
  static unsigned char sent[TOTAL], got[TOTAL];
  for (int i = 0; i < TOTAL; i++) sent[i] = (unsigned char)(i * 7 + i / 251);
  open_pair(&p);
  aci_message f = {.type = ACI_MSG_DATA, .first = 1, .number = 5, .total = TOTAL, .bytes = ACI_EAGER}, answer;
  give_frame(&p, f, sent, ACI_EAGER);
  turns(&p);
  assert_true(recv(p.fd, &answer, sizeof answer, 0) < 0);
  aci_request v = {.peer = 1, .ptr = got, .bytes = TOTAL};
  assert_ok(aci_mesh_start(p.m, &v, &e), e);
  turns(&p);
  assert_int_equal(recv(p.fd, &answer, sizeof answer, 0), sizeof answer);
  assert_true(answer.type == ACI_MSG_GRANT && answer.number == 5);
  f.first = 0;
  f.bytes = TOTAL - ACI_EAGER;
  give_frame(&p, f, sent + ACI_EAGER, TOTAL - ACI_EAGER);
  turns(&p);
  assert_true(v.over);
  assert_memory_equal(sent, got, TOTAL);
  close_pair(&p);
}

/* ---- wrong ---- */
static void what_is_not_of_the_protocol(void **state) {
  static const aci_message wrong[] = {
      {.type = 0},
      {.type = 99},
      {.type = ACI_MSG_DESC, .bytes = 3},
      {.type = ACI_MSG_DESC, .bytes = ACI_CONTROL_MOST + 1},
      {.type = ACI_MSG_DESC, .bytes = UINT32_MAX},
      {.type = ACI_MSG_WAIT, .bytes = 8},
      {.type = ACI_MSG_ABORT, .bytes = 1},
      {.type = ACI_MSG_LEAVE, .bytes = 900},
      {.type = ACI_MSG_DATA, .first = 1, .total = 4, .bytes = 5},
      {.type = ACI_MSG_DATA, .first = 1, .total = UINT64_MAX, .bytes = ACI_EAGER},
      {.type = ACI_MSG_DATA, .first = 1, .total = ACI_EAGER + 1, .bytes = 1},
      {.type = ACI_MSG_DATA, .number = 3, .total = 9, .bytes = 9},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    static const unsigned char body[ACI_CONTROL_MOST];
    pair p;
    ac_err e;
    open_pair(&p);
    give_frame(&p, wrong[i], body, sizeof body);
    turns(&p);
    assert_fails(aci_mesh_check_end(p.m, &e), PEER, "rank 1 (", e);
    ac_test_contains(e.msg, "violates the protocol", __FILE__, __LINE__);
    assert_int_equal(e.rank, 1);
    close_pair(&p);
  }
}

/* A message goes on without having been granted, and beyond its end. */
static void too_much(void **state) {
  for (int granted = 0; granted < 2; granted++) {
    static unsigned char body[2 * ACI_EAGER], got[2 * ACI_EAGER + 8];
    pair p;
    ac_err e;
    open_pair(&p);
    memset(got, 0x5A, sizeof got);
    aci_request v = {.peer = 1, .ptr = got, .bytes = ACI_EAGER + 10};
    if (granted) assert_ok(aci_mesh_start(p.m, &v, &e), e);
    aci_message f = {.type = ACI_MSG_DATA, .first = 1, .total = ACI_EAGER + 10, .bytes = ACI_EAGER};
    give_frame(&p, f, body, ACI_EAGER);
    turns(&p);
    f.first = 0;
    f.bytes = granted ? 11 : 10;
    give_frame(&p, f, body, f.bytes);
    turns(&p);
    assert_fails(aci_mesh_check_end(p.m, &e), PEER, "violates the protocol", e);
    for (size_t i = ACI_EAGER; i < sizeof got; i++) assert_int_equal(got[i], 0x5A);
    if (granted) aci_mesh_cancel(p.m, &v);
    close_pair(&p);
  }
}

/* Texts from outside reach messages without what would move a terminal's cursor. */
static void leave_notice_text(void **state) {
  pair p;
  ac_err e;
  open_pair(&p);
  give_frame(&p, (aci_message){.type = ACI_MSG_LEAVE, .bytes = 9}, "a\033[2Jb:\n1", 9);
  turns(&p);
  assert_ok(aci_mesh_check_end(p.m, &e), e);
  assert_fails(aci_mesh_check(p.m, 1, 0, &e), PEER, "rank 1 left at a?[2Jb:?1 while", e);
  close_pair(&p);
}

/* Sequences of messages with bits turned over, cut anywhere. */
static void noise(void **state) {
  uint64_t seed = 99;
  static unsigned char stream[20000], place[3000];
  for (int round = 0; round < 400; round++) {
    size_t n = 0;
    for (int k = 0; k < 12 && n < sizeof stream - 2500; k++) {
      const uint64_t r = ac_test_random(&seed);
      aci_message f = {.type = (uint8_t)(r % 7),
                       .first = r >> 8 & 1,
                       .number = (uint32_t)(r >> 9 & 3),
                       .channel = r >> 11 & 1};
      f.total = f.bytes = f.type == ACI_MSG_DESC    ? sizeof(aci_desc)
                          : f.type == ACI_MSG_WAIT  ? sizeof(aci_wait_body)
                          : f.type == ACI_MSG_ABORT ? sizeof(aci_abort_body)
                          : f.type == ACI_MSG_GRANT ? 0
                                                    : (uint32_t)(r >> 12 & 1023) % 190;
      memcpy(stream + n, &f, sizeof f);
      n += sizeof f;
      for (uint32_t i = 0; i < f.bytes; i++)
        stream[n++] = (unsigned char)(r >> 20 & 1 ? ac_test_random(&seed) : 0);
    }
    for (int k = 0; k < round % 5; k++)
      stream[ac_test_random(&seed) % n] ^= (unsigned char)(1u << ac_test_random(&seed) % 8);
    pair p;
    ac_err e;
    open_pair(&p);
    aci_request v[3];
    for (int i = 0; i < 3; i++) {
      v[i] = (aci_request){
          .peer = 1, .channel = (uint64_t)i & 1, .ptr = place + 1000 * i, .bytes = (size_t)(i * 90)};
      assert_ok(aci_mesh_start(p.m, &v[i], &e), e);
    }
    for (size_t at = 0; at < n;) {
      const size_t k = 1 + ac_test_random(&seed) % 700;
      if (send(p.fd, stream + at, n - at < k ? n - at : k, MSG_NOSIGNAL) <= 0) break;
      at += k;
      aci_mesh_poll(p.m, 0);
    }
    turns(&p);
    for (int i = 0; i < 3; i++)
      if (!v[i].over) aci_mesh_cancel(p.m, &v[i]);
    close_pair(&p);
  }
}

/* A rank's word that it waits for this one makes a ring only if it knew of the wait that this one is in. */
static void rings_of_waits(void **state) {
  const int other = 1;
  const aci_desc before = {.seq = 1, .kind = AC_COLL_BARRIER}, mine = {.seq = 2, .kind = AC_COLL_BARRIER};
  const aci_message f = {.type = ACI_MSG_WAIT, .bytes = sizeof(aci_wait_body)};
  char text[512];
  pair p;
  open_pair(&p);
  aci_mesh_tell_wait(p.m, &before, &other, 1, true);
  aci_wait_body w = {.n = 1, .number = 5, .want = before};
  give_frame(&p, f, &w, sizeof w);
  turns(&p);
  assert_false(aci_mesh_wait_cycle(p.m, &before, &other, 1, text, sizeof text)); /* it knew of none */
  w.known_wait[0] = p.m->wait.number;
  give_frame(&p, f, &w, sizeof w);
  turns(&p);
  assert_true(aci_mesh_wait_cycle(p.m, &before, &other, 1, text, sizeof text));
  assert_non_null(strstr(text, "rank 1 waits for rank 0 in barrier"));
  aci_mesh_wait_over(p.m); /* what it lacked is on its way to it */
  aci_mesh_tell_wait(p.m, &mine, &other, 1, true);
  assert_false(aci_mesh_wait_cycle(p.m, &mine, &other, 1, text, sizeof text));
  close_pair(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(messages_pair_up),
      cmocka_unit_test(large_ones_wait_for_a_place),
      cmocka_unit_test(what_is_not_of_the_protocol),
      cmocka_unit_test(too_much),
      cmocka_unit_test(leave_notice_text),
      cmocka_unit_test(noise),
      cmocka_unit_test(rings_of_waits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
