/* The backward engine: what reaches which leaf, what is kept and freed, nesting, depth, failure. Values
 * against closed forms. */
#include "host/autograd/graph.h"

/* ---- leaves ---- */
static void leaves_accumulate(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2, 3), *w = leaf_vector(g, 4, 5, 6);
  for (int pass = 1; pass <= 3; pass++) {
    ac_tensor *p = mul(g, x, w), *y = sum(g, p);
    backward(g, y);
    assert_values(ac_tensor_grad(x), 4.0 * pass, 5.0 * pass, 6.0 * pass);
    assert_values(ac_tensor_grad(w), 1.0 * pass, 2.0 * pass, 3.0 * pass);
    drop(p, y);
  }
  assert_false(ac_tensor_requires_grad(ac_tensor_grad(x)));
  ac_err e;
  assert_ok(ac_tensor_set_grad(x, NULL, &e), e);
  assert_null(ac_tensor_grad(x));
  drop(x, w);
}

static void gradients_of_two_leaves_are_apart(void **state) {
  graph *g = *state;
  ac_tensor *a = leaf_vector(g, 1, 2), *b = leaf_vector(g, 3, 4), *s = add(g, a, b), *y = sum(g, s),
            *o = NULL;
  ac_err e;
  backward(g, y);
  assert_ptr_not_equal(ac_tensor_storage(ac_tensor_grad(a)), ac_tensor_storage(ac_tensor_grad(b)));
  assert_ok(ac_fill_(g->c, ac_tensor_grad(a), (ac_scalar){.kind = AC_SCALAR_FLOAT, .f = 9}, &o, &e), e);
  assert_values(ac_tensor_grad(b), 1, 1);
  drop(a, b, s, y, o);
}

static void cotangent_stays_the_callers(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *y = scale(g, x, 3), *v = vector(g, 10, 20), *o = NULL;
  ac_err e;
  assert_ok(ac_backward(g->c, 1, &x, &v, 0, NULL, NULL, &e), e); /* an output may be a leaf */
  assert_values(ac_tensor_grad(x), 10, 20);
  assert_ok(ac_backward(g->c, 1, &y, &v, 0, NULL, &graph_create, &e), e);
  assert_values(ac_tensor_grad(x), 40, 80);
  assert_ok(ac_fill_(g->c, v, (ac_scalar){.kind = AC_SCALAR_FLOAT, .f = 0}, &o, &e), e);
  assert_values(ac_tensor_grad(x), 40, 80);
  drop(x, y, v, o);
}

static void frozen_after_forward(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *w = leaf_vector(g, 3, 4), *p = mul(g, x, w), *y = sum(g, p);
  ac_err e;
  assert_ok(ac_tensor_set_requires_grad(w, false, &e), e);
  backward(g, y);
  assert_null(ac_tensor_grad(w));
  assert_values(ac_tensor_grad(x), 3, 4);
  drop(x, w, p, y);
}

static void leaf_that_died(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *w = leaf_vector(g, 3, 4), *p = mul(g, x, w), *y = sum(g, p),
            *s = add(g, y, y);
  ac_tensor_release(w); /* only the graph knows it now */
  backward(g, s);
  assert_values(ac_tensor_grad(x), 6, 8);
  drop(x, p, y, s);
  ac_tensor *a = leaf_vector(g, 1), *b = scale(g, a, 2); /* saved nowhere: gone before backward */
  ac_tensor_release(a);
  backward(g, b);
  drop(b);
}

/* ---- shapes of graphs ---- */
static void diamond(void **state) {
  graph *g = *state;
  /* y = (x e^x) + (x e^x) e^x with a shared inner node: dy/dx = e + x e + e^2 + 2 x e^2, e = e^x */
  ac_tensor *x = leaf_number(g, 0.5), *ex = exponential(g, x), *a = mul(g, x, ex), *b = mul(g, a, ex),
            *y = add(g, a, b);
  double E = exp(0.5);
  backward(g, y);
  assert_values(ac_tensor_grad(x), E + 0.5 * E + E * E + 2 * 0.5 * E * E);
  drop(x, ex, a, b, y);
}

static void same_tensor_in_all_places(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 2, -3), *q = mul(g, x, x), *y = sum(g, q);
  backward(g, y);
  assert_values(ac_tensor_grad(x), 4, -6);
  drop(x, q, y);
  ac_tensor *z = leaf_number(g, 7), *s = add(g, z, z);
  backward(g, s);
  assert_values(ac_tensor_grad(z), 2);
  drop(z, s);
}

static void used_a_thousand_times(void **state) {
  graph *g = *state;
  enum { N = 1000 };
  ac_tensor *x = leaf_vector(g, 1.5, -2), *part[N], *y = NULL;
  ac_err e;
  for (int i = 0; i < N; i++) part[i] = scale(g, x, i + 1);
  ac_tensor *all = NULL;
  for (int i = 0; i < N; i++) { /* a balanced sum is not needed: a chain that starts at every part */
    ac_tensor *next = all == NULL ? add(g, part[i], part[i]) : add(g, all, part[i]);
    ac_tensor_release(all);
    all = next;
  }
  y = sum(g, all);
  assert_ok(ac_backward(g->c, 1, &y, NULL, 0, NULL, NULL, &e), e);
  assert_values(ac_tensor_grad(x), N * (N + 1) / 2.0 + 1, N * (N + 1) / 2.0 + 1);
  drop_all(N, part);
  drop(x, all, y);
}

static void chain_of_100000(void **state) {
  graph *g = *state;
  enum { N = 100000 };
  ac_tensor *x = leaf_number(g, 1), *t = x;
  ac_err e;
  ac_tensor_retain(x);
  for (int i = 0; i < N; i++) {
    ac_tensor *y = NULL;
    assert_ok(ac_add(g->c, ac_operand_tensor(t), ac_operand_float(1), graph_one, &y, &e), e);
    ac_tensor_release(t);
    t = y;
  }
  assert_values(t, N + 1);
  backward(g, t);
  assert_values(ac_tensor_grad(x), 1);
  ac_tensor_release(t); /* unwinds without recursion */
  t = x;
  ac_tensor_retain(x);
  for (int i = 0; i < N; i++) { /* with saved tensors, and never walked */
    ac_tensor *y = NULL;
    assert_ok(ac_sin(g->c, t, &y, &e), e);
    ac_tensor_release(t);
    t = y;
  }
  drop(t, x);
}

/* ---- asking for some gradients ---- */
static void gradients_of_inputs(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *w = leaf_vector(g, 3, 4), *h = mul(g, x, w), *q = mul(g, h, h),
            *y = sum(g, q), *out[3];
  ac_tensor *in[3] = {h, x, h};
  ac_err e;
  assert_ok(ac_gradients(g->c, 1, &y, NULL, 3, in, false, NULL, out, &e), e);
  assert_values(out[0], 6, 16);  /* 2 h */
  assert_values(out[1], 18, 64); /* 2 h w */
  assert_values(out[2], 6, 16);
  assert_null(ac_tensor_grad(x));
  assert_null(ac_tensor_grad(w));
  drop_all(3, out);
  drop(x, w, h, q, y);
}

/* A gradient that is a piece of another one: summing such pieces may not write into what was asked for. */
static void gradients_that_share_memory(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *c = NULL, *w = vector(g, 1, 10, 100, 1000), *out[2];
  ac_err e;
  assert_ok(ac_cat(g->c, (ac_tensor *[]){x, x}, 2, 0, &c, &e), e);
  ac_tensor *p = mul(g, c, w), *y = sum(g, p);
  assert_ok(ac_gradients(g->c, 1, &y, NULL, 2, (ac_tensor *[]){c, x}, false, NULL, out, &e), e);
  assert_values(out[0], 1, 10, 100, 1000);
  assert_values(out[1], 101, 1010);
  drop_all(2, out);
  drop(c, w, p, y);
  /* the very tensor: add hands on what it got, and the product made before it adds its share */
  ac_tensor *v = vector(g, 7, 8), *q = mul(g, x, v), *k = vector(g, 0, 0);
  c = add(g, x, k);
  w = vector(g, 1, 10);
  p = mul(g, c, w);
  ac_tensor *s = add(g, p, q);
  y = sum(g, s);
  assert_ok(ac_gradients(g->c, 1, &y, NULL, 2, (ac_tensor *[]){c, x}, false, NULL, out, &e), e);
  assert_values(out[0], 1, 10);
  assert_values(out[1], 8, 18);
  drop_all(2, out);
  drop(x, v, q, k, c, w, p, s, y);
}

static void unused_inputs(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *z = leaf_vector(g, 3, 4), *plain = vector(g, 1), *p = mul(g, x, x),
            *y = sum(g, p), *out[2];
  ac_tensor *in[2] = {x, z}, *bad[1] = {plain};
  ac_err e;
  assert_fails(ac_gradients(g->c, 1, &y, NULL, 2, in, false, &graph_retain, out, &e), GRAD,
               "input 2 was not used", e);
  assert_null(out[0]);
  assert_ok(ac_gradients(g->c, 1, &y, NULL, 2, in, true, &graph_retain, out, &e), e);
  assert_values(out[0], 2, 4);
  assert_null(out[1]);
  drop(out[0]);
  assert_fails(ac_gradients(g->c, 1, &y, NULL, 1, bad, true, &graph_retain, out, &e), GRAD,
               "input 1 does not require", e);
  backward(g, y); /* none of that used the graph up */
  assert_values(ac_tensor_grad(x), 2, 4);
  drop(x, z, plain, p, y);
}

static void backward_into_some_inputs(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *w = leaf_vector(g, 3, 4), *h = mul(g, x, w), *q = mul(g, h, h),
            *y = sum(g, q);
  ac_tensor *in[2] = {w, h};
  ac_err e;
  assert_ok(ac_backward(g->c, 1, &y, NULL, 2, in, NULL, &e), e);
  assert_null(ac_tensor_grad(x));
  assert_values(ac_tensor_grad(w), 6, 32);
  assert_values(ac_tensor_grad(h), 6, 16); /* also of a tensor that is not a leaf */
  drop(x, w, h, q, y);
}

static void several_outputs(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *a = scale(g, x, 2), *b = mul(g, x, x), *s = sum(g, a);
  ac_tensor *outs[3] = {a, b, s}, *cot[3] = {vector(g, 1, 10), vector(g, 100, 1000), NULL};
  ac_err e;
  assert_ok(ac_backward(g->c, 3, outs, cot, 0, NULL, NULL, &e), e);
  assert_values(ac_tensor_grad(x), 2 + 200 + 2, 20 + 4000 + 2);
  drop(x, a, b, s, cot[0], cot[1]);
}

static void wrong_requests(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *y = scale(g, x, 2), *plain = vector(g, 1), *v = vector(g, 1, 2, 3),
            *meta = NULL;
  ac_device *m = NULL;
  ac_err e;
  int64_t two = 2;
  assert_ok(ac_ctx_device(g->c, "meta", &m, &e), e);
  assert_ok(ac_tensor_new(m, AC_F64, 1, &two, &meta, &e), e);
  assert_fails(ac_backward(g->c, 1, &y, NULL, 0, NULL, NULL, &e), GRAD, "shape (2)", e);
  assert_fails(ac_backward(g->c, 1, &plain, NULL, 0, NULL, NULL, &e), GRAD, "does not require gradients", e);
  assert_fails(ac_backward(g->c, 1, &y, &v, 0, NULL, NULL, &e), SHAPE, "(3)", e);
  assert_fails(ac_backward(g->c, 1, &y, &meta, 0, NULL, NULL, &e), DEVICE, "meta", e);
  drop(x, y, plain, v, meta);
}

/* ---- what is kept ---- */
static void second_backward(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *p = mul(g, x, x), *y = sum(g, p);
  ac_err e;
  assert_ok(ac_backward(g->c, 1, &y, NULL, 0, NULL, &graph_retain, &e), e);
  assert_ok(ac_backward(g->c, 1, &y, NULL, 0, NULL, NULL, &e), e);
  assert_values(ac_tensor_grad(x), 4, 8);
  assert_fails(ac_backward(g->c, 1, &y, NULL, 0, NULL, NULL, &e), GRAD, "mul a second time", e);
  assert_values(ac_tensor_grad(x), 4, 8);
  drop(x, p, y);
  /* nodes that saved nothing may be shared by several passes */
  ac_tensor *a = leaf_vector(g, 1, 2), *t = scale(g, a, 3), *b = sum(g, t), *q = mul(g, t, t), *d = sum(g, q);
  backward(g, b);
  backward(g, d);
  assert_values(ac_tensor_grad(a), 3 + 18, 3 + 36);
  drop(a, t, b, q, d);
}

typedef struct watch {
  graph *g;
  size_t bytes[8];
  int n;
} watch;
static ac_status note_bytes(void *user, ac_tensor *grad, ac_tensor **replace, ac_err *e) {
  watch *w = user;
  (void)grad, (void)replace, (void)e;
  w->bytes[w->n++] = graph_bytes(w->g);
  return AC_OK;
}

static void memory_falls_during_backward(void **state) {
  graph *g = *state;
  enum { N = 8 };
  int64_t shape = 1 << 17; /* 1 MiB each */
  ac_tensor *x = NULL, *t[N + 1] = {0};
  watch w = {.g = g};
  uint64_t id;
  ac_err e;
  assert_ok(ac_tensor_new(ac_ctx_default_device(g->c), AC_F64, 1, &shape, &x, &e), e);
  assert_ok(ac_zero_(g->c, x, &t[0], &e), e);
  assert_ok(ac_tensor_set_requires_grad(x, true, &e), e);
  for (int i = 0; i < N; i++) { /* each keeps its own result */
    assert_ok(ac_exp(g->c, t[i], &t[i + 1], &e), e);
    assert_ok(ac_tensor_add_hook(t[i + 1], note_bytes, &w, NULL, &id, &e), e);
  }
  ac_tensor *y = sum(g, t[N]);
  for (int i = 1; i <= N; i++) ac_tensor_release(t[i]); /* the graph alone holds them */
  size_t before = graph_bytes(g);
  assert_true(before >= (size_t)(N + 1) << 20);
  backward(g, y);
  assert_int_equal(w.n, N);
  for (int i = 2; i < N; i++) /* one saved result less each time, the gradient of the same size stays */
    assert_int_equal(w.bytes[i - 1] - w.bytes[i], 1 << 20);
  assert_true(graph_bytes(g) <= (size_t)3 << 20); /* x, its gradient, y */
  drop(x, t[0], y);
}

static void several_graphs_alive(void **state) {
  graph *g = *state;
  enum { N = 20 };
  ac_tensor *x = leaf_vector(g, 1, 2), *y[N];
  for (int i = 0; i < N; i++) {
    ac_tensor *a = scale(g, x, i), *b = mul(g, a, x);
    y[i] = sum(g, b);
    drop(a, b);
  }
  double k = 0;
  for (int i = 0; i < N; i++) { /* in another order than they were made, and some never */
    int j = i * 7 % N;
    if (j % 5 == 0) continue;
    backward(g, y[j]);
    k += j;
  }
  assert_values(ac_tensor_grad(x), 2 * k * 1, 2 * k * 2);
  drop_all(N, y);
  drop(x);
}

static void no_grad_and_detach(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *d = NULL;
  ac_err e;
  ac_ctx_set_grad_enabled(g->c, false);
  ac_tensor *n = mul(g, x, x);
  assert_true(!ac_ctx_set_grad_enabled(g->c, true));
  assert_false(ac_tensor_requires_grad(n));
  assert_null(ac_tensor_grad_fn_name(n));
  ac_tensor *h = mul(g, x, x);
  assert_string_equal(ac_tensor_grad_fn_name(h), "mul");
  assert_false(ac_tensor_is_leaf(h));
  assert_ok(ac_tensor_detach(h, &d, &e), e);
  assert_false(ac_tensor_requires_grad(d));
  assert_true(ac_tensor_is_leaf(d));
  assert_ptr_equal(ac_tensor_storage(d), ac_tensor_storage(h));
  ac_tensor *p = mul(g, h, d), *y = sum(g, p); /* x^2 * (x^2 held constant): 2 x^3 */
  backward(g, y);
  assert_values(ac_tensor_grad(x), 2, 16);
  drop(x, n, h, d, p, y);
}

/* ---- nesting and failure ---- */
typedef struct nest {
  graph *g;
  ac_tensor *x;
  int depth;
} nest;
static ac_status inner_backward(void *user, ac_tensor *grad, ac_tensor **replace, ac_err *e) {
  nest *n = user;
  (void)grad, (void)replace;
  if (n->depth++ > 0) return AC_OK;
  bool was = ac_ctx_set_grad_enabled(n->g->c, true);
  ac_tensor *q = mul(n->g, n->x, n->x), *y = sum(n->g, q);
  ac_status st = ac_backward(n->g->c, 1, &y, NULL, 0, NULL, NULL, e);
  ac_ctx_set_grad_enabled(n->g->c, was);
  drop(q, y);
  return st;
}

static void backward_inside_a_hook(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *z = leaf_vector(g, 5, 6), *h = scale(g, x, 3), *y = sum(g, h);
  nest n = {g, z, 0}, same = {g, x, 0};
  uint64_t id;
  ac_err e;
  assert_ok(ac_tensor_add_hook(h, inner_backward, &n, NULL, &id, &e), e);
  assert_ok(ac_tensor_add_hook(h, inner_backward, &same, NULL, &id, &e),
            e); /* into a leaf of the pass that is under way */
  backward(g, y);
  assert_values(ac_tensor_grad(z), 10, 12);
  assert_values(ac_tensor_grad(x), 3 + 2, 3 + 4);
  drop(x, z, h, y);
}

static ac_status refuse(void *user, ac_tensor *grad, ac_tensor **replace, ac_err *e) {
  (void)user, (void)grad, (void)replace;
  return AC_FAIL(e, CALLBACK, "the hook says no");
}

static void error_inside_a_hook(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *h = scale(g, x, 3), *q = mul(g, h, h), *y = sum(g, q);
  uint64_t id;
  ac_err e;
  assert_ok(ac_tensor_add_hook(h, refuse, NULL, NULL, &id, &e), e);
  assert_fails(ac_backward(g->c, 1, &y, NULL, 0, NULL, &graph_retain, &e), CALLBACK, "the hook says no", e);
  assert_null(ac_tensor_grad(x));
  assert_true(ac_ctx_grad_enabled(g->c));
  assert_true(ac_tensor_remove_hook(h, id));
  backward(g, y); /* retained: still whole */
  assert_values(ac_tensor_grad(x), 18, 36);
  drop(x, h, q, y);
}

static void out_of_memory(void **state) {
  graph *g = *state;        /* 64 MiB */
  int64_t shape = 20 << 17; /* 20 MiB */
  ac_tensor *x = NULL, *o = NULL, *a = NULL, *b = NULL, *c = NULL, *y = NULL;
  ac_err e;
  assert_ok(ac_tensor_new(ac_ctx_default_device(g->c), AC_F64, 1, &shape, &x, &e), e);
  assert_ok(ac_fill_(g->c, x, (ac_scalar){.kind = AC_SCALAR_FLOAT, .f = 0.5}, &o, &e), e);
  assert_ok(ac_tensor_set_requires_grad(x, true, &e), e);
  assert_ok(ac_exp(g->c, x, &a, &e), e);
  assert_ok(ac_exp(g->c, a, &b, &e), e);
  assert_fails(ac_exp(g->c, b, &c, &e), OOM, "", e);
  assert_null(c);
  assert_string_equal(e.op, "exp");
  assert_ok(ac_sum(g->c, b, NULL, 0, false, NULL, &y, &e), e);
  /* x, a, b stand; there is no room for a gradient */
  assert_fails(ac_backward(g->c, 1, &y, NULL, 0, NULL, &graph_retain, &e), OOM, "", e);
  assert_null(ac_tensor_grad(x));
  ac_scalar s;
  assert_ok(ac_tensor_item(b, shape - 1, &s, &e), e);
  assert_true(fabs(s.f - exp(exp(0.5))) < 1e-14 * exp(exp(0.5)));
  drop(b, a);
  assert_ok(ac_tensor_item(x, 5, &s, &e), e);
  assert_true(s.f == 0.5);
  drop(y); /* and with it the graph: now there is room again */
  assert_ok(ac_exp(g->c, x, &c, &e), e);
  drop(c, x, o);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      graph_test(leaves_accumulate),
      graph_test(gradients_of_two_leaves_are_apart),
      graph_test(cotangent_stays_the_callers),
      graph_test(frozen_after_forward),
      graph_test(leaf_that_died),
      graph_test(diamond),
      graph_test(same_tensor_in_all_places),
      graph_test(used_a_thousand_times),
      graph_test(chain_of_100000),
      graph_test(gradients_of_inputs),
      graph_test(gradients_that_share_memory),
      graph_test(unused_inputs),
      graph_test(backward_into_some_inputs),
      graph_test(several_outputs),
      graph_test(wrong_requests),
      graph_test(second_backward),
      graph_test(memory_falls_during_backward),
      graph_test(several_graphs_alive),
      graph_test(no_grad_and_detach),
      graph_test(backward_inside_a_hook),
      graph_test(error_inside_a_hook),
      graph_test(out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
