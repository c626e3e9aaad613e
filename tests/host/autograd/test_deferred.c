/* Backward in two parts: gradients of inputs, then those of weights of products; together those of one backward, bit for bit. */
#include "host/autograd/graph.h"

/* y = x w1^T, an mlp on it, and the sum of squares; grads of x, w1 and the mlp's weights and biases. */
typedef struct net {
  ac_tensor *x, *w1, *u, *v, *b, *d, *y;
} net;

static ac_tensor *learns(ac_tensor *t) {
  ac_err e;
  assert_ok(ac_tensor_set_requires_grad(t, true, &e), e);
  return t;
}

static void make(graph *g, net *n) {
  ac_err e;
  ac_tensor *h = NULL, *m = NULL, *q = NULL;
  n->x = learns(constant(g, 2, 2, (double[]){1, -2, 0.5, 3}));
  n->w1 = learns(constant(g, 2, 2, (double[]){0.3, 1, -0.7, 0.2}));
  n->u = learns(constant(g, 3, 2, (double[]){1, 2, -1, 0.5, 0.25, -2}));
  n->v = learns(constant(g, 2, 3, (double[]){1, 0.1, 2, -3, 0.7, 0.9}));
  n->b = learns(vector(g, 0.1, -0.2, 0.3));
  n->d = learns(vector(g, 0.5, 0.25));
  assert_ok(ac_linear(g->c, n->x, n->w1, NULL, &h, &e), e);
  assert_ok(ac_mlp(g->c, h, n->u, n->v, n->b, n->d, 0, false, &m, &e), e);
  assert_ok(ac_square(g->c, m, &q, &e), e);
  n->y = sum(g, q);
  drop(h, m, q);
}

static void free_net(net *n) { drop(n->x, n->w1, n->u, n->v, n->b, n->d, n->y); }

static void same(const ac_tensor *a, const ac_tensor *b) {
  const ac_tensor *p = ac_tensor_grad(a), *q = ac_tensor_grad(b);
  assert_non_null(p);
  assert_non_null(q);
  assert_int_equal(ac_tensor_numel(p), ac_tensor_numel(q));
  assert_memory_equal(ac_tensor_data(p), ac_tensor_data(q), 8 * (size_t)ac_tensor_numel(p));
}

static void both_parts_are_the_whole(void **state) {
  graph *g = *state;
  ac_err e;
  net a, b;
  ac_deferred *d = NULL;
  make(g, &a);
  make(g, &b);
  backward(g, a.y);
  assert_ok(ac_backward_inputs(g->c, 1, &b.y, NULL, &d, &e), e);
  assert_true(ac_deferred_any(d));
  same(a.x, b.x);
  same(a.b, b.b); /* biases are no weights of products */
  same(a.d, b.d);
  assert_null(ac_tensor_grad(b.w1));
  assert_null(ac_tensor_grad(b.u));
  assert_null(ac_tensor_grad(b.v));
  assert_ok(ac_backward_weights(d, &e), e);
  same(a.w1, b.w1);
  same(a.u, b.u);
  same(a.v, b.v);
  same(a.x, b.x);
  assert_false(ac_deferred_any(d));
  assert_int_equal(ac_backward_weights(d, &e), AC_STATE);
  ac_deferred_free(d);
  free_net(&a);
  free_net(&b);
}

typedef struct counter {
  int runs;
} counter;

static ac_status count(void *user, ac_tensor *grad, ac_tensor **replace, ac_err *e) {
  (void)grad, (void)replace, (void)e;
  ((counter *)user)->runs++;
  return AC_OK;
}

static void hooks_run_once(void **state) {
  graph *g = *state;
  ac_err e;
  counter w = {0}, h = {0};
  uint64_t id;
  ac_deferred *d = NULL;
  ac_tensor *x = learns(constant(g, 1, 2, (double[]){1, 2})), *wt = learns(constant(g, 2, 2, (double[]){1, 2, 3, 4})), *y = NULL,
            *z = NULL, *s;
  assert_ok(ac_linear(g->c, x, wt, NULL, &y, &e), e); /* the same weight twice */
  assert_ok(ac_linear(g->c, y, wt, NULL, &z, &e), e);
  assert_ok(ac_tensor_add_hook(wt, count, &w, NULL, &id, &e), e);
  assert_ok(ac_tensor_add_hook(y, count, &h, NULL, &id, &e), e);
  s = sum(g, z);
  assert_ok(ac_backward_inputs(g->c, 1, &s, NULL, &d, &e), e);
  assert_int_equal(w.runs, 0);
  assert_int_equal(h.runs, 1);
  assert_ok(ac_backward_weights(d, &e), e);
  assert_int_equal(w.runs, 1);
  assert_int_equal(h.runs, 1);
  /* y = (5, 11), dz = (1, 1), dy = (4, 6): dz^T y + dy^T x */
  assert_values(ac_tensor_grad(wt), 5 + 4, 11 + 8, 5 + 6, 11 + 12);
  ac_deferred_free(d);
  drop(x, wt, y, z, s);
}

static void what_is_not_run_is_freed(void **state) {
  graph *g = *state;
  ac_err e;
  net n;
  ac_deferred *d = NULL;
  make(g, &n);
  assert_ok(ac_backward_inputs(g->c, 1, &n.y, NULL, &d, &e), e);
  free_net(&n);
  ac_deferred_free(d);
  ac_tensor *x = learns(vector(g, 1, 2)), *y = NULL;
  assert_ok(ac_square(g->c, x, &y, &e), e);
  assert_int_equal(ac_backward_inputs(g->c, 1, &y, NULL, &d, &e), AC_GRAD); /* not of one element */
  assert_null(d);
  drop(x, y);
}

static void changed_weights_are_noticed(void **state) {
  graph *g = *state;
  ac_err e;
  ac_deferred *d = NULL;
  ac_tensor *x = learns(constant(g, 1, 2, (double[]){1, 2})), *q = NULL, *w = learns(constant(g, 2, 2, (double[]){1, 2, 3, 4})), *y = NULL,
            *s, *o = NULL;
  assert_ok(ac_square(g->c, x, &q, &e), e);
  assert_ok(ac_linear(g->c, q, w, NULL, &y, &e), e);
  s = sum(g, y);
  assert_ok(ac_backward_inputs(g->c, 1, &s, NULL, &d, &e), e);
  bool was = ac_ctx_set_grad_enabled(g->c, false);
  assert_ok(ac_fill_(g->c, q, (ac_scalar){.kind = AC_SCALAR_FLOAT, .f = 9}, &o, &e), e);
  ac_ctx_set_grad_enabled(g->c, was);
  assert_int_equal(ac_backward_weights(d, &e), AC_VERSION);
  assert_null(ac_tensor_grad(w));
  ac_deferred_free(d);
  drop(x, q, w, y, s, o);
}

/* A region of lowered precision casts weights before it multiplies. */
static void casts_of_weights_are_put_off(void **state) {
  graph *g = *state;
  ac_err e;
  ac_deferred *d = NULL;
  ac_tensor *x = learns(constant(g, 1, 2, (double[]){1, 2})), *w = learns(constant(g, 2, 2, (double[]){1, 2, 3, 4})), *xc = NULL, *wc = NULL,
            *y = NULL, *z = NULL, *s;
  assert_ok(ac_cast(g->c, x, AC_F32, &xc, &e), e);
  assert_ok(ac_cast(g->c, w, AC_F32, &wc, &e), e);
  assert_ok(ac_linear(g->c, xc, wc, NULL, &y, &e), e); /* one cast for two products */
  assert_ok(ac_linear(g->c, y, wc, NULL, &z, &e), e);
  s = sum(g, z);
  assert_ok(ac_backward_inputs(g->c, 1, &s, NULL, &d, &e), e);
  assert_true(ac_deferred_any(d));
  assert_null(ac_tensor_grad(w));
  assert_values(ac_tensor_grad(x), 4 + 18, 8 + 24);
  assert_ok(ac_backward_weights(d, &e), e);
  assert_values(ac_tensor_grad(w), 5 + 4, 11 + 8, 5 + 6, 11 + 12);
  ac_deferred_free(d);
  drop(x, w, xc, wc, y, z, s);
}

/* More edges than a set of them has bits. */
static void wide_nodes_are_not_split(void **state) {
  enum { MANY = 70 };
  graph *g = *state;
  ac_err e;
  ac_deferred *d = NULL;
  ac_tensor *x[MANY], *y = NULL, *s;
  for (int i = 0; i < MANY; i++) x[i] = learns(vector(g, i, 1));
  assert_ok(ac_cat(g->c, x, MANY, 0, &y, &e), e);
  s = sum(g, y);
  assert_ok(ac_backward_inputs(g->c, 1, &s, NULL, &d, &e), e);
  assert_false(ac_deferred_any(d));
  for (int i = 0; i < MANY; i++) assert_values(ac_tensor_grad(x[i]), 1, 1);
  ac_deferred_free(d);
  for (int i = 0; i < MANY; i++) drop(x[i]);
  drop(y, s);
}

int main(void) {
  const struct CMUnitTest tests[] = {graph_test(both_parts_are_the_whole), graph_test(hooks_run_once), graph_test(what_is_not_run_is_freed),
                                     graph_test(changed_weights_are_noticed), graph_test(casts_of_weights_are_put_off),
                                     graph_test(wide_nodes_are_not_split)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
