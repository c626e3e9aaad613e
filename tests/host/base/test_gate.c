/* Who keeps a place at a gate when more come than there are places. */
#include "support/test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/gate.h"

static int lines;
static char last[1024];
static void keep(void *user, ac_log_level level, const char *area, const char *text) {
  (void)user, (void)level, (void)area;
  lines++;
  snprintf(last, sizeof last, "%s", text);
}

static const aci_gate_limits small = {.most = 6, .of_source = 3, .ns = 1000, .bytes = 10};

/* Comes in; the place that it displaces is refused. -1: nobody was displaced. */
static int come(aci_gate *g, uint64_t source, int64_t now, int *displaced) {
  bool displaces;
  const int i = aci_gate_find(g, source, now, &displaces);
  if (i < 0) return -1;
  *displaced = displaces ? i : -1;
  if (displaces) aci_gate_refuse(g, i, "somewhere", "others wait", "");
  aci_gate_enter(g, i, source, now);
  return i;
}

static void shares(void **state) {
  aci_gate g;
  int gone, place[9];
  aci_gate_init(&g, "test", "the gate", &small);
  for (int i = 0; i < 3; i++) place[i] = come(&g, 1, i, &gone), assert_int_equal(gone, -1);
  assert_true(aci_gate_take(&g, place[0], 5)); /* the oldest speaks: the next silent one goes */
  come(&g, 1, 3, &gone);
  assert_int_equal(gone, place[1]);
  for (int i = 0; i < 3; i++) place[4 + i] = come(&g, 2, 10 + i, &gone), assert_int_equal(gone, -1);
  come(&g, 3, 20, &gone); /* all are taken: the oldest silent one of all goes */
  assert_int_equal(gone, place[2]);
  assert_int_equal(g.closed, 2);
  assert_int_equal(lines, 1); /* reported once */
  assert_non_null(strstr(last, "the gate closed a connection from somewhere: others wait"));
}

static void trusted_ones_stay(void **state) {
  aci_gate g;
  int gone;
  bool displaces;
  aci_gate_init(&g, "test", "the gate", &small);
  for (int i = 0; i < 6; i++) aci_gate_trust(&g, come(&g, (uint64_t)i, 0, &gone));
  assert_int_equal(aci_gate_find(&g, 9, 1, &displaces), -1);
  aci_gate_leave(&g, 4);
  assert_int_equal(aci_gate_find(&g, 9, 1, &displaces), 4);
  assert_false(displaces);
}

static void bytes_and_time(void **state) {
  aci_gate g;
  int gone;
  aci_gate_init(&g, "test", "the gate", &small);
  const int i = come(&g, 1, 50, &gone);
  assert_true(aci_gate_take(&g, i, 10));
  assert_false(aci_gate_take(&g, i, 1));
  assert_false(aci_gate_late(&g, i, 1050));
  assert_true(aci_gate_late(&g, i, 1051));
}

/* In a flood, a newcomer has some time to answer. */
static void grace(void **state) {
  aci_gate g;
  int gone;
  aci_gate_limits limits = small;
  limits.grace_ns = 20;
  aci_gate_init(&g, "test", "the gate", &limits);
  for (int i = 0; i < 3; i++) come(&g, 1, 100 + i, &gone);
  assert_int_equal(come(&g, 1, 119, &gone), -1);
  assert_int_equal(come(&g, 1, 120, &gone), 0); /* the first one's time is over */
  assert_int_equal(gone, 0);
  assert_int_equal(come(&g, 1, 120, &gone), -1);
}

static uint64_t six(const char *text) {
  struct sockaddr_in6 a = {.sin6_family = AF_INET6};
  assert_int_equal(inet_pton(AF_INET6, text, &a.sin6_addr), 1);
  return aci_gate_source((const struct sockaddr *)&a);
}

static void sources(void **state) {
  struct sockaddr_in four = {.sin_family = AF_INET};
  inet_pton(AF_INET, "10.1.2.3", &four.sin_addr);
  assert_int_equal(aci_gate_source((const struct sockaddr *)&four), six("::ffff:10.1.2.3"));
  assert_int_equal(six("2001:db8:1:2::1"), six("2001:db8:1:2:ffff::9")); /* one network */
  assert_int_not_equal(six("2001:db8:1:2::1"), six("2001:db8:1:3::1"));
}

int main(void) {
  ac_log_set(keep, NULL, AC_LOG_WARN);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shares), cmocka_unit_test(trusted_ones_stay), cmocka_unit_test(bytes_and_time), cmocka_unit_test(grace),
      cmocka_unit_test(sources)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
