/* host/ops/optim/adafactor_step_: updates against the formula written out in doubles, for matrices of one and of many
 * tiles, batches of small ones, transposed memory, vectors, a number, nothing; the same bits for any number of
 * threads; states of wrong shapes are refused before anything is written. */
#include "host/ops/opcheck.h"

enum { N = 7, STEPS = 3 };

static const int ndims[N] = {2, 2, 4, 1, 0, 2, 3};
static const int64_t shapes[N][4] = {{150, 1100}, {70, 30}, {9, 4, 3, 3}, {3000}, {0}, {0, 3}, {2, 65, 5}};

typedef struct lists {
  ac_tensor *p[N], *g[N], *row[N], *col[N], *var[N], *lr, *step;
  int n_factored, n_plain;
} lists;

static ac_tensor *random_tensor(oc_rig *r, ac_dtype dt, int i) {
  const int64_t turned[2] = {shapes[i][1], shapes[i][0]};
  if (i != 1) return oc_rand(r, dt, ndims[i], shapes[i]);
  ac_tensor *t = oc_rand(r, dt, 2, turned), *y = NULL; /* lies by columns */
  assert_ok(ac_t(r->c, t, &y, &r->e), r->e);
  ac_tensor_release(t);
  return y;
}

static void lists_make(oc_rig *r, lists *l, ac_dtype dt) {
  l->n_factored = l->n_plain = 0;
  for (int i = 0; i < N; i++) {
    int64_t s[4];
    memcpy(s, shapes[i], sizeof s);
    l->p[i] = random_tensor(r, dt, i);
    l->g[i] = random_tensor(r, dt, i);
    if (ndims[i] < 2) {
      l->var[l->n_plain++] = oc_full(r, dt, 0, ndims[i], s);
      continue;
    }
    s[ndims[i] - 1] = 1;
    l->row[l->n_factored] = oc_full(r, dt, 0, ndims[i], s);
    s[ndims[i] - 1] = shapes[i][ndims[i] - 1];
    s[ndims[i] - 2] = 1;
    l->col[l->n_factored++] = oc_full(r, dt, 0, ndims[i], s);
  }
  l->lr = oc_full(r, AC_F64, 0.2, 0, NULL);
  l->step = oc_full(r, AC_I64, 0, 0, NULL);
}

static void lists_free(lists *l) {
  for (int i = 0; i < N; i++) {
    ac_tensor_release(l->p[i]);
    ac_tensor_release(l->g[i]);
  }
  for (int i = 0; i < l->n_factored; i++) {
    ac_tensor_release(l->row[i]);
    ac_tensor_release(l->col[i]);
  }
  for (int i = 0; i < l->n_plain; i++) ac_tensor_release(l->var[i]);
  ac_tensor_release(l->lr);
  ac_tensor_release(l->step);
}

static const double eps1 = 1e-3, decay = 0.1;

static ac_status step(oc_rig *r, lists *l, bool maximize) {
  return ac_adafactor_step_(r->c, l->p, N, l->g, N, l->row, l->n_factored, l->col, l->n_factored, l->var,
                            l->n_plain, l->lr, l->step, -0.8, &eps1, 1e-3, 1.2, decay, maximize, true, &r->e);
}

static double rms(const double *v, int64_t n) {
  double s = 0;
  for (int64_t i = 0; i < n; i++) s += v[i] * v[i];
  return sqrt(s / (double)n);
}

/* All steps on one parameter, in place in p. */
static void expect(int i, double *p, const double *g, int64_t numel, double sign) {
  const int nd = ndims[i];
  const int64_t cols = nd < 2 ? numel : shapes[i][nd - 1], rows = nd < 2 ? 1 : shapes[i][nd - 2];
  if (numel == 0) return;
  const int64_t batch = numel / (rows * cols);
  double *row = calloc((size_t)(batch * rows), sizeof *row),
         *col = calloc((size_t)(batch * cols), sizeof *col);
  double *u = calloc((size_t)numel, sizeof *u);
  for (int s = 1; s <= STEPS; s++) {
    double w = pow(s, -0.8), alpha = fmax(1e-3, rms(p, numel)) * fmin(0.2, 1 / sqrt(s));
    for (int64_t b = 0; b < batch; b++) {
      const double *x = g + b * rows * cols;
      double mean = 0;
      for (int64_t y = 0; y < rows; y++) {
        double sum = 0;
        for (int64_t z = 0; z < cols; z++) sum += x[y * cols + z] * x[y * cols + z];
        row[b * rows + y] += w * (sum / (double)cols - row[b * rows + y]);
        mean += row[b * rows + y] / (double)rows;
      }
      for (int64_t z = 0; z < cols; z++) {
        double sum = 0;
        for (int64_t y = 0; y < rows; y++) sum += x[y * cols + z] * x[y * cols + z];
        col[b * cols + z] += w * (sum / (double)rows - col[b * cols + z]);
      }
      for (int64_t k = 0; k < rows * cols; k++) {
        double v = row[b * rows + k / cols] * col[b * cols + k % cols] / fmax(mean, eps1);
        if (nd < 2) v = col[k]; /* not factored: one row, so that col holds the moments */
        u[b * rows * cols + k] = x[k] / sqrt(fmax(v, eps1 * eps1));
      }
    }
    double scale = sign * alpha / fmax(1, rms(u, numel) / 1.2);
    for (int64_t k = 0; k < numel; k++) p[k] = p[k] * (1 - 0.2 * decay) - scale * u[k];
  }
  free(row);
  free(col);
  free(u);
}

static void test_formula(void **state) {
  static const ac_dtype dts[] = {AC_F64, AC_F32, AC_BF16};
  static const double tolerance[] = {1e-13, 2e-6, 0.05};
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  for (int k = 0; k < 3; k++)
    for (int maximize = 0; maximize < 2; maximize++) {
      lists l;
      lists_make(&r, &l, dts[k]);
      double *want[N];
      for (int i = 0; i < N; i++) {
        double *g = oc_values(l.g[i]);
        want[i] = oc_values(l.p[i]);
        expect(i, want[i], g, l.p[i]->numel, maximize ? -1 : 1);
        free(g);
      }
      for (int s = 0; s < STEPS; s++) assert_ok(step(&r, &l, maximize), r.e);
      assert_true(oc_at(l.step, 0) == STEPS);
      for (int i = 0; i < N; i++) {
        double *now = oc_values(l.p[i]);
        assert_close(now, want[i], l.p[i]->numel, tolerance[k], tolerance[k]);
        free(now);
        free(want[i]);
      }
      lists_free(&l);
    }
  oc_close(&r);
}

static void test_threads(void **state) {
  oc_rig one, four;
  lists a, b;
  (void)state;
  oc_open(&one, 1);
  oc_open(&four, 4);
  lists_make(&one, &a, AC_F32);
  lists_make(&four, &b, AC_F32);
  for (int s = 0; s < STEPS; s++) {
    assert_ok(step(&one, &a, false), one.e);
    assert_ok(step(&four, &b, false), four.e);
  }
  for (int i = 0; i < N; i++) oc_same(a.p[i], b.p[i], 0, 0);
  for (int i = 0; i < a.n_factored; i++) oc_same(a.row[i], b.row[i], 0, 0);
  for (int i = 0; i < a.n_factored; i++) oc_same(a.col[i], b.col[i], 0, 0);
  lists_free(&a);
  lists_free(&b);
  ac_ctx_free(one.c);
  oc_close(&four);
}

static void test_errors(void **state) {
  oc_rig r;
  lists l;
  (void)state;
  oc_open(&r, 1);
  lists_make(&r, &l, AC_F32);
  double *before = oc_values(l.p[0]);
  ac_tensor *row = l.row[0];
  l.row[0] = l.row[1];
  assert_fails(step(&r, &l, false), SHAPE,
               "row_vars: tensor 1 has shape (70, 1), a parameter of shape (150, 1100) needs "
               "(150, 1)",
               r.e);
  l.row[0] = row;
  l.n_plain--;
  assert_fails(step(&r, &l, false), INVALID, "1 variances are too few", r.e);
  l.n_plain++;
  ac_tensor *more[N];
  memcpy(more, l.var, sizeof more);
  assert_fails(ac_adafactor_step_(r.c, l.p, 3, l.g, 3, l.row, 3, l.col, 3, more, 1, l.lr, l.step, -0.8, NULL,
                                  1e-3, 1, 0, false, true, &r.e),
               INVALID,
               "3 row_vars, 3 col_vars and 1 variances for 3 params of two dims or more and 0 others", r.e);
  assert_fails(ac_adafactor_step_(r.c, l.p, 3, l.g, 3, l.row, 3, l.col, 3, NULL, 0, l.lr, l.step, 0.8, NULL,
                                  1e-3, 1, 0, false, true, &r.e),
               INVALID, "beta2_decay must not be positive", r.e);
  double *after = oc_values(l.p[0]);
  assert_close(after, before, l.p[0]->numel, 0, 0);
  assert_true(oc_at(l.step, 0) == 0);
  free(before);
  free(after);
  lists_free(&l);
  oc_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_formula), cmocka_unit_test(test_threads),
                                     cmocka_unit_test(test_errors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
