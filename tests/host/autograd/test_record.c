/* Recording: which tensors a node keeps, what an in-place write does to the graph, and what is refused.
 * Values against closed forms. */
#include "host/autograd/graph.h"

static ac_status mul_number_(graph *g, ac_tensor *t, double by, ac_err *e) {
  ac_tensor *o = NULL;
  ac_status st = ac_mul_(g->c, t, ac_operand_float(by), &o, e);
  ac_tensor_release(o);
  return st;
}
static ac_status mul_(graph *g, ac_tensor *t, ac_tensor *by, ac_err *e) {
  ac_tensor *o = NULL;
  ac_status st = ac_mul_(g->c, t, ac_operand_tensor(by), &o, e);
  ac_tensor_release(o);
  return st;
}
static ac_status add_(graph *g, ac_tensor *t, ac_tensor *by, ac_err *e) {
  ac_tensor *o = NULL;
  ac_status st = ac_add_(g->c, t, ac_operand_tensor(by), graph_one, &o, e);
  ac_tensor_release(o);
  return st;
}
static ac_tensor *first(graph *g, ac_tensor *t, int64_t n) {
  ac_tensor *v = NULL;
  ac_err e;
  assert_ok(ac_narrow(g->c, t, 0, 0, n, &v, &e), e);
  return v;
}

/* ---- versions ---- */
static void saved_input_was_changed(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *h = scale(g, x, 2), *p = mul(g, h, h), *y = sum(g, p);
  ac_err e;
  assert_ok(mul_number_(g, h, 3, &e), e);
  assert_fails(ac_backward(g->c, 1, &y, NULL, 0, NULL, NULL, &e), VERSION, "argument 1 of mul", e);
  assert_null(ac_tensor_grad(x));
  drop(x, h, p, y);
}

static void saved_result_was_changed(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *h = exponential(g, x), *y = sum(g, h);
  ac_err e;
  assert_ok(mul_number_(g, h, 3, &e), e);
  assert_fails(ac_backward(g->c, 1, &y, NULL, 0, NULL, NULL, &e), VERSION, "result 1 of exp", e);
  drop(x, h, y);
}

static void changed_through_other_handles(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *w = leaf_vector(g, 3, 4), *p = mul(g, x, w), *y = sum(g, p),
            *d = NULL;
  ac_err e;
  ac_ctx_set_grad_enabled(g->c, false);
  ac_tensor *v = first(g, w, 1);
  assert_ok(mul_number_(g, v, 0, &e), e); /* a view, without recording */
  ac_ctx_set_grad_enabled(g->c, true);
  assert_fails(ac_backward(g->c, 1, &y, NULL, 0, NULL, NULL, &e), VERSION, "argument 2 of mul", e);
  drop(p, y);
  p = mul(g, x, w);
  y = sum(g, p);
  assert_ok(ac_tensor_detach(x, &d, &e), e);
  assert_ok(mul_number_(g, d, 2, &e), e); /* a detached handle */
  assert_fails(ac_backward(g->c, 1, &y, NULL, 0, NULL, NULL, &e), VERSION, "argument 1 of mul", e);
  drop(x, w, p, y, v, d);
}

/* What no gradient needs is not kept, so it may change - and does not hold memory. */
static void only_what_is_needed(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *mask = vector(g, 3, 4), *h = scale(g, x, 2), *p = mul(g, h, mask),
            *q = scale(g, p, 5), *y = sum(g, q);
  ac_err e;
  assert_ok(mul_number_(g, h, 100, &e), e); /* d/dmask is not wanted: h was not kept */
  assert_ok(mul_number_(g, p, 100, &e), e);
  backward(g, y);
  assert_values(ac_tensor_grad(x), 2 * 3 * 5, 2 * 4 * 5);
  drop(h, p, q, y, mask);
  /* a frozen weight: the input of the product goes as soon as nobody holds it */
  ac_tensor *w = constant(g, 2, 2, (double[]){1, 2, 3, 4}), *m = NULL;
  int64_t live = ac_tensor_live();
  h = scale(g, x, 2);
  assert_ok(ac_matmul(g->c, h, w, &m, &e), e);
  drop(h);
  assert_int_equal(ac_tensor_live(), live + 1);
  y = sum(g, m);
  assert_ok(ac_tensor_set_grad(x, NULL, &e), e);
  backward(g, y);
  assert_values(ac_tensor_grad(x), 2 * 3, 2 * 7);
  drop(x, w, m, y);
}

/* ---- in-place writes that are recorded ---- */
static void in_place_rebases(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *w = leaf_vector(g, 5, 7), *h = scale(g, x, 2);
  ac_err e;
  ac_node *before = ac_tensor_grad_fn(h);
  assert_ok(add_(g, h, w, &e), e); /* 2x + w */
  assert_ptr_not_equal(ac_tensor_grad_fn(h), before);
  assert_string_equal(ac_tensor_grad_fn_name(h), "add_");
  assert_ok(mul_(g, h, w, &e), e);        /* (2x + w) w: keeps a copy of what it overwrote */
  assert_ok(mul_number_(g, h, 3, &e), e); /* needs none */
  assert_values(h, 7 * 5 * 3, 11 * 7 * 3);
  ac_tensor *y = sum(g, h);
  backward(g, y);
  assert_values(ac_tensor_grad(x), 2 * 5 * 3, 2 * 7 * 3);
  assert_values(ac_tensor_grad(w), (2 * 1 + 2 * 5) * 3, (2 * 2 + 2 * 7) * 3);
  drop(x, w, h, y);
}

static void in_place_saved_results(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 0.3, -0.4), *h = scale(g, x, 2), *o = NULL;
  ac_err e;
  assert_ok(ac_exp_(g->c, h, &o, &e), e); /* its own result, at the version after the write */
  ac_tensor *y = sum(g, h);
  backward(g, y);
  assert_values(ac_tensor_grad(x), 2 * exp(0.6), 2 * exp(-0.8));
  drop(x, h, o, y);
}

static void in_place_into_a_constant(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *buf = vector(g, 10, 20), *plain = vector(g, 1, 1);
  ac_err e;
  assert_ok(add_(g, buf, plain, &e), e);
  assert_false(ac_tensor_requires_grad(buf));
  assert_ok(mul_(g, buf, x, &e), e);
  assert_true(ac_tensor_requires_grad(buf));
  ac_tensor *y = sum(g, buf);
  backward(g, y);
  assert_values(ac_tensor_grad(x), 11, 21);
  drop(x, buf, plain, y);
}

static void overwritten_values_have_no_gradient(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *z = leaf_vector(g, 3, 4), *h = scale(g, x, 2), *o = NULL, *q;
  ac_err e;
  assert_ok(ac_copy_(g->c, h, z, &o, &e), e);
  drop(o);
  ac_tensor *y = sum(g, h);
  backward(g, y);
  assert_values(ac_tensor_grad(z), 1, 1);
  if (ac_tensor_grad(x) != NULL) assert_values(ac_tensor_grad(x), 0, 0);
  drop(h, y);
  h = scale(g, x, 2);
  assert_ok(ac_zero_(g->c, h, &o, &e), e);
  q = add(g, h, z);
  y = sum(g, q);
  backward(g, y);
  if (ac_tensor_grad(x) != NULL) assert_values(ac_tensor_grad(x), 0, 0);
  drop(o, h, q, y);
  h = scale(g, x, 2); /* random numbers: nothing of x is left in h */
  assert_ok(ac_uniform_(g->c, h, 0, 1, NULL, &o, &e), e);
  q = mul(g, h, z);
  y = sum(g, q);
  backward(g, y);
  if (ac_tensor_grad(x) != NULL) assert_values(ac_tensor_grad(x), 0, 0);
  drop(x, z, o, h, q, y);
}

/* An op without gradient that writes: what it wrote has no history. */
static ac_status stamp_shape(ac_frame *f, ac_err *e) { return ac_frame_alias(f, 0, e); }
static ac_status stamp_cpu(ac_frame *f, ac_err *e) {
  double *p[2] = {ac_tensor_data(f->args[0].tensor), ac_tensor_data(f->args[1].tensors[0])};
  (void)e;
  *p[0] = *p[1] = 9;
  return AC_OK;
}
static const ac_op_desc stamp = {.struct_size = sizeof stamp,
                                 .name = "stamp_",
                                 .sig = "stamp_(x!: tensor, others!: tensors) -> tensor",
                                 .shape = stamp_shape,
                                 .cpu = stamp_cpu,
                                 .nondiff = true};

static void written_without_gradient(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *h = scale(g, x, 2), *o = scale(g, x, 3), *v = first(g, h, 1),
            *y = NULL;
  ac_value a[2] = {{.kind = AC_T_TENSOR, .tensor = h}, {.kind = AC_T_TENSORS, .n = 1, .tensors = &o}},
           r[AC_MAX_RESULTS];
  int n = 0;
  ac_err e;
  assert_ok(ac_op_register(g->c, &stamp, &e), e);
  assert_ok(ac_tensor_retain_grad(h, &e), e);
  assert_ok(ac_call(g->c, ac_op_find(g->c, "stamp_"), a, r, &n, &e), e);
  drop(r[0].tensor);
  assert_values(h, 9, 4);
  assert_false(ac_tensor_requires_grad(h));
  assert_false(ac_tensor_requires_grad(o));
  assert_fails(ac_exp(g->c, v, &y, &e), GRAD, "before its tensor was changed in place", e);
  assert_fails(ac_backward(g->c, 1, &h, NULL, 0, NULL, NULL, &e), GRAD, "does not require", e);
  a[0].tensor = x; /* a leaf is refused as by any other */
  assert_fails(ac_call(g->c, ac_op_find(g->c, "stamp_"), a, r, &n, &e), GRAD, "leaf", e);
  assert_values(x, 1, 2);
  drop(x, h, o, v);
}

static void in_place_second_derivative(void **state) {
  graph *g = *state;
  /* h = x^2, then h *= x: y = x^3; y' = 3 x^2, y'' = 6 x */
  ac_tensor *x = leaf_number(g, 1.5), *h = mul(g, x, x), *d = NULL, *dd = NULL;
  ac_err e;
  assert_ok(mul_(g, h, x, &e), e);
  assert_ok(ac_gradients(g->c, 1, &h, NULL, 1, &x, false, &graph_create, &d, &e), e);
  assert_values(d, 3 * 1.5 * 1.5);
  assert_ok(ac_gradients(g->c, 1, &d, NULL, 1, &x, false, NULL, &dd, &e), e);
  assert_values(dd, 6 * 1.5);
  drop(x, h, d, dd);
}

/* ---- what is refused, and leaves everything as it was ---- */
static void leaves_may_not_be_written(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2);
  ac_err e;
  assert_fails(mul_number_(g, x, 3, &e), GRAD, "leaf", e);
  assert_string_equal(e.op, "mul_");
  ac_tensor *v = first(g, x, 1), *vv = first(g, v, 1);
  assert_fails(mul_number_(g, v, 3, &e), GRAD, "view of a leaf", e);
  assert_fails(mul_number_(g, vv, 3, &e), GRAD, "view of a leaf", e);
  assert_values(x, 1, 2);
  assert_int_equal(ac_storage_version(ac_tensor_storage(x)), 0);
  ac_ctx_set_grad_enabled(g->c, false);
  assert_ok(mul_number_(g, x, 3, &e), e); /* what optimizers do */
  assert_ok(mul_number_(g, vv, 3, &e), e);
  ac_ctx_set_grad_enabled(g->c, true);
  assert_values(x, 9, 6);
  assert_int_equal(ac_storage_version(ac_tensor_storage(x)), 2);
  assert_true(ac_tensor_is_leaf(x));
  drop(x, v, vv);
}

static void views_inside_a_graph(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *h = scale(g, x, 2), *v = first(g, h, 1), *buf = vector(g, 5, 6),
            *bv = first(g, buf, 1), *xv = first(g, x, 1);
  ac_err e;
  assert_fails(mul_number_(g, v, 3, &e), GRAD, "view", e);
  assert_fails(add_(g, bv, xv, &e), GRAD, "view", e); /* would put a history on a piece of buf */
  assert_ok(mul_number_(g, bv, 3, &e), e);            /* nothing to record */
  assert_values(buf, 15, 6);
  assert_values(h, 2, 4);
  drop(x, h, v, buf, bv, xv);
}

static void stale_views(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1, 2), *h = scale(g, x, 2), *v = first(g, h, 1), *buf = vector(g, 5, 6),
            *bv = first(g, buf, 2), *y = NULL;
  ac_err e;
  assert_ok(mul_number_(g, h, 3, &e), e);
  assert_fails(ac_exp(g->c, v, &y, &e), GRAD, "before its tensor was changed in place", e);
  assert_fails(ac_backward(g->c, 1, &v, NULL, 0, NULL, NULL, &e), GRAD, "take the view again", e);
  ac_tensor *fresh = first(g, h, 1);
  backward(g, fresh);
  assert_values(ac_tensor_grad(x), 6, 0);
  /* a view without history of a buffer that has got one since */
  assert_ok(add_(g, buf, x, &e), e);
  assert_fails(ac_exp(g->c, bv, &y, &e), GRAD, "before its tensor was changed in place", e);
  ac_ctx_set_grad_enabled(g->c, false);
  ac_tensor *again = first(g, bv, 1); /* taken from the stale one: just as stale */
  assert_ok(ac_exp(g->c, bv, &y, &e), e);
  ac_ctx_set_grad_enabled(g->c, true);
  assert_values(y, exp(6), exp(8));
  assert_fails(add_(g, h, again, &e), GRAD, "before its tensor was changed in place", e);
  drop(x, h, v, buf, bv, y, fresh, again);
}

static void overlapping_writes(void **state) {
  graph *g = *state;
  ac_tensor *m = constant(g, 2, 2, (double[]){1, 2, 3, 4}), *t = NULL, *row = vector(g, 1, 2), *wide = NULL;
  int64_t shape[2] = {3, 2};
  ac_err e;
  assert_ok(ac_t(g->c, m, &t, &e), e);
  assert_ok(add_(g, m, t, &e), e); /* reads what was there before */
  assert_values(m, 2, 5, 5, 8);
  assert_ok(ac_expand(g->c, row, shape, 2, &wide, &e), e);
  assert_fails(mul_number_(g, wide, 2, &e), SHAPE, "share memory", e);
  assert_values(row, 1, 2);
  drop(m, t);
  /* with gradients: y = h + h^T, dh = dy + dy^T */
  ac_tensor *x = leaf(g, 2, 2, (double[]){1, 2, 3, 4}), *h = scale(g, x, 1),
            *w = constant(g, 2, 2, (double[]){1, 10, 100, 1000});
  assert_ok(ac_t(g->c, h, &t, &e), e);
  assert_ok(add_(g, h, t, &e), e);
  ac_tensor *p = mul(g, h, w), *y = sum(g, p);
  backward(g, y);
  assert_values(ac_tensor_grad(x), 2, 110, 110, 2000);
  drop(row, wide, t, x, h, w, p, y);
}

static void wrong_results_in_place(void **state) {
  graph *g = *state;
  ac_tensor *v = vector(g, 1, 2), *m = constant(g, 2, 2, (double[]){1, 2, 3, 4}), *n = NULL, *b = NULL;
  ac_err e;
  assert_fails(add_(g, v, m, &e), SHAPE, "(2, 2)", e);
  assert_ok(ac_cast(g->c, v, AC_I64, &n, &e), e);
  assert_fails(add_(g, n, v, &e), DTYPE, "f64", e);
  assert_ok(ac_cast(g->c, v, AC_BOOL, &b, &e), e);
  assert_fails(add_(g, b, n, &e), DTYPE, "bool", e);
  assert_values(v, 1, 2);
  assert_values(n, 1, 2);
  drop(v, m, n, b);
}

static void integers_are_not_recorded(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf_vector(g, 1.5, 2.5), *n = NULL, *i = NULL, *y = NULL;
  ac_err e;
  assert_ok(ac_cast(g->c, x, AC_I64, &n, &e), e);
  assert_false(ac_tensor_requires_grad(n));
  assert_ok(ac_argmax(g->c, x, NULL, false, &i, &e), e);
  assert_false(ac_tensor_requires_grad(i));
  assert_ok(ac_gt(g->c, ac_operand_tensor(x), ac_operand_float(2), &y, &e), e);
  assert_false(ac_tensor_requires_grad(y));
  assert_null(ac_tensor_grad_fn(y));
  drop(x, n, i, y);
}

/* Arguments that are lists are copied into the node: the caller's may go. */
static void lists_are_copied(void **state) {
  graph *g = *state;
  ac_tensor *x = leaf(g, 2, 3, (double[]){1, 2, 3, 4, 5, 6}), *y = NULL, *c = NULL, *parts[3], *in[2], *s;
  int64_t *dims = malloc(2 * sizeof *dims);
  int count = 0;
  ac_err e;
  dims[0] = 1;
  dims[1] = 0;
  assert_ok(ac_permute(g->c, x, dims, 2, &y, &e), e);
  dims[0] = 1;
  dims[1] = 2;
  assert_ok(ac_split(g->c, y, dims, 2, 0, parts, &count, &e), e);
  assert_int_equal(count, 2);
  memset(dims, 0x7f, 2 * sizeof *dims);
  free(dims);
  in[0] = parts[1];
  in[1] = parts[0];
  assert_ok(ac_cat(g->c, in, 2, 0, &c, &e), e);
  in[0] = in[1] = NULL;
  ac_tensor *w = constant(g, 3, 2, (double[]){1, 2, 3, 4, 5, 6}), *p = mul(g, c, w);
  s = sum(g, p);
  backward(g, s);
  /* c = rows 1, 2, 0 of x^T */
  assert_values(ac_tensor_grad(x), 5, 1, 3, 6, 2, 4);
  drop(x, y, c, parts[0], parts[1], w, p, s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      graph_test(saved_input_was_changed),
      graph_test(saved_result_was_changed),
      graph_test(changed_through_other_handles),
      graph_test(only_what_is_needed),
      graph_test(in_place_rebases),
      graph_test(in_place_saved_results),
      graph_test(in_place_into_a_constant),
      graph_test(overwritten_values_have_no_gradient),
      graph_test(written_without_gradient),
      graph_test(in_place_second_derivative),
      graph_test(leaves_may_not_be_written),
      graph_test(views_inside_a_graph),
      graph_test(stale_views),
      graph_test(overlapping_writes),
      graph_test(wrong_results_in_place),
      graph_test(integers_are_not_recorded),
      graph_test(lists_are_copied),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
