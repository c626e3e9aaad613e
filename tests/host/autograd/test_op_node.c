/* Backward of recorded ops: second and higher derivatives, ops made of others, RNG counters of random ops, ops
 * without gradient. */
#include "host/autograd/graph.h"

static ac_tensor *derive(graph *g, ac_tensor *y, ac_tensor *x, bool again) {
  ac_tensor *s = sum(g, y), *d = NULL;
  ac_err e;
  assert_ok(ac_gradients(g->c, 1, &s, NULL, 1, &x, false, again ? &graph_create : NULL, &d, &e), e);
  ac_tensor_release(s);
  return d;
}

static void cube(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 2, -3), *q = mul(g, x, x), *y = mul(g, q, x);
  ac_tensor *d1 = derive(g, y, x, true), *d2 = derive(g, d1, x, true), *d3 = derive(g, d2, x, false);
  assert_values(d1, 12, 27);
  assert_values(d2, 12, -18);
  assert_values(d3, 6, 6);
  assert_null(ac_tensor_grad(x));
  drop(x, q, y, d1, d2, d3);
}

static void exponential_any_times(void **state) {
  graph *g = *state; /* saves its own result: it needs its history back for each further derivative */
  ac_tensor *x = leaf_vector(g, 0.5, -1), *t = exponential(g, x);
  for (int i = 0; i < 5; i++) {
    ac_tensor *d = derive(g, t, x, true);
    assert_values(d, exp(0.5), exp(-1));
    ac_tensor_release(t);
    t = d;
  }
  drop(x, t);
}

static void matrix_product(void **state) {
  graph *g = *state;
  /* y = sum((x w)^2): dy/dx = 2 x w w^T; d(sum of that)/dw = 2 (u (x w) + x^T (u w)), u = ones */
  ac_tensor *x = leaf(g, 1, 2, (double[]){1, 2}), *w = leaf(g, 2, 2, (double[]){3, 4, 5, 6}), *h = NULL,
            *d = NULL, *dd = NULL;
  ac_err e;
  assert_ok(ac_matmul(g->c, x, w, &h, &e), e);
  ac_tensor *q = mul(g, h, h), *y = sum(g, q);
  assert_ok(ac_gradients(g->c, 1, &y, NULL, 1, &x, false, &graph_create, &d, &e), e);
  double h0 = 13, h1 = 16, u0 = 8, u1 = 10; /* x w; column sums of w: u w */
  assert_values(d, 2 * (h0 * 3 + h1 * 4), 2 * (h0 * 5 + h1 * 6));
  ac_tensor *s = sum(g, d);
  assert_ok(ac_gradients(g->c, 1, &s, NULL, 1, &w, false, NULL, &dd, &e), e);
  assert_values(dd, 2 * (h0 + 1 * u0), 2 * (h1 + 1 * u1), 2 * (h0 + 2 * u0), 2 * (h1 + 2 * u1));
  drop(x, w, h, q, y, d, s, dd);
}

static void create_graph_into_grad(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 2, 3), *q = mul(g, x, x), *p = mul(g, q, x), *y = sum(g, p);
  ac_err e;
  assert_ok(ac_backward(g->c, 1, &y, NULL, 0, NULL, &graph_create, &e), e);
  ac_tensor *d = ac_tensor_grad(x);
  assert_true(ac_tensor_requires_grad(d));
  assert_values(d, 12, 27);
  ac_tensor_retain(d);
  assert_ok(ac_tensor_set_grad(x, NULL, &e), e);
  ac_tensor *dd = mul(g, d, d), *s = sum(g, dd); /* a gradient penalty */
  backward(g, s);
  assert_values(ac_tensor_grad(x), 2 * 12 * 12, 2 * 27 * 18);
  drop(x, q, p, y, d, dd, s);
}

/* silu is differentiated again through x sigmoid(x): f'' = s' (2 + x (1 - 2 s)), s' = s (1 - s) */
static void composed_under_create_graph(void **state) {
  graph *g = *state;
  const double at[2] = {0.7, -1.3};
  double d1[2], d2[2];
  for (int i = 0; i < 2; i++) {
    double s = 1 / (1 + exp(-at[i]));
    d1[i] = s * (1 + at[i] * (1 - s));
    d2[i] = s * (1 - s) * (2 + at[i] * (1 - 2 * s));
  }
  ac_tensor *x = leaf_vector(g, 0.35, -0.65), *h = scale(g, x, 2), *y = NULL;
  ac_err e;
  assert_ok(ac_silu(g->c, h, &y, &e), e);
  ac_tensor *a = derive(g, y, h, true), *b = derive(g, a, h, true), *c = derive(g, y, x, true),
            *d = derive(g, c, x, false);
  check_values(a, d1, 2, __FILE__, __LINE__);
  check_values(b, d2, 2, __FILE__, __LINE__);
  assert_values(c, 2 * d1[0], 2 * d1[1]);
  assert_values(d, 4 * d2[0], 4 * d2[1]); /* through what is behind its input */
  drop(x, h, y, a, b, c, d);
}

/* tanh's backward is an op with only a composition: the last derivative runs with recording off. */
static void composed_without_create_graph(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 0.4, -1.1), *y = NULL;
  ac_err e;
  assert_ok(ac_tanh(g->c, x, &y, &e), e);
  ac_tensor *d = derive(g, y, x, true), *dd = derive(g, d, x, false);
  double t0 = tanh(0.4), t1 = tanh(-1.1);
  assert_values(dd, -2 * t0 * (1 - t0 * t0), -2 * t1 * (1 - t1 * t1));
  assert_false(ac_tensor_requires_grad(dd));
  drop(x, y, d, dd);
}

static ac_tensor *silu(graph *g, ac_tensor *x) {
  ac_tensor *y = NULL;
  ac_err e;
  assert_ok(ac_silu(g->c, x, &y, &e), e);
  return y;
}

/* Each layer's composition must not walk what lies before it: 400 layers, second order, in no time. */
static void composed_in_a_deep_graph(void **state) {
  graph *g = *state;
  enum { N = 400 };
  ac_tensor *x = leaf_vector(g, 0.5), *t = scale(g, x, 1);
  double v = 0.5, d = 1;
  for (int i = 0; i < N; i++) {
    ac_tensor *a = silu(g, t), *b = add(g, a, x);
    double s = 1 / (1 + exp(-v));
    d = d * s * (1 + v * (1 - s)) + 1;
    v = v * s + 0.5;
    ac_tensor_release(t);
    ac_tensor_release(a);
    t = b;
  }
  ac_tensor *dx = derive(g, t, x, true), *ddx = derive(g, dx, x, false);
  assert_values(dx, d);
  assert_int_equal(ac_tensor_numel(ddx), 1);
  drop(x, t, dx, ddx);
}

static void paths_between_inputs_count_once(void **state) {
  graph *g = *state;
  /* layer_norm(x, w) with w made of x: its composition is differentiated by x and by w apart */
  ac_tensor *x = leaf_vector(g, 1, 2, 4), *w = mul(g, x, x), *y1 = NULL, *y2 = NULL;
  int64_t n = 3;
  ac_err e;
  assert_ok(ac_rms_norm(g->c, x, &n, 1, w, NULL, &y1, &e), e);
  ac_tensor *plain = derive(g, y1, x, false);
  drop(w);
  w = mul(g, x, x);
  assert_ok(ac_rms_norm(g->c, x, &n, 1, w, NULL, &y2, &e), e);
  ac_tensor *twice = derive(g, y2, x, true);
  double a[3], b[3];
  values(plain, a);
  values(twice, b);
  assert_close(b, a, 3, 1e-12, 0);
  drop(x, w, y1, y2, plain, twice);
}

/* Dropout's gradient has the zeros of its forward, also when the generator has moved on. */
static void rng_counters(void **state) {
  graph *g = *state;
  enum { N = 64 };
  int64_t shape = N;
  ac_tensor *x = NULL, *o = NULL, *y = NULL, *z = NULL;
  double v[N], d[N];
  int zeros = 0;
  ac_err e;
  assert_ok(ac_tensor_new(ac_ctx_default_device(g->c), AC_F64, 1, &shape, &x, &e), e);
  assert_ok(ac_fill_(g->c, x, (ac_scalar){.kind = AC_SCALAR_FLOAT, .f = 3}, &o, &e), e);
  assert_ok(ac_tensor_set_requires_grad(x, true, &e), e);
  assert_ok(ac_dropout(g->c, x, 0.25, true, NULL, &y, &e), e);
  assert_ok(ac_dropout(g->c, x, 0.25, true, NULL, &z, &e), e);
  ac_tensor *s = sum(g, y);
  values(y, v);
  backward(g, s);
  values(ac_tensor_grad(x), d);
  for (int i = 0; i < N; i++) {
    assert_true(d[i] * 3 == v[i]);
    zeros += v[i] == 0;
  }
  assert_in_range(zeros, 4, 32);
  drop(x, o, y, z, s);
}

/* ---- ops of a test's own: what a rule may get wrong ---- */
static ac_status like0(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  return ac_frame_out(f, ac_tensor_dtype(x), ac_tensor_ndim(x), ac_tensor_shape(x), e);
}
static ac_status copy0(ac_frame *f, ac_err *e) {
  (void)e;
  memcpy(ac_tensor_data(f->out[0]), ac_tensor_data(f->args[0].tensor),
         (size_t)ac_tensor_numel(f->out[0]) * sizeof(double));
  return AC_OK;
}
static void short_grad(ac_grad *r) {
  ac_value a[4] = {{.kind = AC_T_TENSOR, .tensor = r->dout[0]},
                   {.kind = AC_T_NONE},
                   {.kind = AC_T_NONE},
                   {.kind = AC_T_NONE}};
  a[2] = (ac_value){.kind = AC_T_BOOL, .b = false};
  ac_grad_set(r, 0, ac_expr_call(&r->x, ac_op_find(r->x.ctx, "sum"), a, NULL, 0));
}
static void unsaved_grad(ac_grad *r) {
  ac_operand o = ac_operand_tensor(r->args[0].tensor); /* not named by .save */
  ac_value a[2] = {{.kind = AC_T_TENSOR, .tensor = r->dout[0]}, {.kind = AC_T_SCALAR, .scalar = o.scalar}};
  ac_grad_set(r, 0, ac_expr_call(&r->x, ac_op_find(r->x.ctx, "mul"), a, NULL, 0));
}
static const ac_op_desc no_grad_op = {.struct_size = sizeof(ac_op_desc),
                                      .name = "mute",
                                      .sig = "mute(x: tensor) -> tensor",
                                      .shape = like0,
                                      .cpu = copy0};
static const ac_op_desc short_op = {.struct_size = sizeof(ac_op_desc),
                                    .name = "short",
                                    .sig = "short(x: tensor) -> tensor",
                                    .shape = like0,
                                    .cpu = copy0,
                                    .grad = short_grad};
static const ac_op_desc unsaved_op = {.struct_size = sizeof(ac_op_desc),
                                      .name = "unsaved",
                                      .sig = "unsaved(x: tensor) -> tensor",
                                      .shape = like0,
                                      .cpu = copy0,
                                      .grad = unsaved_grad};

static void rules_that_are_wrong(void **state) {
  graph *g = *state;
  const ac_op_desc *const ops[3] = {&no_grad_op, &short_op, &unsaved_op};
  const char *const says[3] = {"mute has no gradient", "short gave for its input 1 has shape ()",
                               "was not saved"};
  const ac_status code[3] = {AC_GRAD, AC_SHAPE, AC_INTERNAL};
  for (int i = 0; i < 3; i++) {
    ac_tensor *x = leaf_vector(g, 1, 2);
    ac_value a = {.kind = AC_T_TENSOR, .tensor = x}, r[AC_MAX_RESULTS];
    int n = 0;
    ac_err e;
    assert_ok(ac_op_register(g->c, ops[i], &e), e);
    assert_fails(ac_op_register(g->c, ops[i], &e), STATE, "already", e);
    assert_ok(ac_call(g->c, ac_op_find(g->c, ops[i]->name), &a, r, &n, &e), e);
    assert_string_equal(ac_tensor_grad_fn_name(r[0].tensor), ops[i]->name);
    ac_tensor *y = sum(g, r[0].tensor);
    ac_status st = ac_backward(g->c, 1, &y, NULL, 0, NULL, NULL, &e);
    assert_int_equal(st, code[i]);
    ac_test_contains(e.msg, says[i], __FILE__, __LINE__);
    assert_null(ac_tensor_grad(x));
    drop(x, r[0].tensor, y);
  }
}

static void null_operands(void **state) {
  graph *g = *state;
  ac_tensor *x = vector(g, 1, 2), *y = NULL;
  ac_err e;
  assert_fails(ac_mul(g->c, ac_operand_tensor(x), ac_operand_tensor(NULL), &y, &e), INVALID,
               "argument 2 is NULL", e);
  assert_fails(ac_exp(g->c, NULL, &y, &e), INVALID, "argument 1 is NULL", e);
  drop(x);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      graph_test(cube),
      graph_test(exponential_any_times),
      graph_test(matrix_product),
      graph_test(create_graph_into_grad),
      graph_test(composed_under_create_graph),
      graph_test(composed_without_create_graph),
      graph_test(composed_in_a_deep_graph),
      graph_test(paths_between_inputs_count_once),
      graph_test(rng_counters),
      graph_test(rules_that_are_wrong),
      graph_test(null_operands),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
