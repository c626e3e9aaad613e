/* The control segment alone: making and opening it, what is refused, the first abort reason, pages that are read
 * while they change. */
#include "support/test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base_impl.h"
#include "comm/segment.h"

static void make_and_open(void **state) {
  static const int ns[] = {1, 2, 8, 256};
  for (int i = 0; i < 4; i++) {
    aci_segment_map a, b;
    ac_err e;
    assert_ok(aci_segment_make(ns[i], &a, &e), e);
    assert_true(fcntl(a.fd, F_GETFD) & FD_CLOEXEC);
    assert_ok(aci_segment_open(dup(a.fd), &b, &e), e);
    assert_int_equal(b.head->n_ranks, ns[i]);
    assert_int_equal(b.head->n_cpus, aci_host_cpus()); /* quota and mask, not what the machine has */
    const int last = ns[i] - 1;
    /* the furthest corner of everything, written here and read there */
    aci_page_of(a.head, last)->pid = 5;
    atomic_store(&aci_slot_of(a.head, ACI_GROUPS - 1, last)->arrived, 6);
    aci_stage_of(a.head, ACI_GROUPS - 1, last)->out[1][ACI_CHUNK - 1] = 7;
    aci_mailbox_of(a.head, last, last)->piece[1][ACI_CHUNK - 1] = 8;
    assert_int_equal(aci_page_of(b.head, last)->pid, 5);
    assert_int_equal(atomic_load(&aci_slot_of(b.head, ACI_GROUPS - 1, last)->arrived), 6);
    assert_int_equal(aci_stage_of(b.head, ACI_GROUPS - 1, last)->out[1][ACI_CHUNK - 1], 7);
    assert_int_equal(aci_mailbox_of(b.head, last, last)->piece[1][ACI_CHUNK - 1], 8);
    assert_ptr_equal((char *)(aci_mailbox_of(b.head, last, last) + 1), (char *)b.head + b.head->total);
    struct stat s;
    assert_int_equal(fstat(a.fd, &s), 0);
    assert_true(s.st_blocks * 512 < (4 << 20)); /* sparse */
    assert_ok(aci_segment_commit(&a, aci_stage_of(a.head, 3, last), sizeof(aci_stage), &e), e);
    assert_int_equal(fstat(a.fd, &s), 0);
    assert_true(s.st_blocks * 512 >= (int64_t)sizeof(aci_stage));
    aci_segment_close(&b);
    aci_segment_close(&a);
    assert_null(a.head);
  }
}

/* The last rank that joins wipes the key of the job. */
static void key_is_wiped(void **state) {
  aci_segment_map a;
  ac_err e;
  static const uint8_t zero[sizeof a.head->job_key];
  assert_ok(aci_segment_make(3, &a, &e), e);
  memset(a.head->job_key, 7, sizeof a.head->job_key);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(a.head->job_key[31], 7);
    aci_segment_key_done(a.head);
  }
  assert_memory_equal(a.head->job_key, zero, sizeof zero);
  aci_segment_close(&a);
}

static void refusals(void **state) {
  aci_segment_map a, b;
  ac_err e;
  assert_fails(aci_segment_make(0, &a, &e), INVALID, "0 ranks", e);
  assert_fails(aci_segment_make(ACI_MAX_LOCAL + 1, &a, &e), INVALID, "257 ranks", e);
  assert_fails(aci_segment_open(-1, &b, &e), INVALID, "not a segment of accel-run", e);
  assert_fails(aci_segment_open(0, &b, &e), INVALID, "descriptor 0", e);
  FILE *f = tmpfile();
  assert_int_equal(ftruncate(fileno(f), 1 << 20), 0);
  assert_fails(aci_segment_open(fileno(f), &b, &e), INVALID, "not a segment", e);
  fclose(f);
  assert_ok(aci_segment_make(2, &a, &e), e);
  a.head->layout++;
  assert_fails(aci_segment_open(a.fd, &b, &e), MISMATCH, "different versions", e);
  assert_int_equal(ftruncate(a.fd, 4096), -1); /* sealed */
  aci_segment_close(&a);
}

static void first_abort_reason(void **state) {
  aci_segment_map a;
  ac_err e;
  assert_ok(aci_segment_make(2, &a, &e), e);
  char text[1000];
  memset(text, 'x', sizeof text);
  text[999] = 0;
  assert_true(aci_abort_segment(a.head, AC_PEER, 1, text));
  assert_false(aci_abort_segment(a.head, AC_TIMEOUT, 0, "later"));
  assert_int_equal(a.head->abort_reason.code, AC_PEER);
  assert_int_equal(a.head->abort_reason.rank, 1);
  assert_int_equal(strlen(a.head->abort_reason.text), sizeof a.head->abort_reason.text - 1);
  aci_segment_close(&a);
}

/* A sleeper of another process is woken by an abort. */
static void abort_wakes(void **state) {
  aci_segment_map a;
  ac_err e;
  assert_ok(aci_segment_make(2, &a, &e), e);
  atomic_store(&a.head->n_slots, 1);
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) {
    aci_slot *s = aci_slot_of(a.head, 0, 1);
    atomic_fetch_add(&s->sleepers, 1);
    const int64_t t = aci_now_ns();
    aci_futex_wait(&s->phase, 0, 20000000000);
    _exit(aci_now_ns() - t < 5000000000 ? 0 : 1);
  }
  while (atomic_load(&aci_slot_of(a.head, 0, 1)->sleepers) == 0) usleep(1000);
  char path[40], sleeping = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  while (sleeping != 'S') {
    usleep(1000);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*d (%*[^)]) %c", &sleeping), 1);
    fclose(f);
  }
  aci_abort_segment(a.head, AC_PEER, 0, "over");
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  aci_segment_close(&a);
}

static _Atomic bool over;

static void *writes(void *arg) {
  aci_page *p = arg;
  for (uint64_t i = 0; !atomic_load(&over); i++) {
    char text[ACI_SITE];
    memset(text, 'a' + (int)(i % 26), sizeof text);
    text[ACI_SITE - 1] = 0;
    aci_page_set_at(p, text, i % 26);
  }
  return NULL;
}

static void pages_are_whole(void **state) {
  aci_segment_map a;
  ac_err e;
  pthread_t t[2];
  assert_ok(aci_segment_make(1, &a, &e), e);
  aci_page *p = aci_page_of(a.head, 0), copy;
  aci_page_set_at(p, "zz", 25);
  atomic_store(&over, false);
  for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&t[i], NULL, writes, p), 0);
  for (int i = 0; i < 20000; i++) {
    aci_page_read(p, &copy);
    for (size_t c = 0; copy.at[c] != 0; c++) assert_int_equal(copy.at[c], 'a' + (int)copy.step);
  }
  atomic_store(&over, true);
  for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
  atomic_fetch_add(&p->guard, 1); /* a writer that died */
  aci_page_read(p, &copy);
  assert_int_equal(copy.at[0], p->at[0]);
  aci_segment_close(&a);
}

static void *writes_slowly(void *arg) {
  aci_page *p = arg;
  aci_page_lock(p);
  memset(p->at, 'b', 10);
  atomic_store(&over, true);
  usleep(20000);
  memset(p->at, 'b', 30);
  p->step = 1;
  aci_page_unlock(p);
  return NULL;
}

/* A writer that the kernel takes its core from in the middle is waited for. */
static void held_up_writer(void **state) {
  aci_segment_map a;
  ac_err e;
  pthread_t t;
  assert_ok(aci_segment_make(1, &a, &e), e);
  aci_page *p = aci_page_of(a.head, 0), copy;
  aci_page_set_at(p, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 0);
  atomic_store(&over, false);
  assert_int_equal(pthread_create(&t, NULL, writes_slowly, p), 0);
  while (!atomic_load(&over)) usleep(100);
  aci_page_read(p, &copy);
  pthread_join(t, NULL);
  assert_int_equal(copy.step, 1);
  assert_string_equal(copy.at, "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb");
  aci_segment_close(&a);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(make_and_open), cmocka_unit_test(key_is_wiped), cmocka_unit_test(refusals),
                                     cmocka_unit_test(first_abort_reason), cmocka_unit_test(abort_wakes),
                                     cmocka_unit_test(pages_are_whole), cmocka_unit_test(held_up_writer)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
