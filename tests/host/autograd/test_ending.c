/* Callbacks queued for the end of a backward: once, in order, after everything was accumulated, before it returns;
 * at the end of the outermost one; not after a failure; freed always. */
#include "host/autograd/graph.h"

typedef struct watcher {
  graph *g;
  ac_tensor *x;
  int runs, frees, hooks;
  double seen[4]; /* x's gradient when it ran */
  bool grad_mode, nested, again;
  ac_status fails, inside; /* what the callback answers; what a backward inside the hook said */
} watcher;

static void watcher_free(void *user) { ((watcher *)user)->frees++; }

static ac_status at_end(void *user, ac_err *e) {
  watcher *w = user;
  if (ac_tensor_grad(w->x) != NULL) values(ac_tensor_grad(w->x), &w->seen[w->runs % 4]);
  w->grad_mode = ac_ctx_grad_enabled(w->g->c);
  w->runs++;
  if (w->again) { /* what a callback queues runs too */
    w->again = false;
    AC_TRY(ac_backward_queue(w->g->c, at_end, w, watcher_free, e));
  }
  return w->fails == AC_OK ? AC_OK : AC_FAIL(e, STATE, "the callback says no");
}

static ac_status hook(void *user, ac_tensor *grad, ac_tensor **replace, ac_err *e) {
  watcher *w = user;
  (void)grad, (void)replace;
  w->hooks++;
  AC_TRY(ac_backward_queue(w->g->c, at_end, w, watcher_free, e));
  if (w->nested) { /* a run within this one ends first, and runs nothing */
    bool was = ac_ctx_set_grad_enabled(w->g->c, true);
    ac_tensor *y = leaf_number(w->g, 2), *z = scale(w->g, y, 3), *d = NULL;
    w->inside = ac_gradients(w->g->c, 1, &z, NULL, 1, &y, false, NULL, &d, e);
    ac_ctx_set_grad_enabled(w->g->c, was);
    assert_int_equal(w->runs, 0);
    drop(y, z, d);
  }
  return AC_OK;
}

static void runs_when_all_is_there(void **state) {
  graph *g = *state;
  ac_err e;
  uint64_t id;
  ac_tensor *x = leaf_number(g, 5), *y = scale(g, x, 3);
  watcher w = {.g = g, .x = x, .nested = true, .again = true, .grad_mode = true};
  assert_ok(ac_tensor_add_hook(y, hook, &w, NULL, &id, &e), e);
  backward(g, y);
  assert_int_equal(w.runs, 2);
  assert_int_equal(w.frees, 2);
  assert_int_equal(w.inside, AC_OK);
  assert_true(w.seen[0] == 3 && w.seen[1] == 3);
  assert_false(w.grad_mode);
  drop(y, x);
}

/* Gradients asked for by name are accumulated after the walk: the callback comes after them too. */
static void named_inputs_count_as_part_of_it(void **state) {
  graph *g = *state;
  ac_err e;
  uint64_t id;
  ac_tensor *x = leaf_number(g, 5), *y = scale(g, x, 4);
  watcher w = {.g = g, .x = x};
  assert_ok(ac_tensor_add_hook(y, hook, &w, NULL, &id, &e), e);
  assert_ok(ac_backward(g->c, 1, &y, NULL, 1, &x, NULL, &e), e);
  assert_int_equal(w.runs, 1);
  assert_true(w.seen[0] == 4);
  drop(y, x);
}

static void a_failure_frees_without_running(void **state) {
  graph *g = *state;
  ac_err e;
  uint64_t id;
  ac_tensor *x = leaf_number(g, 5), *y = scale(g, x, 3), *z = exponential(g, y), *d = NULL;
  watcher w = {.g = g, .x = x};
  assert_ok(ac_tensor_add_hook(z, hook, &w, NULL, &id, &e), e);
  ac_tensor *bad = leaf_number(g, 1);
  assert_int_equal(ac_gradients(g->c, 1, &z, NULL, 1, &bad, false, &graph_retain, &d, &e), AC_GRAD);
  assert_int_equal(w.runs, 1); /* the walk was sound; only then the missing input was noticed */
  w.runs = w.frees = 0;

  assert_ok(ac_backward(g->c, 1, &z, NULL, 0, NULL, NULL, &e), e); /* consumes what was saved */
  assert_int_equal(w.runs, 1);
  w.runs = w.frees = w.hooks = 0;
  assert_int_equal(ac_backward(g->c, 1, &z, NULL, 0, NULL, NULL, &e), AC_GRAD);
  assert_int_equal(w.hooks, 1);
  assert_int_equal(w.runs, 0);
  assert_int_equal(w.frees, 1);
  drop(bad, z, y, x);
}

static void its_error_is_the_backwards(void **state) {
  graph *g = *state;
  ac_err e;
  uint64_t id;
  ac_tensor *x = leaf_number(g, 5), *y = scale(g, x, 3), *d = NULL;
  watcher w = {.g = g, .x = x, .fails = AC_STATE, .again = true};
  assert_ok(ac_tensor_add_hook(y, hook, &w, NULL, &id, &e), e);
  assert_int_equal(ac_gradients(g->c, 1, &y, NULL, 1, &x, false, NULL, &d, &e), AC_STATE);
  assert_string_equal(e.msg, "the callback says no");
  assert_null(d);
  assert_int_equal(w.runs, 1); /* the one it queued is dropped */
  assert_int_equal(w.frees, 2);
  assert_int_equal(ac_backward_queue(g->c, at_end, &w, NULL, &e), AC_STATE);
  drop(y, x);
}

int main(void) {
  const struct CMUnitTest tests[] = {graph_test(runs_when_all_is_there), graph_test(named_inputs_count_as_part_of_it),
                                     graph_test(a_failure_frees_without_running),
                                     graph_test(its_error_is_the_backwards)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
