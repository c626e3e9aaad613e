/* What the tests of autocast share: a context whose calls of `cast` are counted, regions, tensors of known values. */
#ifndef TEST_PRECISION_AUTOCAST_H
#define TEST_PRECISION_AUTOCAST_H
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#include "accel/autograd.h"
#include "accel/ops.h"
#include "accel/precision.h"
#include "ops/core/ctx_impl.h"

static ac_ctx *ctx;
static ac_device *cpu;
static int n_casts; /* calls of the op `cast` since it was set to 0 */

static inline void count(void *user, const ac_frame *f, ac_status st) {
  if (st == AC_OK && strcmp(f->op->name, "cast") == 0) n_casts++;
}
static inline int open_ctx(void **state) {
  ac_err e;
  if (ac_ctx_new(NULL, &ctx, &e) != AC_OK) return 1;
  ac_autograd_open(ctx);
  cpu = ac_ctx_default_device(ctx);
  return aci_ctx_add_observer(ctx, (aci_observer){.after = count, .user = &n_casts}, &e) != AC_OK;
}
static inline int close_ctx(void **state) {
  ac_ctx_free(ctx);
  return ac_tensor_live() != 0;
}

static inline ac_autocast_state enter(bool on, ac_dtype dt, bool cache) {
  ac_autocast_state outer;
  ac_err e;
  assert_ok(ac_autocast_begin(ctx, on, dt, cache, &outer, &e), e);
  return outer;
}
#define LOWER() enter(true, AC_BF16, true)
static inline void leave(ac_autocast_state outer) { ac_autocast_end(ctx, &outer); }

/* Element i is (i % 7 - 3) / 4: exact in bf16. Integers are 0..3. */
static inline ac_tensor *make(ac_dtype dt, int ndim, const int64_t *shape) {
  ac_err e;
  ac_tensor *t, *y = NULL;
  int64_t n = 1;
  for (int i = 0; i < ndim; i++) n *= shape[i];
  float v[4096];
  assert_in_range(n, 0, 4096);
  for (int64_t i = 0; i < n; i++) v[i] = ac_dtype_is_float(dt) ? (float)(i % 7 - 3) / 4 : (float)(i % 4);
  assert_ok(ac_tensor_from_host(cpu, AC_F32, ndim, shape, v, &t, &e), e);
  if (dt == AC_F32) return t;
  assert_ok(ac_cast(ctx, t, dt, &y, &e), e);
  ac_tensor_release(t);
  return y;
}
#define MAKE(dt, ...) make(dt, (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]){__VA_ARGS__})
static inline ac_tensor *leaf(ac_tensor *t) {
  ac_err e;
  assert_ok(ac_tensor_set_requires_grad(t, true, &e), e);
  return t;
}
static inline ac_tensor *linear(ac_tensor *x, ac_tensor *w, ac_tensor *b) {
  ac_err e;
  ac_tensor *y = NULL;
  assert_ok(ac_linear(ctx, x, w, b, &y, &e), e);
  return y;
}
static inline void backward(ac_tensor *y) {
  ac_err e;
  ac_tensor *s = NULL;
  assert_ok(ac_sum(ctx, y, NULL, 0, false, NULL, &s, &e), e);
  assert_ok(ac_backward(ctx, 1, &s, NULL, 0, NULL, NULL, &e), e);
  ac_tensor_release(s);
}
static inline double at(const ac_tensor *t, int64_t i) {
  ac_scalar s;
  ac_err e;
  assert_ok(ac_tensor_item(t, i, &s, &e), e);
  return s.kind == AC_SCALAR_FLOAT ? s.f : (double)s.i;
}

/* call, which returns a tensor to y, makes n casts. */
#define CASTS(n, call)  \
  n_casts = 0;          \
  y = call;             \
  ac_tensor_release(y); \
  assert_int_equal(n_casts, n)

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, open_ctx, close_ctx)

#endif
