/* What an agent of an elastic job takes from other agents (host/launch/agent): messages of the core as bytes, and frames of a connection.
 * Bytes that are damaged, short or made up are refused or change nothing but the membership, and the next connection works. */
#include "support/test.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch/agent/agent.h"

static uint64_t seed = 88172645463325252ull;
static uint64_t draw(uint64_t below) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return seed % below;
}

static aci_record record_of(uint32_t n) {
  aci_record r = {.number = 1 + draw(4), .run = 7, .committed = draw(9), .next_id = n, .n = n};
  for (uint32_t i = 0; i < n; i++) r.machine[i] = (aci_machine){.uid = 2 + i, .ranks = 3, .id = i};
  return r;
}

static aci_record record, got;
static unsigned char bytes[ACI_NET_FRAME];

static void test_wire(void **state) {
  (void)state;
  aci_member_msg out;
  static const uint32_t sizes[] = {1, 3, ACI_MEMBER_MAX};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    record = record_of(sizes[i]);
    const aci_member_msg msg = {.kind = ACI_MEMBER_RECORD, .seed = -1, .from = 5, .slot = 9, .record = &record};
    const size_t n = aci_member_pack(&msg, bytes);
    /* of exactly these bytes, so that a sanitizer sees a read behind them */
    unsigned char *exact = malloc(n);
    memcpy(exact, bytes, n);
    assert_true(aci_member_unpack(exact, n, &out, &got));
    assert_true(out.kind == msg.kind && out.slot == 9 && out.record == &got && got.n == sizes[i]);
    assert_memory_equal(got.machine, record.machine, sizes[i] * sizeof record.machine[0]);
    free(exact);
    for (size_t k = 0; k < n; k += k < 400 ? 1 : 97) {
      exact = malloc(k + 1);
      memcpy(exact, bytes, k);
      assert_false(aci_member_unpack(exact, k, &out, &got));
      free(exact);
    }
    assert_false(aci_member_unpack(bytes, n + sizeof(aci_machine), &out, &got));
  }
  /* a record that is empty, too large, of no generation, not in order, missing */
  for (int fault = 0; fault < 5; fault++) {
    record = record_of(3);
    const aci_member_msg msg = {.kind = ACI_MEMBER_ACCEPT, .record = fault < 4 ? &record : NULL};
    if (fault == 0) record.n = 0;
    if (fault == 1) record.number = 0;
    if (fault == 2) record.machine[2].id = record.machine[1].id;
    size_t n = aci_member_pack(&msg, bytes);
    if (fault == 3) { /* 2^32 - 1 machines */
      record.n = UINT32_MAX;
      memcpy(bytes + sizeof msg, &record, offsetof(aci_record, machine));
    }
    assert_false(aci_member_unpack(bytes, n, &out, &got));
  }
}

static void send_nothing(void *user, uint64_t to, const aci_member_msg *msg) { (void)user, (void)to, (void)msg; }
static void act(void *user, aci_member_act what, const aci_record *r) {
  (void)r;
  *(aci_member_act *)user = what;
}

/* The core is given whatever unpack lets through. */
static void test_damaged(void **state) {
  (void)state;
  static aci_member member;
  static aci_acceptor page;
  aci_member_act last = 0;
  int taken = 0;
  for (int job = 0; job < 40; job++) {
    const aci_member_options o = ACI_MEMBER_OPTIONS;
    const aci_member_host host = {.user = &last, .send = send_nothing, .act = act};
    memset(&page, 0, sizeof page);
    aci_member_init(&member, &o, &host, 2, &page, true, 1);
    for (int turn = 0; turn < 400; turn++) {
      record = record_of(1 + (uint32_t)draw(5));
      aci_member_msg msg = {.kind = (uint8_t)(1 + draw(ACI_MEMBER_DEAD)), .seed = (int16_t)draw(3), .id = (uint32_t)draw(6),
                            .from = 2 + draw(5), .seq = (uint64_t)turn, .slot = draw(6), .ballot = draw(4), .uid = 3};
      msg.flags = (uint8_t)draw(64);
      msg.record = draw(2) != 0 ? &record : NULL;
      size_t n = aci_member_pack(&msg, bytes);
      for (uint64_t k = draw(4); k > 0; k--) bytes[draw(n)] = (unsigned char)draw(256);
      aci_member_msg out;
      if (aci_member_unpack(bytes, n, &out, &got)) {
        taken++;
        aci_member_receive(&member, (uint64_t)turn * 50, &out);
      }
      if (last == ACI_MEMBER_DRAIN) aci_member_drained(&member, (uint64_t)turn * 50, draw(9), draw(9), 1);
      if (last == ACI_MEMBER_ENTER) aci_member_entered(&member, (uint64_t)turn * 50);
      last = 0;
      aci_member_tick(&member, (uint64_t)turn * 50);
    }
  }
  assert_true(taken > 4000);
}

/* ---- frames ---- */
static int taken;
static void take(void *user, uint64_t from, aci_frame type, const void *body, size_t n) {
  (void)user, (void)type;
  assert_true(from == 20 || from == 30 || from == 40);
  for (size_t i = 0; i < n; i++) taken += ((const unsigned char *)body)[i] == 7;
}

static void turns(aci_net *a, aci_net *b, int ms) {
  struct pollfd p[ACI_NET_POLLS];
  for (int i = 0; i < ms; i++) {
    poll(p, (nfds_t)aci_net_polls(a, p), 1);
    aci_net_serve(a);
    aci_net_serve(b);
  }
}

static void meet(aci_net *a, aci_net *b) {
  for (int i = 0; i < 200 && !(aci_net_hears(a, 30) && aci_net_hears(b, 20)); i++) turns(a, b, 50);
  assert_true(aci_net_hears(a, 30) && aci_net_hears(b, 20));
}

static void test_frames(void **state) {
  (void)state;
  ac_err e;
  char why[64], seeds[40];
  int port;
  aci_net *a, *b;
  const aci_job_key key = {.key = {1, 2, 3}};
  ac_log_set(NULL, NULL, AC_LOG_OFF);
  const int fd = aci_socket_listen("127.0.0.1", 0, &port, why, sizeof why);
  assert_true(fd >= 0);
  close(fd);
  snprintf(seeds, sizeof seeds, "127.0.0.1:%d", port);
  aci_net_hello own = {.uid = 20, .ranks = 1, .min = 1, .max = 2, .host = "a", .version = "1"}, other = own;
  other.uid = 30;
  assert_int_equal(aci_net_open(seeds, &key, "job", &own, take, NULL, &a, &e), AC_OK);
  assert_int_equal(aci_net_open(seeds, &key, "job", &other, take, NULL, &b, &e), AC_OK);
  assert_int_equal(own.seed, 0);
  assert_int_equal(other.seed, -1);
  meet(a, b);
  for (int i = 0; i < 3000; i++) {
    static const size_t sizes[] = {0, 1, 7, 16 + ACI_ADDRESS, sizeof(aci_net_hello), 500, ACI_NET_FRAME};
    const size_t n = i % 3 == 0 ? draw(300) : sizes[draw(7 - (i % 16 != 0))];
    memset(bytes, 7, sizeof bytes);
    for (size_t k = 0; k < n && k < 600; k++) bytes[k] = (unsigned char)draw(256);
    if (n == sizeof other) { /* one that fits as far as the first checks go */
      aci_net_hello h = other;
      for (uint64_t k = draw(5); k > 0; k--) ((unsigned char *)&h)[8 + draw(sizeof h - 8)] ^= (unsigned char)draw(256);
      h.uid = 30;
      memcpy(bytes, &h, sizeof h);
    }
    aci_net_send(b, 20, -1, (aci_frame)draw(9), bytes, n);
    if (i % 50 == 0) turns(a, b, 2);
    if (i % 500 == 0) meet(a, b);
  }
  meet(a, b);
  assert_true(taken > 0);
  /* addresses of agents that are gone, more than there is room for: another one still gets in */
  for (uint64_t i = 0; i < 2 * ACI_NET_PEERS; i++) {
    const uint64_t gone = 100 + i;
    memset(bytes, 0, 16 + ACI_ADDRESS);
    memcpy(bytes, &gone, sizeof gone);
    bytes[16] = 'x';
    aci_net_send(b, 20, -1, ACI_FRAME_BOOK, bytes, 16 + ACI_ADDRESS);
    if (i % 100 == 0) turns(a, b, 1);
  }
  turns(a, b, 5);
  aci_net *c;
  aci_net_hello third = {.uid = 40, .ranks = 1, .min = 1, .max = 2, .host = "c", .version = "1"};
  assert_int_equal(aci_net_open(seeds, &key, "job", &third, take, NULL, &c, &e), AC_OK);
  for (int i = 0; i < 100 && !aci_net_hears(a, 40); i++) {
    turns(a, b, 10);
    aci_net_serve(c);
  }
  assert_true(aci_net_hears(a, 40));
  assert_true(aci_net_who(a, 40) != NULL);
  aci_net_close(c);
  aci_net_close(b);
  aci_net_close(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_wire), cmocka_unit_test(test_damaged), cmocka_unit_test(test_frames)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
