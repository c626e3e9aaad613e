/* accel inside a C program: ./fit_c fit.lua [steps]
 *
 * The program owns a buffer of measurements. It wraps it as tensors without a copy, has a Lua function train a small model on it,
 * is called back from the loss (what an error costs is its business), and reads the model's answers in place. At the end a tensor
 * goes out as DLPack and comes back in a second host. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <accel/accel.h>

enum { N = 256, IN = 3 };

typedef struct measurements {
  float x[N][IN], y[N];
  int users; /* tensors that look at it */
} measurements;

static void let_go(void *user) { ((measurements *)user)->users--; }

/* y is a smooth function of x plus a little noise that is the same in every run. */
static void measure(measurements *m) {
  unsigned state = 1;
  for (int i = 0; i < N; i++) {
    for (int j = 0; j < IN; j++) {
      state = state * 1664525u + 1013904223u;
      m->x[i][j] = (float)(state >> 8) / (1 << 23) - 1;
    }
    m->y[i] = sinf(2 * m->x[i][0]) + m->x[i][1] * m->x[i][2];
  }
  m->users = 0;
}

/* A tensor over memory of ours: released when Lua's last reference to it is gone. */
static ac_status wrap(ac_host *h, measurements *m, float *data, int columns, ac_host_value *out, ac_err *e) {
  const int64_t shape[2] = {N, columns};
  out->type = AC_HOST_TENSOR;
  ac_status st = ac_tensor_wrap(ac_ctx_default_device(ac_host_ctx(h)), AC_F32, 2, shape, data, let_go, m, &out->t, e);
  if (st == AC_OK) m->users++;
  return st;
}

/* app.cost(prediction, wanted): mean over r = wanted - prediction of r^2, four times that where the prediction is too low. Ops that
 * are called here are recorded like those of scripts, so gradients flow through. */
static ac_status cost(void *user, ac_ctx *c, int n_args, const ac_host_value *args, int max_results, ac_host_value *results,
                      int *n_results, ac_err *e) {
  ac_tensor *r = NULL, *low = NULL, *sum = NULL, *square = NULL;
  const ac_scalar one = {.kind = AC_SCALAR_INT, .i = 1};
  int *calls = user;
  (void)max_results;
  if (n_args != 2 || args[0].type != AC_HOST_TENSOR || args[1].type != AC_HOST_TENSOR)
    return AC_FAIL(e, INVALID, "cost(prediction, wanted) takes two tensors");
  (*calls)++;
  ac_status st = ac_sub(c, ac_operand_tensor(args[1].t), ac_operand_tensor(args[0].t), one, &r, e);
  if (st == AC_OK) st = ac_relu(c, r, &low, e);
  if (st == AC_OK) st = ac_add(c, ac_operand_tensor(r), ac_operand_tensor(low), one, &sum, e); /* 2 r where too low */
  if (st == AC_OK) st = ac_mul(c, ac_operand_tensor(sum), ac_operand_tensor(sum), &square, e);
  if (st == AC_OK) st = ac_mean(c, square, NULL, 0, false, NULL, &results[0].t, e);
  if (st == AC_OK) {
    results[0].type = AC_HOST_TENSOR;
    *n_results = 1;
  }
  ac_tensor_release(r);
  ac_tensor_release(low);
  ac_tensor_release(sum);
  ac_tensor_release(square);
  return st;
}

static ac_status train(ac_host *h, const ac_host_value *x, const ac_host_value *y, int steps, ac_err *e) {
  const ac_host_value args[3] = {*x, *y, {.type = AC_HOST_INT, .i = steps}};
  ac_host_value last;
  ac_status st = ac_host_call(h, "train", 3, args, 1, &last, NULL, e);
  if (st == AC_OK) printf("cost after %d steps: %.4f\n", steps, last.n);
  return st;
}

static ac_status report(ac_host *h, const measurements *m, const ac_host_value *x, ac_tensor **answers, ac_err *e) {
  ac_host_value p;
  ac_status st = ac_host_call(h, "predict", 1, x, 1, &p, NULL, e);
  if (st != AC_OK) return st;
  *answers = p.t;
  const float *v = ac_tensor_data(p.t);
  int low = 0;
  double worst = 0;
  for (int i = 0; i < N; i++) {
    low += v[i] < m->y[i];
    worst = fmax(worst, fabs(v[i] - m->y[i]));
  }
  printf("too low: %d of %d, worst error %.2f\n", low, N, worst);
  return AC_OK;
}

/* The answers leave accel as DLPack, as they would for another library, and come into a host that knows nothing of the first. */
static ac_status hand_over(ac_tensor *answers, ac_err *e) {
  struct DLManagedTensor *capsule = NULL;
  ac_host *other = NULL;
  ac_host_value v = {.type = AC_HOST_TENSOR};
  ac_status st = ac_tensor_to_dlpack(answers, &capsule, e);
  if (st == AC_OK) st = ac_host_open(NULL, &other, e);
  if (st == AC_OK) st = ac_tensor_from_dlpack(ac_ctx_default_device(ac_host_ctx(other)), capsule, &v.t, e);
  if (st == AC_OK) {
    printf("handed over: %s\n", ac_tensor_data(v.t) == ac_tensor_data(answers) ? "the same memory" : "a copy");
    st = ac_host_run_string(other, "function mean(t) return t:mean():item() end", "other", 0, NULL, e);
  }
  ac_host_value mean;
  if (st == AC_OK) st = ac_host_call(other, "mean", 1, &v, 1, &mean, NULL, e);
  if (st == AC_OK) printf("mean answer: %.3f\n", mean.n);
  ac_tensor_release(v.t);
  ac_host_close(other);
  return st;
}

int main(int argc, char **argv) {
  measurements *m = malloc(sizeof *m);
  ac_host *h = NULL;
  ac_host_value x = {.type = AC_HOST_NIL}, y = {.type = AC_HOST_NIL};
  ac_tensor *answers = NULL;
  ac_err e;
  int calls = 0;
  const int steps = argc > 2 ? atoi(argv[2]) : 300;
  if (argc < 2 || m == NULL) {
    fprintf(stderr, "usage: %s fit.lua [steps]\n", argv[0]);
    free(m);
    return 2;
  }
  measure(m);
  ac_status st = ac_host_open(NULL, &h, &e);
  if (st == AC_OK) st = ac_host_register(h, "app.cost", cost, &calls, &e);
  if (st == AC_OK) st = ac_host_run_file(h, argv[1], 0, NULL, &e);
  if (st == AC_OK) st = wrap(h, m, &m->x[0][0], IN, &x, &e);
  if (st == AC_OK) st = wrap(h, m, m->y, 1, &y, &e);
  if (st == AC_OK) st = train(h, &x, &y, steps, &e);
  if (st == AC_OK) printf("the loss called back %d times\n", calls);
  if (st == AC_OK) st = report(h, m, &x, &answers, &e);
  if (st == AC_OK) st = hand_over(answers, &e);
  if (st != AC_OK) fprintf(stderr, "%s: %s\n", ac_status_name(st), e.msg);
  ac_tensor_release(answers);
  if (x.type == AC_HOST_TENSOR) ac_tensor_release(x.t);
  if (y.type == AC_HOST_TENSOR) ac_tensor_release(y.t);
  ac_host_close(h);
  if (st == AC_OK) printf("users of the buffer left: %d\n", m->users);
  free(m);
  return st == AC_OK ? 0 : 1;
}
