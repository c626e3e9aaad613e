/* Hooks on saved tensors: what they see, when what they made is freed, wrong answers of theirs, second derivatives. */
#include "host/autograd/graph.h"

/* Packs a tensor as a copy multiplied by `by`, so that it shows whether the packed one is used. */
typedef struct packer {
  graph *g;
  ac_saved_hooks h;
  double by;
  int packs, unpacks, frees;
  int mode; /* 1: pack fails; 2: unpack fails; 3: unpack gives another shape; 4: pack writes */
} packer;

typedef struct box {
  packer *p;
  ac_tensor *t;
} box;

static ac_status pack(void *user, ac_tensor *t, void **packed, ac_err *e) {
  packer *p = user;
  assert_false(ac_ctx_grad_enabled(p->g->c));
  assert_false(ac_tensor_requires_grad(t));
  p->packs++;
  if (p->mode == 1) return AC_FAIL(e, IO, "no room");
  if (p->mode == 4) {
    ac_tensor *o = NULL;
    AC_TRY(ac_zero_(p->g->c, t, &o, e));
    ac_tensor_release(o);
  }
  box *b = malloc(sizeof *b);
  *b = (box){p, NULL};
  *packed = b;
  return ac_mul(p->g->c, ac_operand_tensor(t), ac_operand_float(p->by), &b->t, e);
}
static ac_status unpack(void *packed, ac_tensor **out, ac_err *e) {
  box *b = packed;
  b->p->unpacks++;
  if (b->p->mode == 2) return AC_FAIL(e, IO, "lost");
  if (b->p->mode == 3) return ac_sum(b->p->g->c, b->t, NULL, 0, false, NULL, out, e);
  ac_tensor_retain(*out = b->t);
  return AC_OK;
}
static void free_packed(void *packed) {
  box *b = packed;
  b->p->frees++;
  ac_tensor_release(b->t);
  free(b);
}
static void on(packer *p) {
  p->h = (ac_saved_hooks){.struct_size = sizeof p->h,
                          .skip_leaves = p->h.skip_leaves,
                          .pack = pack,
                          .unpack = unpack,
                          .free_packed = free_packed,
                          .user = p};
  ac_saved_hooks_push(p->g->c, &p->h);
}
static void off(packer *p) { ac_saved_hooks_pop(p->g->c, &p->h); }

static void packed_is_used(void **state) {
  graph *g = *state;
  packer p = {.g = g, .by = 10};
  ac_tensor *x = leaf_vector(g, 2, 3), *k = vector(g, 5, 7);
  on(&p);
  ac_tensor *y = mul(g, x, k);
  off(&p);
  assert_int_equal(p.packs, 1); /* k; x is needed for the gradient of k alone, which needs none */
  ac_tensor *s = sum(g, y);
  backward(g, s);
  assert_int_equal(p.unpacks, 1);
  assert_int_equal(p.frees, 1); /* consumed, though y lives */
  assert_values(ac_tensor_grad(x), 50, 70);
  drop(s, y, k, x);
}

static void inputs_and_results(void **state) {
  graph *g = *state;
  packer p = {.g = g, .by = 1};
  ac_err e;
  ac_tensor *x = leaf_vector(g, 0.5, -1), *y, *z;
  on(&p);
  y = exponential(g, x); /* its result */
  z = mul(g, y, y);      /* twice its argument */
  off(&p);
  assert_int_equal(p.packs, 3);
  assert_ok(ac_tensor_set_requires_grad(x, true, &e), e);
  ac_tensor *s = sum(g, z);
  assert_ok(ac_backward(g->c, 1, &s, NULL, 0, NULL, &graph_retain, &e), e);
  assert_int_equal(p.frees, 0);
  backward(g, s);
  assert_int_equal(p.unpacks, 6);
  assert_int_equal(p.frees, 3);
  assert_values(ac_tensor_grad(x), 4 * exp(1.0), 4 * exp(-2.0));
  drop(s, z, y, x);
  /* a graph that is dropped frees what it packed */
  p = (packer){.g = g, .by = 1};
  x = leaf_vector(g, 1);
  on(&p);
  y = exponential(g, x);
  off(&p);
  drop(y, x);
  assert_int_equal(p.frees, 1);
}

static void second_derivative(void **state) {
  graph *g = *state;
  packer p = {.g = g, .by = 1};
  ac_err e;
  ac_tensor *x = leaf_vector(g, 0.5), *d = NULL, *dd = NULL;
  on(&p);
  ac_tensor *y = exponential(g, x), *z = mul(g, y, x);
  off(&p);
  assert_ok(ac_gradients(g->c, 1, &z, NULL, 1, &x, false, &graph_create, &d, &e), e);
  assert_ok(ac_gradients(g->c, 1, &d, NULL, 1, &x, false, NULL, &dd, &e), e);
  assert_values(d, exp(0.5) * 1.5); /* (x e^x)' = e^x (x + 1), '' = e^x (x + 2) */
  assert_values(dd, exp(0.5) * 2.5);
  drop(dd, d, z, y, x);
}

static void leaves_are_skipped(void **state) {
  graph *g = *state;
  packer p = {.g = g, .by = 10, .h = {.skip_leaves = true}};
  ac_err e;
  ac_tensor *x = leaf_vector(g, 2), *w = leaf_vector(g, 3), *o = NULL, *m = scale(g, x, 1);
  on(&p);
  ac_tensor *y = mul(g, m, w);
  off(&p);
  assert_int_equal(p.packs, 1); /* m */
  backward(g, y);
  assert_values(ac_tensor_grad(x), 3);
  assert_values(ac_tensor_grad(w), 20);
  ac_tensor_release(y);
  on(&p);
  y = mul(g, m, w);
  off(&p);
  const bool was = ac_ctx_set_grad_enabled(g->c, false);
  assert_ok(ac_zero_(g->c, w, &o, &e), e);
  ac_ctx_set_grad_enabled(g->c, was);
  assert_int_equal(ac_backward(g->c, 1, &y, NULL, 0, NULL, NULL, &e), AC_VERSION);
  drop(o, y, m, w, x);
}

static void innermost_counts(void **state) {
  graph *g = *state;
  packer p = {.g = g, .by = 1}, q = {.g = g, .by = 1};
  ac_tensor *x = leaf_vector(g, 2);
  on(&p);
  on(&q);
  ac_tensor *a = exponential(g, x);
  off(&p); /* out of order */
  ac_tensor *b = exponential(g, x);
  off(&q);
  ac_tensor *c = exponential(g, x);
  assert_int_equal(p.packs, 0);
  assert_int_equal(q.packs, 2);
  drop(c, b, a, x);
  assert_int_equal(q.frees, 2);
}

static void wrong_answers(void **state) {
  graph *g = *state;
  static const struct {
    int mode;
    ac_status code;
    const char *says;
  } cases[] = {{1, AC_IO, "no room"},
               {4, AC_GRAD, "changed the tensor"},
               {2, AC_IO, "lost"},
               {3, AC_GRAD, "was unpacked as f64 () on cpu, but it was f64 (2) on cpu"}};
  for (int i = 0; i < 4; i++) {
    packer p = {.g = g, .by = 1, .mode = cases[i].mode};
    ac_err e = {0};
    ac_tensor *x = leaf_vector(g, 1, 2), *y = NULL;
    on(&p);
    ac_status st = ac_exp(g->c, x, &y, &e);
    off(&p);
    if (i >= 2) {
      assert_ok(st, e);
      ac_tensor *s = sum(g, y);
      st = ac_backward(g->c, 1, &s, NULL, 0, NULL, NULL, &e);
      ac_tensor_release(s);
    }
    assert_int_equal(st, cases[i].code);
    assert_non_null(strstr(e.msg, cases[i].says));
    drop(y, x);
    assert_int_equal(p.frees, cases[i].mode == 1 ? 0 : 1);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      graph_test(packed_is_used),     graph_test(inputs_and_results), graph_test(second_derivative),
      graph_test(leaves_are_skipped), graph_test(innermost_counts),   graph_test(wrong_answers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
