/* Callback nodes: several inputs and outputs, missing gradients, what is released and freed and how often,
 * wrong answers. */
#include "host/autograd/graph.h"

/* y0 = x0 * x1, y1 = x0 + x1, with the factors kept by hand. */
typedef struct custom {
  graph *g;
  ac_tensor *saved[2];
  int runs, released, freed;
  bool got[2];
  int mode; /* 0: right; 1: fails half way; 2: wrong shape; 3: NULL for both; 4: f32 */
} custom;

static ac_status custom_backward(void *user, ac_ctx *c, int n_outputs, ac_tensor *const *dout, int n_inputs,
                                 ac_tensor **din, ac_err *e) {
  custom *u = user;
  assert_int_equal(n_outputs, 2);
  assert_int_equal(n_inputs, 2);
  u->runs++;
  for (int i = 0; i < 2; i++) u->got[i] = dout[i] != NULL;
  if (u->mode == 3) return AC_OK;
  for (int i = 0; i < 2; i++) {
    ac_tensor *a = NULL;
    if (dout[0] != NULL)
      AC_TRY(ac_mul(c, ac_operand_tensor(dout[0]), ac_operand_tensor(u->saved[1 - i]), &a, e));
    if (dout[1] != NULL && a != NULL) {
      ac_tensor *s = NULL;
      ac_status st = ac_add(c, ac_operand_tensor(a), ac_operand_tensor(dout[1]), graph_one, &s, e);
      ac_tensor_release(a);
      AC_TRY(st);
      a = s;
    } else if (a == NULL) {
      ac_tensor_retain(a = dout[1]);
    }
    din[i] = a;
    if (u->mode == 1) return AC_FAIL(e, CALLBACK, "half way");
    if (u->mode == 2) {
      din[i] = NULL;
      ac_status st = ac_sum(c, a, NULL, 0, false, NULL, &din[i], e);
      ac_tensor_release(a);
      AC_TRY(st);
    }
    if (u->mode == 4) {
      din[i] = NULL;
      ac_status st = ac_cast(c, a, AC_F32, &din[i], e);
      ac_tensor_release(a);
      AC_TRY(st);
    }
  }
  return AC_OK;
}
static void custom_release(void *user) {
  custom *u = user;
  u->released++;
  drop_all(2, u->saved);
  u->saved[0] = u->saved[1] = NULL;
}
static void custom_free(void *user) {
  custom *u = user;
  u->freed++;
  drop_all(2, u->saved);
  u->saved[0] = u->saved[1] = NULL;
}

static bool apply(graph *g, custom *u, ac_tensor *a, ac_tensor *b, ac_tensor **y) {
  bool recorded = false;
  ac_err e;
  bool was = ac_ctx_set_grad_enabled(g->c, false);
  y[0] = mul(g, a, b);
  y[1] = add(g, a, b);
  ac_ctx_set_grad_enabled(g->c, was);
  u->g = g;
  ac_tensor_retain(u->saved[0] = a);
  ac_tensor_retain(u->saved[1] = b);
  char name[16] = "custom"; /* copied */
  ac_callback_node n = {sizeof n, name, custom_backward, custom_release, custom_free, u};
  assert_ok(ac_node_callback(g->c, &n, 2, (ac_tensor *[]){a, b}, 2, y, &recorded, &e), e);
  name[0] = 'X';
  return recorded;
}

static void many_in_many_out(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 2, 3), *w = leaf_vector(g, 5, 7), *h = scale(g, x, 1), *y[2];
  custom u = {0};
  assert_true(apply(g, &u, h, w, y));
  assert_string_equal(ac_tensor_grad_fn_name(y[0]), "custom");
  assert_ptr_equal(ac_tensor_grad_fn(y[0]), ac_tensor_grad_fn(y[1]));
  ac_tensor *q = scale(g, y[0], 10), *s = add(g, q, y[1]), *z = sum(g, s);
  ac_err e;
  assert_ok(ac_backward(g->c, 1, &z, NULL, 0, NULL, &graph_retain, &e), e);
  assert_int_equal(u.released, 0);
  assert_values(ac_tensor_grad(x), 51, 71);
  assert_values(ac_tensor_grad(w), 21, 31);
  backward(g, z);
  assert_int_equal(u.released, 1);
  assert_values(ac_tensor_grad(x), 102, 142);
  assert_fails(ac_backward(g->c, 1, &z, NULL, 0, NULL, NULL, &e), GRAD, "custom a second time", e);
  assert_int_equal(u.runs, 2);
  assert_int_equal(u.freed, 0);
  drop(q, s, z, y[0]);
  assert_int_equal(u.freed, 0); /* y[1] still holds it */
  drop(y[1]);
  assert_int_equal(u.freed, 1);
  assert_int_equal(u.released, 1);
  drop(x, w, h);
}

static void one_output_used(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 2, 3), *w = vector(g, 5, 7), *y[2];
  custom u = {0};
  assert_true(apply(g, &u, x, w, y)); /* w needs none: what the callback makes for it is dropped */
  drop(y[0]);
  ac_tensor *z = sum(g, y[1]);
  backward(g, z);
  assert_false(u.got[0]);
  assert_true(u.got[1]);
  assert_values(ac_tensor_grad(x), 1, 1);
  assert_null(ac_tensor_grad(w));
  drop(x, w, y[1], z);
  assert_int_equal(u.freed, 1);
}

static void not_recorded(void **state) {
  graph *g = *state;
  ac_tensor *a = vector(g, 2, 3), *b = vector(g, 5, 7), *x = leaf_vector(g, 1, 2), *y[2];
  custom u = {0}, v = {0};
  assert_false(apply(g, &u, a, b, y));
  assert_int_equal(u.freed, 1);
  assert_false(ac_tensor_requires_grad(y[0]));
  drop(y[0], y[1]);
  ac_ctx_set_grad_enabled(g->c, false);
  assert_false(apply(g, &v, x, b, y));
  ac_ctx_set_grad_enabled(g->c, true);
  assert_int_equal(v.freed, 1);
  drop(a, b, x, y[0], y[1]);
}

static void outputs_with_history(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 2, 3), *h = scale(g, x, 2);
  custom u = {0};
  bool recorded = true;
  ac_err e;
  ac_callback_node n = {sizeof n, "custom", custom_backward, custom_release, custom_free, &u};
  assert_fails(ac_node_callback(g->c, &n, 1, &x, 1, &h, &recorded, &e), GRAD,
               "output 1 of custom has a history", e);
  assert_fails(ac_node_callback(g->c, &n, 1, &x, 1, &x, &recorded, &e), GRAD, "output 1 of custom", e);
  assert_false(recorded);
  assert_int_equal(u.freed, 0); /* a failed call leaves user with the caller */
  n.struct_size = 8;
  assert_fails(ac_node_callback(g->c, &n, 1, &x, 1, &h, &recorded, &e), UNSUPPORTED, "version", e);
  drop(x, h);
}

static void failures(void **state) {
  graph *g = *state;
  for (int mode = 1; mode <= 4; mode++) {
    ac_tensor *x = leaf_vector(g, 2, 3), *w = leaf_vector(g, 5, 7), *h = scale(g, x, 1), *y[2];
    custom u = {.mode = mode};
    ac_err e;
    assert_true(apply(g, &u, h, w, y));
    ac_tensor *s = add(g, y[0], y[1]), *z = sum(g, s);
    ac_status st = ac_backward(g->c, 1, &z, NULL, 0, NULL, NULL, &e);
    if (mode == 1) assert_fails(st, CALLBACK, "half way", e);
    if (mode == 2) assert_fails(st, SHAPE, "custom gave for its input 1 has shape (), the input (2)", e);
    if (mode >= 3) assert_ok(st, e);
    if (mode == 3) assert_null(ac_tensor_grad(x));
    if (mode == 4) { /* cast to what the input is */
      assert_int_equal(ac_tensor_dtype(ac_tensor_grad(x)), AC_F64);
      assert_values(ac_tensor_grad(x), 6, 8);
    }
    if (mode == 1) assert_int_equal(u.released, 0); /* not consumed */
    drop(x, w, h, y[0], y[1], s, z);
    assert_int_equal(u.freed, 1);
  }
}

/* A backward made of recorded ops can be differentiated again. */
static void second_derivative(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 2, 3), *y[2], *d = NULL, *dd = NULL;
  custom u = {0};
  ac_err e;
  assert_true(apply(g, &u, x, x, y)); /* x^2 */
  ac_tensor *z = sum(g, y[0]);
  assert_ok(ac_gradients(g->c, 1, &z, NULL, 1, &x, false, &graph_create, &d, &e), e);
  assert_values(d, 4, 6);
  ac_tensor *q = mul(g, d, d), *s = sum(g, q);
  assert_ok(ac_gradients(g->c, 1, &s, NULL, 1, &x, false, NULL, &dd, &e), e);
  assert_values(dd, 16, 24); /* 2 d d', d' = 2 */
  drop(x, y[0], y[1], z, d, q, s, dd);
  assert_int_equal(u.freed, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      graph_test(many_in_many_out),     graph_test(one_output_used), graph_test(not_recorded),
      graph_test(outputs_with_history), graph_test(failures),        graph_test(second_derivative),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
