/* Regions that are computed again: gradients, when and how far the second run goes, nesting, what is freed when, and
 * what a second run that differs is told. */
#include "host/autograd/graph.h"

/* The region: n exponentials of x in a row; may do otherwise when it runs again. */
typedef struct region {
  graph *g;
  int n, runs, ops, freed, stops;
  int again; /* the second run: 0 the same, 1 one exponential less, 2 one more, 3 of another shape, 4 fails */
  struct region *inner; /* in place of the exponentials */
} region;

static ac_status again(void *user, ac_recompute *r, int n_args, ac_tensor *const *args, ac_err *e);
static void region_free(void *user) { ((region *)user)->freed++; }
static void region_stop(void *user) { ((region *)user)->stops++; }

static ac_status chain(region *u, ac_tensor *x, int n, ac_tensor **out, ac_err *e) {
  ac_tensor *y = x;
  ac_tensor_retain(y);
  for (int i = 0; i < n; i++) {
    ac_tensor *z = NULL;
    u->ops++;
    ac_status st = ac_exp(u->g->c, y, &z, e);
    ac_tensor_release(y);
    if (st != AC_OK) return st;
    y = z;
  }
  *out = y;
  return AC_OK;
}

static ac_status forward(region *u, ac_tensor *x, bool early, bool check, ac_tensor **out, ac_err *e) {
  const ac_recompute_spec spec = {sizeof spec, again, region_free, region_stop, u, early, check};
  ac_recompute *r;
  AC_TRY(ac_recompute_new(u->g->c, &spec, 1, &x, &r, e));
  ac_recompute_enter(r);
  ac_status st = u->inner != NULL ? forward(u->inner, x, early, check, out, e) : chain(u, x, u->n, out, e);
  ac_recompute_leave(r);
  ac_recompute_release(r);
  return st;
}

static ac_status again(void *user, ac_recompute *r, int n_args, ac_tensor *const *args, ac_err *e) {
  region *u = user;
  assert_int_equal(n_args, 1);
  assert_true(ac_ctx_grad_enabled(u->g->c));
  u->runs++;
  if (u->again == 4) return AC_FAIL(e, IO, "no second run");
  ac_tensor *y = NULL, *x = args[0];
  ac_tensor_retain(x);
  if (u->again == 3) {
    ac_tensor *s = sum(u->g, x);
    ac_tensor_release(x);
    x = s;
  }
  ac_recompute_enter(r);
  ac_status st = u->inner != NULL ? forward(u->inner, x, true, true, &y, e)
                                  : chain(u, x,
                                          u->n + (u->again == 1   ? -1
                                                  : u->again == 2 ? 1
                                                                  : 0),
                                          &y, e);
  ac_recompute_leave(r);
  ac_tensor_release(x);
  ac_tensor_release(y);
  return st;
}

static ac_tensor *run(region *u, ac_tensor *x, bool early, bool check) {
  ac_tensor *y = NULL;
  ac_err e;
  assert_ok(forward(u, x, early, check, &y, &e), e);
  return y;
}

/* The derivative of n exponentials in a row. */
static double slope(double x, int n) {
  double d = 1;
  for (int i = 0; i < n; i++) x = exp(x), d *= x;
  return d;
}

static void gradients(void **state) {
  graph *g = *state;
  for (int early = 0; early < 2; early++) {
    region u = {.g = g, .n = 3};
    ac_tensor *x = leaf_vector(g, 0.1, -0.2), *y = run(&u, x, early, true), *s = sum(g, y);
    assert_int_equal(u.ops, 3);
    backward(g, s);
    assert_int_equal(u.runs, 1);
    assert_int_equal(u.stops, early);
    assert_int_equal(u.ops, 6);
    assert_int_equal(u.freed, 1); /* as the last node was through */
    assert_values(ac_tensor_grad(x), slope(0.1, 3), slope(-0.2, 3));
    drop(s, y, x);
  }
}

/* Activations inside are gone after the forward. */
static void memory(void **state) {
  graph *g = *state;
  static double zeros[64];
  region u = {.g = g, .n = 3};
  ac_tensor *x = leaf(g, 0, 64, zeros), *s, *y;
  const size_t before = graph_bytes(g);
  y = run(&u, x, true, true);
  s = sum(g, y);
  ac_tensor_release(y);
  const size_t after = graph_bytes(g);
  assert_true(after - before < 64 * sizeof(double)); /* the sum alone */
  backward(g, s);
  drop(s, x);
}

/* What nobody needs any more is not computed: the last exponential's result is used outside only. */
static void early_stop(void **state) {
  graph *g = *state;
  region u = {.g = g, .n = 4}, v = {.g = g, .n = 0};
  ac_tensor *x = leaf_vector(g, 0.3), *m = scale(g, x, 1), *y = run(&u, m, true, true), *d = NULL, *s;
  ac_err e;
  /* forgotten: the graph of y goes, with it the region */
  ac_tensor_release(y);
  assert_int_equal(u.freed, 1);
  u = (region){.g = g, .n = 4};
  y = run(&u, m, true, true);
  assert_ok(ac_tensor_detach(y, &d, &e), e);
  s = sum(g, y);
  assert_ok(ac_backward(g->c, 1, &s, NULL, 0, NULL, &graph_retain, &e), e);
  assert_int_equal(u.ops, 8);
  /* again, since the graph was kept: everything is computed once more */
  assert_ok(ac_backward(g->c, 1, &s, NULL, 0, NULL, NULL, &e), e);
  assert_int_equal(u.runs, 2);
  assert_int_equal(u.freed, 1);
  assert_values(ac_tensor_grad(x), 2 * slope(0.3, 4));
  /* a region that saves nothing is freed when it is left */
  ac_tensor *z = run(&v, x, true, true);
  assert_int_equal(v.freed, 1);
  drop(z, d, s, y, m, x);
}

static void nested(void **state) {
  graph *g = *state;
  region inner = {.g = g, .n = 2}, outer = {.g = g, .inner = &inner};
  ac_tensor *x = leaf_vector(g, 0.1, 0.2), *m = scale(g, x, 2), *y = run(&outer, m, true, true),
            *s = sum(g, y);
  backward(g, s);
  assert_int_equal(outer.runs, 1);
  assert_int_equal(outer.freed, 1);
  assert_true(inner.runs >= 1);
  assert_values(ac_tensor_grad(x), 2 * slope(0.2, 2), 2 * slope(0.4, 2));
  drop(s, y, m, x);
}

static void second_derivative(void **state) {
  graph *g = *state;
  region u = {.g = g, .n = 2};
  ac_err e;
  ac_tensor *x = leaf_vector(g, 0.1), *y = run(&u, x, true, true), *d = NULL, *dd = NULL;
  assert_ok(ac_gradients(g->c, 1, &y, NULL, 1, &x, false, &graph_create, &d, &e), e);
  assert_ok(ac_gradients(g->c, 1, &d, NULL, 1, &x, false, NULL, &dd, &e), e);
  /* (exp(exp x))'' = exp(exp x) (exp(x)^2 + exp x) */
  assert_values(d, slope(0.1, 2));
  assert_values(dd, exp(exp(0.1)) * (exp(0.2) + exp(0.1)));
  drop(dd, d, y, x);
}

static void differs(void **state) {
  graph *g = *state;
  static const struct {
    int again;
    bool early, check, ok;
    ac_status code;
    const char *says;
  } cases[] = {
      {1, true, true, false, AC_STATE, "saved 2 tensors, in the forward 3"},
      {1, false, true, false, AC_STATE, "saved 2 tensors, in the forward 3"},
      {1, false, false, false, AC_STATE, "did not save tensor 3 of 3"},
      {2, true, true, true, AC_OK, NULL}, /* stopped before */
      {2, false, true, false, AC_STATE, "more tensors than the 3"},
      {2, false, false, true, AC_OK, NULL},
      {3, true, true, false, AC_STATE,
       "saved tensor 1 of 3 is f64 () on cpu; in the forward it was f64 (2) on cpu"},
      {4, true, true, false, AC_IO, "no second run"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    region u = {.g = g, .n = 3, .again = cases[i].again};
    ac_err e;
    ac_tensor *x = leaf_vector(g, 0.1, 0.2), *y = run(&u, x, cases[i].early, cases[i].check), *s = sum(g, y);
    ac_status st = ac_backward(g->c, 1, &s, NULL, 0, NULL, NULL, &e);
    if (cases[i].ok) {
      assert_ok(st, e);
    } else {
      assert_int_equal(st, cases[i].code);
      assert_non_null(strstr(e.msg, cases[i].says));
      u.again = 0; /* it may be tried again */
      assert_ok(ac_backward(g->c, 1, &s, NULL, 0, NULL, NULL, &e), e);
    }
    assert_values(ac_tensor_grad(x), slope(0.1, 3), slope(0.2, 3));
    drop(s, y, x);
    assert_int_equal(u.freed, 1);
  }
}

static void written_argument(void **state) {
  graph *g = *state;
  region u = {.g = g, .n = 1};
  ac_err e;
  ac_tensor *x = leaf_vector(g, 0.1), *m = scale(g, x, 1), *o = NULL, *y = run(&u, m, true, true),
            *s = sum(g, y);
  const bool was = ac_ctx_set_grad_enabled(g->c, false);
  assert_ok(ac_zero_(g->c, m, &o, &e), e);
  ac_ctx_set_grad_enabled(g->c, was);
  assert_int_equal(ac_backward(g->c, 1, &s, NULL, 0, NULL, NULL, &e), AC_VERSION);
  assert_non_null(strstr(e.msg, "argument 1 was changed in place"));
  drop(o, s, y, m, x);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      graph_test(gradients),         graph_test(memory),  graph_test(early_stop),       graph_test(nested),
      graph_test(second_derivative), graph_test(differs), graph_test(written_argument),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
