/* Copies ahead of their use, on a device that writes down what it is told: the copy waits for the compute stream, the compute stream for the
 * copy, the host for neither; page-locked memory is used again when its copy is through, and not before; what was begun is held. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device_impl.h"
#include "tensor/prefetch.h"

/* ---- the device ---- */
static char told[4096];
static int waits, streams, events;
static bool through; /* what event_query says */
__attribute__((format(printf, 1, 2))) static void note(const char *format, ...) {
  va_list list;
  const size_t at = strlen(told);
  va_start(list, format);
  vsnprintf(told + at, sizeof told - at, format, list);
  va_end(list);
}
static ac_status map(ac_device *d, ac_mem_class c, size_t bytes, void **out, ac_err *e) {
  (void)c;
  *out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *out != NULL ? AC_OK : AC_FAIL(e, OOM, "%s: no memory", d->name);
}
static void unmap(ac_device *d, ac_mem_class c, void *p, size_t bytes) {
  (void)d, (void)c, (void)bytes;
  free(p);
}
static const char *name_of(const void *s) { return s != NULL ? "copies" : "compute"; }
static ac_status copy(ac_device *d, ac_stream *s, void *dst, const void *src, size_t bytes, ac_err *e) {
  (void)d, (void)e;
  note("copy %zu on %s; ", bytes, name_of(s));
  memmove(dst, src, bytes);
  return AC_OK;
}
static ac_status fill(ac_device *d, ac_stream *s, void *dst, int byte, size_t bytes, ac_err *e) {
  (void)d, (void)s, (void)e;
  memset(dst, byte, bytes);
  return AC_OK;
}
static ac_status stream_new(ac_device *d, int priority, ac_stream **out, ac_err *e) {
  (void)d, (void)priority, (void)e;
  streams++;
  return *out = malloc(1), AC_OK;
}
static void stream_free(ac_device *d, ac_stream *s) {
  (void)d;
  streams--;
  free(s);
}
static ac_status event_new(ac_device *d, ac_event **out, ac_err *e) {
  (void)d, (void)e;
  events++;
  return *out = calloc(1, sizeof(int)), AC_OK;
}
static void event_free(ac_device *d, ac_event *ev) {
  (void)d;
  events--;
  free(ev);
}
static ac_status event_record(ac_device *d, ac_event *ev, ac_stream *s, ac_err *e) {
  (void)d, (void)ev, (void)e;
  note("record on %s; ", name_of(s));
  return AC_OK;
}
static ac_status event_query(ac_device *d, ac_event *ev, bool *done, ac_err *e) {
  (void)d, (void)ev, (void)e;
  return *done = through, AC_OK;
}
static ac_status stream_wait(ac_device *d, ac_stream *s, ac_event *ev, ac_err *e) {
  (void)d, (void)ev, (void)e;
  note("%s waits; ", name_of(s));
  return AC_OK;
}
static ac_status sync_device(ac_device *d, ac_stream *s, ac_err *e) {
  (void)d, (void)s, (void)e;
  waits++;
  return AC_OK;
}
static ac_status open_never(const ac_params *p, int index, ac_team *team, ac_device **out, ac_err *e) {
  (void)p, (void)index, (void)team, (void)out;
  return AC_FAIL(e, DEVICE, "opened by the test alone");
}

static ac_device *open_device(size_t limit) {
  static const ac_device_provider provider = {.struct_size = sizeof provider, .name = "recorder", .open = open_never};
  static const ac_device_vtable vt = {.struct_size = sizeof vt, .name = "recorder", .mem_map = map, .mem_unmap = unmap, .copy = copy, .fill = fill,
                                      .stream_new = stream_new, .stream_free = stream_free, .event_new = event_new, .event_free = event_free,
                                      .event_record = event_record, .event_query = event_query, .stream_wait = stream_wait, .sync = sync_device};
  ac_device_kind kind;
  ac_device *d;
  ac_err e;
  assert_ok(ac_device_register(&provider, &kind, &e), e);
  assert_ok(ac_device_open(&vt, 0, limit, NULL, &d, &e), e);
  told[0] = '\0';
  waits = 0;
  through = false;
  return d;
}

static ac_device *open_cpu(void) {
  ac_device *d;
  ac_err e;
  assert_ok(ac_device_open(ac_device_cpu_vtable(), 0, 0, NULL, &d, &e), e);
  return d;
}

static ac_tensor *numbers(ac_device *cpu, int64_t n, float first) {
  ac_tensor *t;
  ac_err e;
  assert_ok(ac_tensor_new(cpu, AC_F32, 1, &n, &t, &e), e);
  for (int64_t i = 0; i < n; i++) ((float *)ac_tensor_data(t))[i] = first + (float)i;
  return t;
}

static void order_of_streams(void **state) {
  (void)state;
  ac_device *d = open_device(0), *cpu = open_cpu();
  aci_prefetch *p;
  ac_tensor *t = numbers(cpu, 250, 1), *out, *empty, *none = numbers(cpu, 0, 0);
  ac_err e;
  assert_true(aci_prefetch_takes(d));
  assert_false(aci_prefetch_takes(cpu));
  assert_fails(aci_prefetch_new(cpu, &p, &e), UNSUPPORTED, "no streams", e);
  assert_ok(aci_prefetch_new(d, &p, &e), e);
  assert_ok(aci_prefetch_join(p, &e), e); /* of nothing */
  assert_ok(aci_prefetch_begin(p, t, &out, &e), e);
  memset(ac_tensor_data(t), 0, 1000); /* the caller's again */
  assert_string_equal(told, "record on compute; copies waits; copy 1000 on copies; record on copies; ");
  assert_ok(aci_prefetch_begin(p, none, &empty, &e), e);
  told[0] = '\0';
  assert_ok(aci_prefetch_join(p, &e), e);
  assert_string_equal(told, "record on copies; compute waits; ");
  assert_int_equal(waits, 0);
  assert_true(((const float *)ac_tensor_data(out))[249] == 250);
  ac_tensor_release(empty);
  assert_fails(aci_prefetch_begin(p, out, &empty, &e), INVALID, "on the CPU", e);
  aci_prefetch_free(p);
  assert_true(((const float *)ac_tensor_data(out))[0] == 1); /* outlives it */
  ac_tensor_release(out);
  ac_tensor_release(t);
  ac_tensor_release(none);
  ac_device_release(d);
  ac_device_release(cpu);
  assert_int_equal(streams, 0);
  assert_int_equal(events, 0);
}

static size_t live(const ac_device *d) {
  ac_mem_stats s;
  ac_mem_stats_get(d, &s);
  return s.live_bytes;
}

static void page_locked_memory_goes_round(void **state) {
  (void)state;
  enum { N = 64 << 10 }; /* 256 KiB each */
  const size_t each = N * 4;
  ac_device *d = open_device(0), *cpu = open_cpu();
  aci_prefetch *p;
  ac_err e;
  ac_tensor *t = numbers(cpu, N, 0), *out;
  assert_ok(aci_prefetch_new(d, &p, &e), e);
  for (int i = 0; i < 3; i++) { /* none is through: three are under way */
    assert_ok(aci_prefetch_begin(p, t, &out, &e), e);
    ac_tensor_release(out); /* held until it is joined */
  }
  assert_int_equal(live(d), 6 * each);
  assert_ok(aci_prefetch_join(p, &e), e);
  assert_int_equal(live(d), 3 * each);
  through = true;
  for (int i = 0; i < 5; i++) {
    assert_ok(aci_prefetch_begin(p, t, &out, &e), e);
    assert_ok(aci_prefetch_join(p, &e), e);
    assert_int_equal(live(d), 2 * each);
    ac_tensor_release(out);
  }
  assert_int_equal(events, 2 + 3);
  assert_int_equal(waits, 0);
  through = false;
  assert_ok(aci_prefetch_begin(p, t, &out, &e), e);
  ac_tensor_release(out);
  aci_prefetch_free(p); /* joins it, and waits for the copy that reads its memory */
  assert_int_equal(waits, 1);
  assert_int_equal(live(d), 0);
  ac_tensor_release(t);
  ac_device_release(d);
  ac_device_release(cpu);
  assert_int_equal(events, 0);
}

/* Loaders make one a pass: what the pool has mapped does not grow with their number. */
static void passes_share_memory(void **state) {
  (void)state;
  ac_device *d = open_device(0), *cpu = open_cpu();
  ac_tensor *t = numbers(cpu, 100 << 10, 0), *out;
  ac_mem_stats first, last;
  ac_err e;
  for (int pass = 0; pass < 20; pass++) {
    aci_prefetch *p;
    assert_ok(aci_prefetch_new(d, &p, &e), e);
    assert_ok(aci_prefetch_begin(p, t, &out, &e), e);
    ac_tensor_release(out);
    aci_prefetch_free(p);
    ac_mem_stats_get(d, pass == 0 ? &first : &last);
  }
  assert_int_equal(first.reserved_bytes, last.reserved_bytes);
  ac_tensor_release(t);
  ac_device_release(d);
  ac_device_release(cpu);
}

static void out_of_memory_leaves_it_as_it_was(void **state) {
  (void)state;
  ac_device *d = open_device(4 << 20), *cpu = open_cpu();
  aci_prefetch *p;
  ac_err e;
  ac_tensor *large = numbers(cpu, 700 << 10, 0), *small = numbers(cpu, 1000, 7), *out; /* once there is room for it, but not twice */
  assert_ok(aci_prefetch_new(d, &p, &e), e);
  assert_fails(aci_prefetch_begin(p, large, &out, &e), OOM, "recorder:0", e);
  assert_null(out);
  assert_ok(aci_prefetch_join(p, &e), e);
  assert_int_equal(live(d), 0);
  assert_ok(aci_prefetch_begin(p, small, &out, &e), e);
  assert_ok(aci_prefetch_join(p, &e), e);
  assert_true(((const float *)ac_tensor_data(out))[999] == 1006);
  ac_tensor_release(out);
  aci_prefetch_free(p);
  aci_prefetch_free(NULL);
  ac_tensor_release(large);
  ac_tensor_release(small);
  ac_device_release(d);
  ac_device_release(cpu);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(order_of_streams),
      cmocka_unit_test(page_locked_memory_goes_round),
      cmocka_unit_test(passes_share_memory),
      cmocka_unit_test(out_of_memory_leaves_it_as_it_was),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
