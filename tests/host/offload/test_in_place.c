/* Bytes that are used where they are: host memory below the CPU, and files that the page cache has. They count as memory of the device, limits
 * hold, and what is written goes home or gets memory of its own. A file is not cut or written while an op uses its map: whoever wants to waits;
 * where a map cannot be had bytes are read as ever.
 * tier: every change, memory */
#include "host/offload/offload_case.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 3 << 20, AT = 1000, N = BYTES - 2 * AT };

static _Atomic bool pages_away;
static _Atomic int asked, pages_fail; /* how */
int madvise(void *p, size_t n, int advice) {
  static int (*real)(void *, size_t, int);
  if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "madvise");
  if (advice == 22) atomic_fetch_add(&asked, 1);
  if (advice != 22 || !pages_fail) return real(p, n, advice);
  errno = pages_fail;
  return -1;
}
int mincore(void *p, size_t n, unsigned char *there) {
  static int (*real)(void *, size_t, unsigned char *);
  if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "mincore");
  const int rc = real(p, n, there);
  if (rc == 0 && pages_away) there[0] = 0;
  return rc;
}

static char *path;
static unsigned char *bytes;

static void write_file(void) {
  if (bytes == NULL) bytes = malloc(BYTES);
  for (size_t i = 0; i < BYTES; i++) bytes[i] = byte_at(4, i - AT);
  ac_test_write(path, bytes, BYTES);
}

/* A storage of the middle of the file. */
static ac_storage *opened(aci_store **store, aci_window **w) {
  ac_err e;
  ac_storage *s;
  if (path == NULL) path = ac_test_tmp_path("weights");
  write_file();
  assert_ok(aci_store_open(path, store, &e), e);
  assert_ok(aci_window_new(queue, cpu, 0, 0, w, &e), e);
  assert_ok(aci_tiered_open(*w, *store, AT, N, &s, &e), e);
  return s;
}

static void closed(aci_store *store, aci_window *w, ac_storage *s) {
  ac_storage_release(s);
  aci_window_release(w);
  aci_store_release(store);
  assert_int_equal(queue->cached_bytes, 0);
}

/* As case_check, at any address where an element may begin. */
static ac_status check(ac_storage *s) {
  void *p;
  ac_err e;
  const ac_status st = s->provider->acquire(s, &p, &e);
  if (st != AC_OK) return st;
  assert_memory_equal(p, bytes + AT, N);
  s->provider->release(s, false);
  return AC_OK;
}

static void needs_leases(aci_store *store, aci_window *w, ac_storage *s) {
  if (!store->no_map) return;
  closed(store, w, s);
  print_message("the file system of the tests knows no leases: nothing is mapped\n");
  skip();
}

/* A storage as opened makes it, used once by its map. */
static ac_storage *opened_mapped(aci_store **store, aci_window **w) {
  ac_storage *s = opened(store, w);
  assert_int_equal(check(s), AC_OK);
  needs_leases(*store, *w, s);
  return s;
}

static size_t live(const ac_device *d) {
  ac_mem_stats m;
  ac_mem_stats_get(d, &m);
  return m.live_bytes;
}

static void host_memory(void **state) {
  (void)state;
  ac_err e;
  ac_device *small;
  aci_store *store;
  aci_window *w;
  ac_storage *s[3];
  void *p;
  assert_ok(ac_device_open(ac_device_cpu_vtable(), 0, (size_t)5 << 20, NULL, &small, &e), e);
  assert_ok(aci_store_host(0, &store, &e), e);
  assert_ok(aci_window_new(queue, small, 0, 0, &w, &e), e);
  for (int i = 0; i < 3; i++) {
    assert_ok(aci_tiered_new(w, store, 2 << 20, &s[i], &e), e);
    assert_ok(case_fill(s[i], i, &e), e);
  }
  assert_true(live(small) <= (size_t)5 << 20); /* two of three are resident */
  assert_ok(s[0]->provider->acquire(s[0], &p, &e), e);
  assert_ptr_equal(p, ac_block_ptr(aci_tiered_of(s[0])->home.block));
  assert_ok(s[1]->provider->acquire(s[1], &p, &e), e);
  assert_int_equal(live(small), 4 << 20);
  assert_fails(s[2]->provider->acquire(s[2], &p, &e), OOM, "asked for 2 MiB, 4 MiB live in 2 blocks", e); /* as if they were copies */
  s[0]->provider->release(s[0], false);
  s[1]->provider->release(s[1], false);
  for (int i = 0; i < 3; i++) assert_ok(case_check(s[i], i, &e), e);
  assert_ok(aci_window_empty(w, false, &e), e);
  assert_int_equal(live(small), 0);
  assert_int_equal(store->bytes[0] + store->bytes[1], 0); /* nothing was moved */
  for (int i = 0; i < 3; i++) ac_storage_release(s[i]);
  aci_window_release(w);
  aci_store_release(store);
  ac_device_release(small);
}

static void mapped(void **state) {
  (void)state;
  ac_err e;
  aci_store *store;
  aci_window *w;
  ac_storage *s = opened_mapped(&store, &w);
  aci_tiered *t = aci_tiered_of(s);
  void *p, *q;
  assert_true(t->in_place && t->map != NULL && live(cpu) == (N + 63) / 64 * 64);
  assert_ok(aci_window_empty(w, false, &e), e);
  assert_int_equal(live(cpu), 0);
  assert_int_equal(check(s), AC_OK);
  assert_int_equal(store->mapped, 2 * (uint64_t)N);
  assert_int_equal(store->bytes[0], 0); /* nothing was read: the page cache has what was written just now */
  /* what is written gets memory of its own while nobody else uses the map; the file keeps what it has */
  assert_ok(s->provider->acquire(s, &p, &e), e);
  assert_ok(s->provider->acquire(s, &q, &e), e);
  memset(p, 7, 100);
  s->provider->release(s, true);
  assert_true(t->in_place);
  s->provider->release(s, false);
  assert_true(!t->in_place && t->map == NULL);
  ac_test_write(path, bytes, 10); /* cut: the memory is ours */
  assert_ok(aci_window_empty(w, false, &e), e);
  assert_ok(s->provider->acquire(s, &p, &e), e);
  for (int i = 0; i < N; i++) assert_int_equal(((unsigned char *)p)[i], i < 100 ? 7 : bytes[AT + i]);
  s->provider->release(s, false);
  closed(store, w, s);
}

/* Whoever cuts the file waits for the op that uses it; the next one says what happened. */
static void cut_in_use(void **state) {
  (void)state;
  ac_err e;
  aci_store *store;
  aci_window *w;
  ac_storage *s = opened_mapped(&store, &w);
  void *p;
  int at_work[2], status;
  char c;
  assert_int_equal(pipe(at_work), 0);
  assert_ok(s->provider->acquire(s, &p, &e), e);
  const pid_t child = fork();
  if (child == 0) {
    if (write(at_work[1], "1", 1) != 1) _exit(3);
    _exit(truncate(path, 100) == 0 ? 0 : 2);
  }
  assert_int_equal(read(at_work[0], &c, 1), 1);
  while (fcntl(store->fd, F_GETLEASE) == F_RDLCK && waitpid(child, &status, WNOHANG) == 0) usleep(1000); /* until the system has its request */
  assert_memory_equal(p, bytes + AT, N);
  assert_int_equal(waitpid(child, &status, WNOHANG), 0);
  s->provider->release(s, false);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_fails(s->provider->acquire(s, &p, &e), IO, "was it cut meanwhile?", e);
  write_file();
  assert_int_equal(check(s), AC_OK);
  assert_true(aci_tiered_of(s)->in_place);
  close(at_work[0]);
  close(at_work[1]);
  closed(store, w, s);
}

/* Where somebody writes, pages cannot be had, or the machine has no room for the file, bytes are read. */
static void read_instead(void **state) {
  (void)state;
  ac_err e;
  aci_store *store;
  aci_window *w;
  ac_storage *s = opened_mapped(&store, &w);
  assert_ok(aci_window_empty(w, false, &e), e);
  const int writer = open(path, O_WRONLY);
  assert_int_equal(check(s), AC_OK);
  assert_false(aci_tiered_of(s)->in_place);
  close(writer);
  assert_ok(aci_window_empty(w, false, &e), e);
  assert_int_equal(check(s), AC_OK);
  assert_true(aci_tiered_of(s)->in_place);
  assert_ok(aci_window_empty(w, false, &e), e);
  pages_away = true; /* the I/O thread brings them */
  asked = 0;
  assert_int_equal(check(s), AC_OK);
  assert_true(aci_tiered_of(s)->in_place && asked == 1 && store->bytes[0] == 2 * (uint64_t)N);
  for (int ahead = 0; ahead < 2; ahead++) {
    assert_ok(aci_window_empty(w, false, &e), e);
    pages_fail = EFAULT; /* as where the disk has an error */
    if (ahead) aci_window_pass(w, true);
    assert_int_equal(check(s), AC_OK);
    assert_false(aci_tiered_of(s)->in_place);
    pages_fail = 0;
  }
  pages_away = false;
  closed(store, w, s);
  s = opened(&store, &w);
  queue->cached_bytes = UINT64_MAX / 2;
  assert_int_equal(check(s), AC_OK);
  assert_false(store->cached || aci_tiered_of(s)->in_place);
  queue->cached_bytes = 0;
  closed(store, w, s);
  s = opened(&store, &w);
  queue->no_map = true;
  assert_int_equal(check(s), AC_OK);
  assert_true(store->cached && !aci_tiered_of(s)->in_place);
  queue->no_map = false;
  closed(store, w, s);
}

/* Pages that the system took away are asked for before their use again. A system that brings none is asked once: from then on bytes are
 * read, before their use as well. */
static void brought_ahead(void **state) {
  (void)state;
  ac_err e;
  aci_store *store;
  aci_window *w;
  ac_storage *s = opened_mapped(&store, &w);
  aci_tiered *t = aci_tiered_of(s);
  assert_ok(aci_window_empty(w, false, &e), e);
  aci_window_pass(w, true);
  assert_int_equal(w->stats.prefetched, 0); /* they are there */
  assert_int_equal(check(s), AC_OK);
  pages_away = true;
  asked = 0;
  for (int flush = 0; flush < 2; flush++) {
    assert_ok(aci_window_empty(w, false, &e), e);
    aci_window_pass(w, true);
    assert_int_equal(t->state, ACI_COMING);
    assert_int_equal(check(s), AC_OK);
    assert_true(t->in_place && asked == 1 + 3 * flush);
    assert_ok(aci_window_empty(w, false, &e), e);
    pages_fail = EFAULT;
    aci_window_pass(w, true);
    pthread_mutex_lock(&queue->lock);
    aci_io_queue_wait(queue, &t->transfer);
    pthread_mutex_unlock(&queue->lock);
    assert_ok(aci_window_empty(w, flush, &e), e); /* what could not come is out, and its use tells */
    pages_fail = 0;
    assert_int_equal(check(s), AC_OK);
  }
  pages_away = false;
  closed(store, w, s);
}

static void no_pages(void **state) {
  (void)state;
  ac_err e;
  aci_store *store;
  aci_window *w;
  ac_storage *s = opened_mapped(&store, &w);
  aci_tiered *t = aci_tiered_of(s);
  pages_away = true;
  pages_fail = EINVAL; /* as before Linux 5.14 */
  asked = 0;
  for (int pass = 0; pass < 3; pass++) {
    assert_ok(aci_window_empty(w, false, &e), e);
    aci_window_pass(w, true);
    assert_true(t->state != ACI_OUT && (t->transfer.map != NULL) == (pass == 0));
    assert_int_equal(check(s), AC_OK);
    assert_false(t->in_place);
    assert_int_equal(asked, 1);
    assert_int_equal(store->bytes[0], (uint64_t)(pass + 1) * N); /* each time once */
  }
  assert_int_equal(w->stats.prefetched, 3);
  pages_away = false;
  pages_fail = 0;
  closed(store, w, s);
}

/* What was written gets its own memory where a limit has room for it or the map, not for both; and stays a map, counted, where it has no
 * room. */
static void own_in_a_limit(void **state) {
  (void)state;
  for (int fits = 0; fits < 2; fits++) {
    ac_err e;
    ac_device *small;
    aci_store *store;
    aci_window *w;
    ac_storage *s;
    void *p;
    write_file();
    assert_ok(ac_device_open(ac_device_cpu_vtable(), 0, fits ? (size_t)5 << 20 : BYTES, NULL, &small, &e), e);
    assert_ok(aci_store_open(path, &store, &e), e);
    assert_ok(aci_window_new(queue, small, 0, 0, &w, &e), e);
    assert_ok(aci_tiered_open(w, store, AT, N, &s, &e), e);
    assert_ok(s->provider->acquire(s, &p, &e), e);
    memset(p, 7, 100);
    s->provider->release(s, true);
    if (store->no_map) {
      ac_device_release(small);
      needs_leases(store, w, s);
    }
    assert_true(aci_tiered_of(s)->in_place == !fits);
    assert_true(live(small) >= N && w->stats.resident_bytes == N);
    assert_ok(s->provider->acquire(s, &p, &e), e);
    for (int i = 0; i < N; i++) assert_int_equal(((unsigned char *)p)[i], i < 100 ? 7 : bytes[AT + i]);
    s->provider->release(s, false);
    closed(store, w, s);
    assert_int_equal(live(small), 0);
    ac_device_release(small);
  }
}

static int done(void **state) {
  free(path);
  free(bytes);
  return case_close(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(host_memory), cmocka_unit_test(mapped), cmocka_unit_test(cut_in_use),
                                     cmocka_unit_test(read_instead), cmocka_unit_test(brought_ahead),
                                     cmocka_unit_test(no_pages), cmocka_unit_test(own_in_a_limit)};
  return cmocka_run_group_tests(tests, case_open, done);
}
