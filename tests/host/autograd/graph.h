/* host/autograd/graph.h - what the tests of this folder share: a context that records, small tensors written
 * as numbers, and the check that every test leaves no tensor and no byte behind. */
#ifndef ACCEL_TESTS_AUTOGRAD_GRAPH_H
#define ACCEL_TESTS_AUTOGRAD_GRAPH_H
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "accel/autograd.h"
#include "accel/opdef.h"
#include "accel/ops.h"

typedef struct graph {
  ac_ctx *c;
  int64_t live; /* tensors when the test began */
} graph;

static const ac_scalar graph_one = {.kind = AC_SCALAR_INT, .i = 1};

static inline int graph_open(void **state) {
  graph *g = calloc(1, sizeof *g);
  ac_ctx_options o = AC_CTX_OPTIONS_INIT;
  ac_err e;
  o.n_threads = 2;
  o.memory_limit = 64 << 20;
  assert_ok(ac_ctx_new(&o, &g->c, &e), e);
  ac_autograd_open(g->c);
  g->live = ac_tensor_live();
  *state = g;
  return 0;
}

static inline size_t graph_bytes(const graph *g) {
  ac_mem_stats m;
  ac_mem_stats_get(ac_ctx_default_device(g->c), &m);
  return m.live_bytes;
}

/* Nothing is left: neither heads nor bytes nor blocks, and the modes are as they were. */
static inline int graph_close(void **state) {
  graph *g = *state;
  ac_mem_stats m;
  ac_mem_stats_get(ac_ctx_default_device(g->c), &m);
  assert_int_equal(ac_tensor_live(), g->live);
  assert_int_equal(m.live_bytes, 0);
  assert_int_equal(m.live_blocks, 0);
  assert_true(ac_ctx_grad_enabled(g->c));
  ac_ctx_free(g->c);
  free(g);
  return 0;
}
#define graph_test(f) cmocka_unit_test_setup_teardown(f, graph_open, graph_close)

/* A matrix (rows, cols) of f64 from row-major numbers; rows 0: a vector; cols 0: a number. */
static inline ac_tensor *constant(graph *g, int64_t rows, int64_t cols, const double *v) {
  int64_t shape[2] = {rows, cols};
  ac_tensor *t = NULL;
  ac_err e;
  int nd = cols == 0 ? 0 : rows == 0 ? 1 : 2;
  assert_ok(
      ac_tensor_from_host(ac_ctx_default_device(g->c), AC_F64, nd, nd == 1 ? shape + 1 : shape, v, &t, &e),
      e);
  return t;
}
static inline ac_tensor *leaf(graph *g, int64_t rows, int64_t cols, const double *v) {
  ac_tensor *t = constant(g, rows, cols, v);
  ac_err e;
  assert_ok(ac_tensor_set_requires_grad(t, true, &e), e);
  return t;
}
#define vector(g, ...) \
  constant(g, 0, sizeof((double[]){__VA_ARGS__}) / sizeof(double), (double[]){__VA_ARGS__})
#define leaf_vector(g, ...) \
  leaf(g, 0, sizeof((double[]){__VA_ARGS__}) / sizeof(double), (double[]){__VA_ARGS__})
#define leaf_number(g, x) leaf(g, 0, 0, (double[]){x})

static inline void values(const ac_tensor *t, double *v) {
  ac_err e;
  for (int64_t i = 0; i < ac_tensor_numel(t); i++) {
    ac_scalar s;
    assert_ok(ac_tensor_item(t, i, &s, &e), e);
    v[i] = s.kind == AC_SCALAR_FLOAT ? s.f : (double)s.i;
  }
}
static inline void check_values(const ac_tensor *t, const double *want, int64_t n, const char *file,
                                int line) {
  double v[256];
  if (t == NULL || ac_tensor_numel(t) != n) {
    print_error("a tensor of %lld elements is missing\n", (long long)n);
    _fail(file, line);
    return;
  }
  values(t, v);
  ac_test_close(v, want, n, 1e-12, 1e-12, file, line);
}
#define assert_values(t, ...)                                                                            \
  check_values((t), (double[]){__VA_ARGS__}, sizeof((double[]){__VA_ARGS__}) / sizeof(double), __FILE__, \
               __LINE__)

/* Ops that cannot fail here. */
static inline ac_tensor *mul(graph *g, ac_tensor *a, ac_tensor *b) {
  ac_tensor *y = NULL;
  ac_err e;
  assert_ok(ac_mul(g->c, ac_operand_tensor(a), ac_operand_tensor(b), &y, &e), e);
  return y;
}
static inline ac_tensor *scale(graph *g, ac_tensor *a, double by) {
  ac_tensor *y = NULL;
  ac_err e;
  assert_ok(ac_mul(g->c, ac_operand_tensor(a), ac_operand_float(by), &y, &e), e);
  return y;
}
static inline ac_tensor *add(graph *g, ac_tensor *a, ac_tensor *b) {
  ac_tensor *y = NULL;
  ac_err e;
  assert_ok(ac_add(g->c, ac_operand_tensor(a), ac_operand_tensor(b), graph_one, &y, &e), e);
  return y;
}
static inline ac_tensor *sum(graph *g, ac_tensor *a) {
  ac_tensor *y = NULL;
  ac_err e;
  assert_ok(ac_sum(g->c, a, NULL, 0, false, NULL, &y, &e), e);
  return y;
}
static inline ac_tensor *exponential(graph *g, ac_tensor *a) {
  ac_tensor *y = NULL;
  ac_err e;
  assert_ok(ac_exp(g->c, a, &y, &e), e);
  return y;
}
static inline void backward(graph *g, ac_tensor *y) {
  ac_err e;
  assert_ok(ac_backward(g->c, 1, &y, NULL, 0, NULL, NULL, &e), e);
}
static inline void drop_all(int n, ac_tensor *const *t) {
  for (int i = 0; i < n; i++) ac_tensor_release(t[i]);
}
#define drop(...) \
  drop_all(sizeof((ac_tensor *[]){__VA_ARGS__}) / sizeof(ac_tensor *), (ac_tensor *[]){__VA_ARGS__})

static const ac_backward_options graph_retain = {sizeof(ac_backward_options), true, false};
static const ac_backward_options graph_create = {sizeof(ac_backward_options), true, true};

#endif
