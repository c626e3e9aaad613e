/* Leaves, hooks, retain_grad: what hangs on nodes, when it runs and when it goes. */
#include "host/autograd/graph.h"

/* A hook that writes down what it saw, and may scale the gradient, remove hooks, or add one. */
typedef struct probe {
  graph *g;
  double seen[8];
  int calls, freed;
  double factor; /* not 0: replaces the gradient */
  ac_tensor *on; /* remove `kill` from it */
  uint64_t kill;
  bool removed;
  struct probe *plant; /* a hook to add to `on` */
  ac_tensor *kept;     /* of the last gradient */
  bool keep;
} probe;

static void probe_free(void *user) { ((probe *)user)->freed++; }

static ac_status probe_hook(void *user, ac_tensor *grad, ac_tensor **replace, ac_err *e) {
  probe *p = user;
  double v[64];
  uint64_t id;
  values(grad, v);
  p->seen[p->calls++ & 7] = v[0];
  if (p->kill != 0) p->removed = ac_tensor_remove_hook(p->on, p->kill);
  if (p->plant != NULL) AC_TRY(ac_tensor_add_hook(p->on, probe_hook, p->plant, probe_free, &id, e));
  p->plant = NULL;
  if (p->keep) {
    ac_tensor_release(p->kept);
    ac_tensor_retain(p->kept = grad);
  }
  if (p->factor != 0) *replace = scale(p->g, grad, p->factor);
  assert_int_equal(p->freed, 0); /* not while it runs */
  return AC_OK;
}

static uint64_t hook(ac_tensor *t, probe *p) {
  uint64_t id = 0;
  ac_err e;
  assert_ok(ac_tensor_add_hook(t, probe_hook, p, probe_free, &id, &e), e);
  assert_true(id != 0);
  return id;
}

static void hooks_see_and_replace(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 2, 3), *h = scale(g, x, 5), *q = mul(g, h, h), *y = sum(g, q);
  probe a = {.g = g, .factor = 10}, b = {.g = g}, l = {.g = g, .factor = -1};
  hook(h, &a);
  hook(h, &b); /* sees what the first made of it */
  hook(x, &l); /* on a leaf: before accumulation */
  backward(g, y);
  assert_int_equal(a.calls, 1);
  assert_true(a.seen[0] == 20);
  assert_true(b.seen[0] == 200);
  assert_true(l.seen[0] == 1000);
  assert_values(ac_tensor_grad(x), -1000, -1500);
  drop(h, q, y);
  assert_int_equal(a.freed, 1); /* with the node */
  assert_int_equal(b.freed, 1);
  assert_int_equal(l.freed, 0);
  drop(x);
  assert_int_equal(l.freed, 1);
}

static void hook_sees_the_whole_gradient_once(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 2), *h = scale(g, x, 1), *a = scale(g, h, 3), *b = scale(g, h, 4),
            *s = add(g, a, b);
  probe p = {.g = g}, l = {.g = g};
  hook(h, &p);
  hook(x, &l);
  backward(g, s);
  assert_int_equal(p.calls, 1);
  assert_true(p.seen[0] == 7);
  assert_int_equal(l.calls, 1);
  drop(x, h, a, b, s);
}

static void hook_may_keep_its_gradient(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 2, 3), *h = scale(g, x, 5), *y = sum(g, h);
  probe l = {.g = g, .keep = true};
  hook(x, &l);
  backward(g, y);
  drop(h, y);
  h = scale(g, x, 1);
  y = sum(g, h);
  ac_tensor *first = l.kept;
  ac_tensor_retain(first);
  backward(g, y); /* accumulates in place, but not into what the hook was given */
  assert_values(first, 5, 5);
  assert_values(ac_tensor_grad(x), 6, 6);
  drop(x, h, y, first, l.kept);
}

static ac_status give_other(void *user, ac_tensor *grad, ac_tensor **replace, ac_err *e) {
  (void)grad, (void)e;
  ac_tensor_retain(user);
  *replace = user;
  return AC_OK;
}

static void wrong_replacement(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 2, 3), *h = scale(g, x, 5), *y = sum(g, h), *other = vector(g, 1, 2, 3);
  ac_err e;
  uint64_t id;
  assert_ok(ac_tensor_add_hook(h, give_other, other, NULL, &id, &e), e);
  assert_fails(ac_backward(g->c, 1, &y, NULL, 0, NULL, NULL, &e), GRAD, "f64 (3)", e);
  assert_null(ac_tensor_grad(x));
  drop(x, h, y, other);
}

/* ---- removal ---- */
static void removal(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 2), *h = scale(g, x, 5);
  probe a = {.g = g}, b = {.g = g};
  uint64_t ia = hook(h, &a), ib = hook(h, &b);
  assert_true(ia != ib);
  assert_true(ac_tensor_remove_hook(h, ia));
  assert_int_equal(a.freed, 1);
  assert_false(ac_tensor_remove_hook(h, ia));
  assert_false(ac_tensor_remove_hook(x, ib));
  backward(g, h);
  assert_int_equal(a.calls, 0);
  assert_int_equal(b.calls, 1);
  drop(x, h);
}

static void removal_from_inside(void **state) {
  graph *g = *state;
  for (int which = 0; which < 3;
       which++) { /* the running hook removes itself, the one behind it, the one before it */
    ac_tensor *x = leaf_vector(g, 2), *h = scale(g, x, 5);
    probe p[3] = {{.g = g}, {.g = g}, {.g = g}};
    uint64_t id[3];
    for (int i = 0; i < 3; i++) id[i] = hook(h, &p[i]);
    int dead = which == 0 ? 1 : which == 1 ? 2 : 0;
    p[1].on = h;
    p[1].kill = id[dead];
    assert_int_equal(p[dead].freed, 0);
    ac_err e;
    assert_ok(ac_backward(g->c, 1, &h, NULL, 0, NULL, &graph_retain, &e), e);
    assert_true(p[1].removed);
    assert_int_equal(p[dead].freed, 1);
    int calls = p[dead].calls;
    assert_int_equal(calls, which == 1 ? 0 : 1);
    p[1].kill = 0;
    assert_ok(ac_backward(g->c, 1, &h, NULL, 0, NULL, &graph_retain, &e), e);
    assert_int_equal(p[dead].calls, calls);
    assert_int_equal(p[dead].freed, 1);
    drop(x, h);
    for (int i = 0; i < 3; i++) assert_int_equal(p[i].freed, 1);
  }
}

static void hook_added_inside_waits(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 2), *h = scale(g, x, 5);
  probe late = {.g = g}, p = {.g = g, .on = h, .plant = &late};
  ac_err e;
  hook(h, &p);
  assert_ok(ac_backward(g->c, 1, &h, NULL, 0, NULL, &graph_retain, &e), e);
  assert_int_equal(late.calls, 0);
  assert_ok(ac_backward(g->c, 1, &h, NULL, 0, NULL, &graph_retain, &e), e);
  assert_int_equal(late.calls, 1);
  drop(x, h);
  assert_int_equal(late.freed, 1);
}

/* ---- after accumulation ---- */
typedef struct post {
  graph *g;
  ac_tensor *leaf; /* borrowed: to check */
  uint64_t id;
  double seen[8];
  int calls, freed;
  bool clear, once, die;
} post;
static void post_free(void *user) { ((post *)user)->freed++; }
static ac_status post_hook(void *user, ac_tensor *leaf, ac_err *e) {
  post *p = user;
  double v[64];
  assert_ptr_equal(leaf, p->leaf);
  values(ac_tensor_grad(leaf), v);
  p->seen[p->calls++ & 7] = v[0];
  if (p->clear) AC_TRY(ac_tensor_set_grad(leaf, NULL, e)); /* optimizer in backward */
  if (p->once) assert_true(ac_tensor_remove_hook(leaf, p->id));
  if (p->die) ac_tensor_release(leaf);
  assert_int_equal(p->freed, 0);
  return AC_OK;
}

static void post_hooks(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 2, 3);
  post a = {.g = g, .leaf = x}, once = {.g = g, .leaf = x, .once = true},
       b = {.g = g, .leaf = x, .clear = true};
  ac_err e;
  assert_ok(ac_tensor_add_post_hook(x, post_hook, &a, post_free, &a.id, &e), e);
  assert_ok(ac_tensor_add_post_hook(x, post_hook, &once, post_free, &once.id, &e), e);
  assert_ok(ac_tensor_add_post_hook(x, post_hook, &b, post_free, &b.id, &e), e);
  for (int i = 0; i < 2; i++) {
    ac_tensor *h = scale(g, x, 5), *k = scale(g, x, 6), *s = add(g, h, k), *y = sum(g, s);
    backward(g, y);
    assert_null(ac_tensor_grad(x));
    drop(h, k, s, y);
  }
  assert_int_equal(a.calls, 2); /* once per backward, when the whole gradient is there */
  assert_true(a.seen[0] == 11 && a.seen[1] == 11);
  assert_int_equal(once.calls, 1);
  assert_int_equal(once.freed, 1);
  assert_true(ac_tensor_remove_hook(x, b.id));
  ac_tensor *y = sum(g, x);
  assert_ok(ac_backward(g->c, 1, &y, NULL, 1, &x, NULL, &e), e); /* also when inputs are named */
  assert_int_equal(a.calls, 3);
  assert_values(ac_tensor_grad(x), 1, 1);
  ac_tensor *h = scale(g, x, 1);
  uint64_t id;
  assert_fails(ac_tensor_add_post_hook(h, post_hook, &a, NULL, &id, &e), GRAD, "computed by mul", e);
  drop(x, y, h);
  assert_int_equal(a.freed, 1);
  assert_int_equal(b.freed, 1);
}

static void post_hook_drops_its_leaf(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 2, 3), *h = scale(g, x, 5), *y = sum(g, h);
  post p = {.g = g, .leaf = x, .die = true};
  ac_err e;
  assert_ok(ac_tensor_add_post_hook(x, post_hook, &p, post_free, &p.id, &e), e);
  backward(g, y);
  assert_int_equal(p.calls, 1);
  drop(h, y);
  assert_int_equal(p.freed, 1);
}

static void hooks_need_gradients(void **state) {
  graph *g = *state;
  ac_tensor *x = vector(g, 2);
  uint64_t id;
  probe p = {.g = g};
  ac_err e;
  assert_fails(ac_tensor_add_hook(x, probe_hook, &p, probe_free, &id, &e), GRAD, "requires gradients", e);
  assert_int_equal(p.freed, 0); /* a failed call leaves user with the caller */
  assert_false(ac_tensor_remove_hook(x, 1));
  drop(x);
}

/* ---- requires_grad, grad ---- */
static void requires_grad(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 2, 3), *h = scale(g, x, 2), *n = NULL, *v = vector(g, 1, 2, 3), *f = NULL;
  ac_err e;
  assert_fails(ac_tensor_set_requires_grad(h, false, &e), GRAD, "detach", e);
  assert_ok(ac_tensor_set_requires_grad(h, true, &e), e);
  assert_ok(ac_cast(g->c, v, AC_I64, &n, &e), e);
  assert_fails(ac_tensor_set_requires_grad(n, true, &e), DTYPE, "i64", e);
  assert_fails(ac_tensor_set_grad(x, v, &e), SHAPE, "(3)", e);
  assert_fails(ac_tensor_set_grad(x, x, &e), INVALID, "its own", e);
  ac_tensor *w = vector(g, 1, 2);
  assert_ok(ac_cast(g->c, w, AC_F32, &f, &e), e);
  assert_fails(ac_tensor_set_grad(x, f, &e), SHAPE, "f32", e);
  assert_ok(ac_tensor_set_grad(x, w, &e), e);
  assert_ptr_equal(ac_tensor_grad(x), w);
  drop(x, h, n, v, f, w);
}

static void retained_gradients(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 2, 3), *h = scale(g, x, 5), *q = mul(g, h, h), *y = sum(g, q),
            *plain = vector(g, 1);
  ac_err e;
  assert_fails(ac_tensor_retain_grad(plain, &e), GRAD, "does not require", e);
  assert_ok(ac_tensor_retain_grad(x, &e), e); /* a leaf keeps it anyway */
  assert_ok(ac_tensor_retain_grad(h, &e), e);
  assert_ok(ac_tensor_retain_grad(h, &e), e);
  probe p = {.g = g, .factor = 2};
  hook(h, &p); /* what is retained is what the hooks left */
  assert_ok(ac_backward(g->c, 1, &y, NULL, 0, NULL, &graph_retain, &e), e);
  assert_values(ac_tensor_grad(h), 40, 60);
  assert_values(ac_tensor_grad(x), 200, 300);
  assert_null(ac_tensor_grad(q));
  ac_tensor *o = NULL;
  assert_ok(ac_zero_(g->c, ac_tensor_grad(h), &o, &e), e); /* its own copy */
  assert_values(ac_tensor_grad(x), 200, 300);
  drop(o, h); /* gone before the graph */
  backward(g, y);
  assert_values(ac_tensor_grad(x), 400, 600);
  drop(x, q, y, plain);
}

static void retained_through_in_place(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 2, 3), *h = scale(g, x, 5), *o = NULL, *before = h;
  ac_err e;
  probe p = {.g = g};
  uint64_t id = hook(h, &p);
  assert_ok(ac_tensor_retain_grad(h, &e), e);
  assert_ok(ac_mul_(g->c, h, ac_operand_float(3), &o, &e), e);
  assert_ptr_equal(o, before);
  ac_tensor *y = sum(g, h);
  assert_ok(ac_backward(g->c, 1, &y, NULL, 0, NULL, &graph_retain, &e), e);
  assert_values(ac_tensor_grad(h), 1, 1); /* of the value it has now */
  assert_true(p.seen[0] == 3);            /* of the value it had when the hook was put on */
  assert_values(ac_tensor_grad(x), 15, 15);
  assert_true(ac_tensor_remove_hook(h, id));
  assert_int_equal(p.freed, 1);
  drop(o, h);
  backward(g, y); /* h is gone: nobody to give it to */
  drop(x, y);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      graph_test(hooks_see_and_replace),
      graph_test(hook_sees_the_whole_gradient_once),
      graph_test(hook_may_keep_its_gradient),
      graph_test(wrong_replacement),
      graph_test(removal),
      graph_test(removal_from_inside),
      graph_test(hook_added_inside_waits),
      graph_test(post_hooks),
      graph_test(post_hook_drops_its_leaf),
      graph_test(hooks_need_gradients),
      graph_test(requires_grad),
      graph_test(retained_gradients),
      graph_test(retained_through_in_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
