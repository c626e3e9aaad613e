/* Every call to the system that offloaded storages make fails once, and from then on always: with EIO, ENOSPC, EINTR, by moving fewer
 * bytes. The use that meets it says what and where in one line and leaves nothing in use; nothing that was written is lost, and the next
 * use works. The calls are this program's own, which stand before the C library's. The same for files that are cut, read or mapped, and for a disk
 * that fills (a limit on the size of files), by plain calls and by io_uring.
 * tier: sampled, memory (one of several calls in a run of every change) */
#include "host/offload/offload_case.h"

#include <signal.h>
#include <sys/resource.h>

#include "host/offload/fault_calls.h"

enum { N = 6 };
static size_t size_of(int i) { return i % 2 == 0 ? 3000 : (size_t)150 << 10; }

static void one_line(const ac_err *e) {
  assert_true(strlen(e->msg) > 10 && strchr(e->msg, '\n') == NULL);
  assert_true(e->code == AC_IO || e->code == AC_OOM);
}

/* A forward over offloaded weights, a step that writes them, a forward again, in a window of two large ones. */
static ac_status run(aci_window *w, ac_storage **s, int *tag, ac_err *e) {
  for (int i = 0; i < N; i++) {
    const ac_status st = case_check(s[i], tag[i], e);
    if (st != AC_OK) return st;
  }
  for (int i = 0; i < N; i++) {
    const ac_status st = case_fill(s[i], tag[i] + 1, e);
    if (st != AC_OK) return st;
    tag[i]++;
  }
  return aci_window_empty(w, false, e);
}

/* Returns how many calls a run makes. */
static int run_all(enum kind k, bool always) {
  ac_err e;
  int total = 0, failed = 0;
  for (int at = 0; at <= total; at++) { /* 0: none fails, calls are counted */
    if (at > 1 && !ac_test_sampled(5)) continue;
    aci_store *store;
    aci_window *w;
    ac_storage *s[N];
    int tag[N];
    char *path = ac_test_tmp_path("faults");
    assert_ok(aci_store_create(path, 0, false, &store, &e), e);
    assert_ok(aci_window_new(queue, cpu, (size_t)310 << 10, 0, &w, &e), e);
    for (int i = 0; i < N; i++) {
      assert_ok(aci_tiered_new(w, store, size_of(i), &s[i], &e), e);
      assert_ok(case_fill(s[i], tag[i] = 10 * i, &e), e);
    }
    assert_ok(aci_window_empty(w, false, &e), e);
    arm(at, k, always);
    ac_status st = run(w, s, tag, &e);
    if (st != AC_OK) {
      failed++;
      one_line(&e);
      for (int i = 0; i < N; i++) assert_int_equal(aci_tiered_of(s[i])->pins, 0);
    }
    const int made = disarm();
    total = made > total ? made : total;
    st = aci_window_empty(w, false, &e); /* may tell of a write that nobody waited for; what it could not write is still here */
    if (st != AC_OK) one_line(&e);
    for (int i = 0; i < N; i++) assert_ok(case_check(s[i], tag[i], &e), e);
    assert_ok(run(w, s, tag, &e), e);
    for (int i = 0; i < N; i++) ac_storage_release(s[i]);
    aci_window_release(w);
    aci_store_release(store);
    free(path);
  }
  if (k == WITH_EIO) assert_true(failed > 0);
  if (k == WITH_EINTR || k == SHORT) assert_int_equal(failed, 0);
  return total;
}

static void every_call(void **state) {
  (void)state;
  queue->mover.no_uring = true; /* so that all bytes go through calls that can be made to fail */
  for (int k = WITH_EIO; k < KINDS; k++)
    for (int always = 0; always < 2; always++) assert_true(run_all((enum kind)k, always) >= 15);
  queue->mover.no_uring = false;
}

/* Making homes: a disk without room says so before anything is written. */
static void no_room(void **state) {
  (void)state;
  ac_err e;
  aci_store *store;
  aci_window *w;
  ac_storage *s;
  char *path = ac_test_tmp_path("room");
  assert_ok(aci_store_create(path, 0, false, &store, &e), e);
  assert_ok(aci_window_new(queue, cpu, 0, 0, &w, &e), e);
  arm(1, WITH_ENOSPC, false);
  assert_fails(aci_tiered_new(w, store, 1 << 20, &s, &e), IO, "do not fit", e);
  disarm();
  assert_null(s);
  assert_int_equal(aci_store_used(store), 0);
  assert_ok(aci_tiered_new(w, store, 1 << 20, &s, &e), e);
  ac_storage_release(s);
  aci_window_release(w);
  aci_store_release(store);
  assert_fails(aci_store_create("/nowhere/x", 0, false, &store, &e), NOT_FOUND, "/nowhere/x", e);
  free(path);
}

/* A checkpoint that somebody cuts while a model reads from it. */
static void cut(void **state) {
  (void)state;
  enum { BYTES = 5 << 20 };
  ac_err e;
  char *path = ac_test_tmp_path("cut");
  unsigned char *bytes = malloc(BYTES);
  for (size_t i = 0; i < BYTES; i++) bytes[i] = byte_at(4, i);
  for (int how = 0; how < 5; how++) {
    const bool ring = how & 1, direct = how & 2;
    aci_store *store;
    aci_window *w;
    ac_storage *s;
    queue->no_map = how < 4;
    queue->cached_bytes = how < 4 ? UINT64_MAX / 2 : 0; /* the page cache has no room, so that files are read past it */
    ac_test_write(path, bytes, BYTES);
    queue->mover.no_uring = !ring;
    queue->mover.no_direct = !direct;
    assert_ok(aci_store_open(path, &store, &e), e);
    assert_ok(aci_window_new(queue, cpu, 0, 0, &w, &e), e);
    assert_ok(aci_tiered_open(w, store, 0, BYTES, &s, &e), e);
    assert_ok(case_check(s, 4, &e), e);
    assert_ok(aci_window_empty(w, false, &e), e);
    assert_int_equal(truncate(path, BYTES - (3 << 20) - 100), 0);
    assert_fails(case_check(s, 4, &e), IO, "was it cut meanwhile?", e);
    ac_test_contains(e.msg, "cut", __FILE__, __LINE__);
    ac_test_write(path, bytes, BYTES);
    assert_ok(case_check(s, 4, &e), e);
    ac_storage_release(s);
    aci_window_release(w);
    aci_store_release(store);
  }
  queue->mover.no_uring = queue->mover.no_direct = queue->no_map = false;
  free(bytes);
  free(path);
}

/* A disk that fills while bytes go home: a limit on sizes of files stands for it, which io_uring meets as well. */
static void fills(void **state) {
  (void)state;
  ac_err e;
  signal(SIGXFSZ, SIG_IGN);
  for (int ring = 0; ring < 2; ring++) {
    aci_store *store;
    aci_window *w;
    ac_storage *s;
    struct rlimit was, small = {1 << 20, RLIM_INFINITY};
    char *path = ac_test_tmp_path("fills");
    queue->mover.no_uring = !ring;
    assert_ok(aci_store_create(path, 0, false, &store, &e), e);
    assert_ok(aci_window_new(queue, cpu, 0, 0, &w, &e), e);
    assert_ok(aci_tiered_new(w, store, 4 << 20, &s, &e), e);
    assert_ok(case_fill(s, 2, &e), e);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const ac_status st = aci_window_empty(w, false, &e);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(st, AC_IO);
    ac_test_contains(e.msg, "cannot write", __FILE__, __LINE__);
    assert_ok(case_check(s, 2, &e), e); /* still here */
    assert_ok(aci_window_empty(w, false, &e), e);
    assert_ok(case_check(s, 2, &e), e);
    ac_storage_release(s);
    aci_window_release(w);
    aci_store_release(store);
    free(path);
  }
  queue->mover.no_uring = false;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_call), cmocka_unit_test(no_room), cmocka_unit_test(cut),
                                     cmocka_unit_test(fills)};
  return cmocka_run_group_tests(tests, case_open, case_close);
}
