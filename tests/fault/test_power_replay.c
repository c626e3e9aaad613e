/* The power goes after every system call of saves, of a replacement and of removals, without a mount (power_disk.h). After each call
 * disks are made, and looked at: what was acknowledged is whole, and nothing is damaged. test_power_writers.c is the same for the other
 * writers.
 *
 * tier: sampled, memory (one of several moments in a run of every change) */
#include "fault/power_disk.h"

enum { ROWS = 40, DRAWS = 3 };

static char disk[600];
static ac_device *cpu;
static int acked[8], n_acked; /* steps */
static int moments, disks;

/* The checks run in the save's thread, from which a test cannot be left. */
#define LOST(...) (fprintf(stderr, "ERROR: " __VA_ARGS__), fputc('\n', stderr), fflush(NULL), _exit(1))

static void look(const char *call) {
  char parent[700], path[900];
  ac_ckpt_list l = {0};
  ac_err e;
  bool found[8] = {false};
  snprintf(parent, sizeof parent, "%s/runs", disk);
  if (ac_ckpt_scan(parent, &l, &e) != AC_OK && n_acked > 0) LOST("after %s: %s", call, e.msg);
  for (int i = 0; i < l.n; i++) {
    const ac_ckpt_entry *x = &l.entry[i];
    if (x->status == AC_CKPT_UNFINISHED) continue;
    if (x->status != AC_CKPT_OK) LOST("after %s: %s is %s: %s", call, x->name, ac_ckpt_status_name(x->status), x->reason);
    ac_ckpt *c;
    snprintf(path, sizeof path, "%s", x->path);
    assert_ok(ac_ckpt_open(path, &c, &e), e);
    const bool fresh = strcmp(ac_ckpt_file_at(c, 0)->name, "new") == 0;
    uint64_t done = 0;
    if (ac_ckpt_verify(c, NULL, &done, &e) != AC_OK) LOST("after %s: %s", call, e.msg);
    ac_ckpt_close(c);
    if (!fresh && case_load(cpu, path, (int)x->number, ROWS, &e) != AC_OK) LOST("after %s: %s", call, e.msg);
    for (int k = 0; k < n_acked; k++)
      if (acked[k] == x->number) found[k] = true;
  }
  for (int k = 0; k < n_acked; k++)
    if (!found[k]) LOST("after %s: step %d was acknowledged and is not there", call, acked[k]);
  ac_ckpt_list_free(&l);
}

static void cut(const char *call) {
  ac_err e;
  if (!ac_test_sampled(4)) return;
  inside = true;
  moments++;
  for (int i = 0; i < DRAWS; i++, disks++) {
    assert_ok(aci_ckpt_remove_tree(disk, &e), e);
    make_dir(disk, &nodes[0]);
    look(call);
  }
  inside = false;
}

static void on_event(const event *x) {
  pthread_mutex_lock(&lock);
  const bool changed = apply(x);
  pthread_mutex_unlock(&lock);
  if (changed) cut(x->call);
}

/* ---- the test ---- */

static void save(const char *parent, int step) {
  const case_size z = {ROWS, 0, 1};
  ac_err e;
  assert_ok(case_save(cpu, parent, step, &z, NULL, NULL, NULL, NULL, &e), e);
  acked[n_acked++] = step;
  cut("the acknowledgement");
}

static void replace(const char *parent, int step) {
  char path[512];
  ac_ckpt_options o = AC_CKPT_OPTIONS_INIT;
  ac_ckpt_save *s;
  ac_err e;
  o.replace = true;
  case_path(path, sizeof path, parent, step);
  assert_ok(ac_ckpt_create(path, &o, &s, &e), e);
  assert_ok(ac_ckpt_add_bytes(s, "new", "new", 3, &e), e);
  assert_ok(ac_ckpt_start(s, NULL, 0, NULL, NULL, &e), e);
  assert_ok(ac_ckpt_wait(s, -1, &e), e);
  ac_ckpt_save_free(s);
  cut("the acknowledgement");
}

static void cuts(void **state) {
  ac_err e;
  char parent[600];
  ac_ckpt_list gone;
  seed = case_seed();
  setenv("ACCEL_IO_URING", "0", 1); /* its writes cannot be seen */
  assert_ok(ac_device_open(ac_device_cpu_vtable(), 0, 1 << 28, NULL, &cpu, &e), e);
  char *real_root = case_folder("replay"), *other = case_folder("replay-disk");
  char *full = realpath(real_root, NULL); /* as /proc names it */
  snprintf(root, sizeof root, "%s", full);
  snprintf(disk, sizeof disk, "%s", other);
  snprintf(parent, sizeof parent, "%s/runs", root);
  forget_disk();
  on = true;
  for (int step = 1; step <= 3; step++) save(parent, step);
  replace(parent, 3);
  no_exchange = true;
  replace(parent, 3);
  save(parent, 4);
  no_exchange = false;
  /* what is removed is no longer held to be there */
  memmove(acked, acked + 2, sizeof acked - 2 * sizeof acked[0]);
  n_acked -= 2;
  assert_ok(ac_ckpt_prune(parent, 2, &gone, &e), e);
  assert_int_equal(gone.n, 2);
  ac_ckpt_list_free(&gone);
  save(parent, 5);
  on = false;
  printf("%d moments, %d disks looked at\n", moments, disks);
  assert_true(moments > 20);
  ac_device_release(cpu);
  assert_ok(aci_ckpt_remove_tree(real_root, &e), e);
  assert_ok(aci_ckpt_remove_tree(other, &e), e);
  forget_disk();
  free(full);
  free(real_root);
  free(other);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cuts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
