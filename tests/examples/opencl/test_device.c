/* The vtable of the OpenCL device, by the library's C functions: addresses that the host cannot touch, copies, streams that wait for each
 * other by events, uploads whose bytes are the caller's again, and two hosts in one process. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accel/op.h"

static ac_ctx *context(void) {
  ac_ctx_options o = AC_CTX_OPTIONS_INIT;
  ac_ctx *c;
  ac_err e;
  o.n_threads = 1;
  assert_ok(ac_ctx_new(&o, &c, &e), e);
  return c;
}

static ac_device *device(ac_ctx *c) {
  ac_device *d;
  ac_err e;
  assert_ok(ac_ctx_device(c, "opencl:0", &d, &e), e);
  return d;
}

static const ac_device_vtable *vtable_of(ac_device *d);

static void call(ac_ctx *c, const char *op, ac_tensor *x, ac_tensor *y, ac_tensor **out) {
  const ac_value args[3] = {{.kind = AC_T_TENSOR, .tensor = x}, {.kind = AC_T_TENSOR, .tensor = y}, {.kind = AC_T_NONE}};
  ac_value results[AC_MAX_RESULTS];
  int n;
  ac_err e;
  assert_ok(ac_call(c, ac_op_find(c, op), args, results, &n, &e), e);
  assert_int_equal(n, 1);
  *out = results[0].tensor;
}

static ac_tensor *numbers(ac_device *d, int64_t n, float first) {
  float *v = malloc((size_t)n * sizeof *v);
  ac_tensor *t;
  ac_err e;
  for (int64_t i = 0; i < n; i++) v[i] = first + (float)i;
  assert_ok(ac_tensor_from_host(d, AC_F32, 1, &n, v, &t, &e), e);
  free(v); /* the caller's again */
  return t;
}

static double item(const ac_tensor *t, int64_t i) {
  ac_scalar s;
  ac_err e;
  assert_ok(ac_tensor_item(t, i, &s, &e), e);
  return s.f;
}

/* Bytes of the device have addresses that nothing is mapped at: read() refuses them as no others. */
static void the_host_cannot_touch_them(void **state) {
  (void)state;
  ac_ctx *c = context();
  ac_tensor *t = numbers(device(c), 100, 0);
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  assert_true(write(ends[1], ac_tensor_data(t), 4) < 0);
  assert_true(write(ends[1], &c, 4) == 4);
  close(ends[0]);
  close(ends[1]);
  ac_tensor_release(t);
  ac_ctx_free(c);
}

/* Two contexts have the device open, each with a pool of its own; a tensor of one is an operand in the other, and outlives its context. */
static void two_hosts(void **state) {
  (void)state;
  ac_ctx *a = context(), *b = context();
  assert_ptr_not_equal(device(a), device(b));
  ac_tensor *x = numbers(device(a), 1000, 1), *y = numbers(device(b), 1000, 5), *z, *w;
  call(b, "add", x, y, &z);
  assert_true(item(z, 999) == 1000 + 1004);
  ac_mem_stats m;
  ac_mem_stats_get(device(b), &m);
  assert_true(m.live_bytes >= 4000);
  ac_ctx_free(a);
  call(b, "mul", x, z, &w);
  assert_true(item(w, 2) == 3 * 10);
  ac_tensor_release(x);
  ac_tensor_release(w);
  ac_tensor_release(z);
  ac_ctx_free(b);
  assert_true(item(y, 999) == 1004);
  ac_tensor_release(y);
  assert_int_equal(ac_tensor_live(), 0);
}

/* A kernel on one stream, a copy on another that waits for it by an event, and the host for the copy. */
static void streams_wait(void **state) {
  (void)state;
  enum { N = 1 << 20, ROUNDS = 20 };
  ac_ctx *c = context();
  ac_device *d = device(c);
  const ac_device_vtable *vt = vtable_of(d);
  ac_stream *compute, *copies;
  ac_event *made, *copied;
  ac_err e;
  assert_non_null(vt->stream_new);
  assert_ok(vt->stream_new(d, 0, &compute, &e), e);
  assert_ok(vt->stream_new(d, 0, &copies, &e), e);
  assert_ok(vt->event_new(d, &made, &e), e);
  assert_ok(vt->event_new(d, &copied, &e), e);
  bool done = false;
  assert_ok(vt->event_query(d, made, &done, &e), e);
  assert_true(done); /* nothing was recorded */
  ac_tensor *x = numbers(d, N, 0), *y = numbers(d, N, 1);
  assert_ok(ac_device_sync(d, &e), e);
  float *host = malloc(N * sizeof *host);
  for (int round = 1; round <= ROUNDS; round++) {
    ac_ctx_set_stream(c, compute);
    ac_tensor *z;
    call(c, "add", x, y, &z);
    assert_ok(vt->event_record(d, made, compute, &e), e);
    assert_ok(vt->stream_wait(d, copies, made, &e), e);
    assert_ok(vt->copy(d, copies, host, ac_tensor_data(z), N * sizeof *host, &e), e);
    assert_ok(vt->event_record(d, copied, copies, &e), e);
    assert_ok(vt->sync(d, copies, &e), e);
    assert_ok(vt->event_query(d, copied, &done, &e), e);
    assert_true(done);
    for (int i = 0; i < N; i += 4097) assert_true(host[i] == (float)i + (float)i + (float)round);
    ac_tensor_release(x);
    x = z;
    /* x is one more, so that every round has numbers of its own: (i) + (i + 1) - i */
    ac_tensor *back;
    call(c, "sub", x, y, &back);
    ac_tensor *one = numbers(d, 1, 1), *next;
    assert_ok(vt->sync(d, NULL, &e), e);
    call(c, "add", back, one, &next);
    ac_tensor_release(one);
    ac_tensor_release(back);
    ac_tensor_release(x);
    x = next;
  }
  free(host);
  ac_ctx_set_stream(c, NULL);
  assert_ok(ac_device_sync(d, &e), e);
  ac_tensor_release(x);
  ac_tensor_release(y);
  vt->event_free(d, made);
  vt->event_free(d, copied);
  vt->stream_free(d, compute);
  vt->stream_free(d, copies);
  ac_ctx_free(c);
}

/* As dispatch reads it: tests see private symbols. */
#include "device/device_impl.h"
static const ac_device_vtable *vtable_of(ac_device *d) { return d->vt; }

int main(void) {
  char library[4096], cache[4096], text[400];
  const char *build = getenv("ACCEL_TEST_BUILD"), *sanitize = getenv("ACCEL_TEST_SANITIZE");
  if (sanitize != NULL && sanitize[0] != '\0') return printf("skipped: OpenCL's compilers are not built for sanitizers\n"), 77;
  snprintf(library, sizeof library, "%s/lib/accel/accel_opencl.so", build != NULL ? build : ".");
  snprintf(cache, sizeof cache, "%s/tests/tmp/opencl-kernels", build != NULL ? build : ".");
  if (access(library, R_OK) != 0) return printf("skipped: accel_opencl.so is not built: OpenCL's headers were not found\n"), 77;
  setenv("ACCEL_DEVICE_MODULES", library, 1);
  setenv("POCL_CACHE_DIR", cache, 1);
  ac_ctx *c = context();
  int kind = -1;
  for (int i = 0; i < ac_device_n_providers(); i++)
    if (strcmp(ac_device_provider_at(i)->name, "opencl") == 0) kind = i;
  const int n = kind < 0 ? 0 : ac_device_state(kind, ac_ctx_params(c), text, sizeof text);
  ac_ctx_free(c);
  if (kind >= 0 && n == 0) return printf("skipped: %s\n", text), 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_host_cannot_touch_them),
      cmocka_unit_test(two_hosts),
      cmocka_unit_test(streams_wait),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
