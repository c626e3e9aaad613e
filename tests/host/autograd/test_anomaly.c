/* Anomaly mode: the first call whose backward makes a NaN is named with its line; other errors get the line, too;
 * without it nothing is asked. */
#include "host/autograd/graph.h"

#include <stdio.h>

static uint32_t line;
static int asked;
static uint32_t here(void *user) {
  asked++;
  return *(uint32_t *)user;
}
static const char *text(void *user, uint32_t site) {
  static char buf[32];
  snprintf(buf, sizeof buf, "step.c:%u", site);
  return buf;
}
static ac_sites sites = {here, text, &line};

static ac_status run(graph *g, ac_tensor *y, ac_err *e) {
  ac_status st = ac_backward(g->c, 1, &y, NULL, 0, NULL, NULL, e);
  return st;
}

/* sum(sqrt(x) * 0): the gradient of sqrt at 0 is 0 * inf. */
static ac_tensor *trouble(graph *g, ac_tensor *x) {
  ac_err e;
  ac_tensor *r = NULL;
  line = 7;
  assert_ok(ac_sqrt(g->c, x, &r, &e), e);
  line = 8;
  ac_tensor *z = scale(g, r, 0);
  line = 9;
  ac_tensor *s = sum(g, z);
  drop(z, r);
  return s;
}

static void names_the_line(void **state) {
  graph *g = *state;
  bool nan;
  ac_err e;
  ac_ctx_set_sites(g->c, &sites);
  ac_tensor *x = leaf_vector(g, 0, 1), *s;
  asked = 0;
  s = trouble(g, x);
  assert_ok(run(g, s, &e), e); /* off: a quiet NaN */
  assert_int_equal(asked, 0);
  ac_tensor_release(s);

  ac_ctx_set_anomaly(g->c, true, true);
  assert_true(ac_ctx_anomaly(g->c, &nan) && nan);
  s = trouble(g, x);
  assert_int_equal(run(g, s, &e), AC_GRAD);
  assert_non_null(strstr(e.msg, "backward of sqrt gave NaN as gradient of its input 1, shape (2)"));
  assert_non_null(strstr(e.msg, "step.c:7"));
  ac_tensor_release(s);

  /* without the look for NaN only errors get the line */
  ac_ctx_set_anomaly(g->c, true, false);
  s = trouble(g, x);
  assert_ok(run(g, s, &e), e);
  assert_int_equal(run(g, s, &e), AC_GRAD); /* a second time */
  assert_non_null(strstr(e.msg, "(backward of "));
  assert_non_null(strstr(e.msg, "called at step.c:"));
  ac_tensor_release(s);

  /* a graph from before the mode has no lines, and no sites may be known at all */
  ac_ctx_set_anomaly(g->c, false, true);
  s = trouble(g, x);
  ac_ctx_set_anomaly(g->c, true, true);
  assert_int_equal(run(g, s, &e), AC_GRAD);
  assert_non_null(strstr(e.msg, "was not recorded"));
  ac_ctx_set_sites(g->c, NULL);
  ac_tensor_release(s);
  s = trouble(g, x);
  assert_int_equal(run(g, s, &e), AC_GRAD);
  ac_ctx_set_anomaly(g->c, false, false);
  assert_false(ac_ctx_anomaly(g->c, NULL));
  drop(s, x);
}

static void seeds(void **state) {
  graph *g = *state;
  ac_err e;
  ac_ctx_set_anomaly(g->c, true, true);
  ac_tensor *x = leaf_vector(g, 1, 2), *y = scale(g, x, 2), *d = vector(g, 1, NAN);
  assert_int_equal(ac_backward(g->c, 1, &y, &d, 0, NULL, NULL, &e), AC_GRAD);
  assert_non_null(strstr(e.msg, "the gradient given for output 1 has NaN"));
  ac_ctx_set_anomaly(g->c, false, false);
  drop(d, y, x);
}

int main(void) {
  const struct CMUnitTest tests[] = {graph_test(names_the_line), graph_test(seeds)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
