/* The power goes, or the process is killed, after each call of every writer of files that users keep. Each writes two versions into
 * a folder, and its calls are recorded. Then the calls are replayed on a model of the disk (power_disk.h), and after each of them disks are
 * made as a cut or a kill may leave them. On each the old version or the new one loads, never neither, and once a version was
 * acknowledged never an older one. On the disk of a kill the next save leaves nothing behind. Writers: power_writers_case.lua.
 *
 * tier: sampled, memory (one of many calls in a run of every change) */
#include "fault/power_disk.h"

#include "accel/accel.h"
#include "file/left_over.h"

enum { EVENTS = 20000, VERSIONS = 2, DRAWS = 2, ONE_OF = 31 };

static event log_of[EVENTS];
static int n_events, acknowledged[VERSIONS];
static char disk[600];
static ac_host *host;
static int prefixes, disks, faults;

static char *copy(const void *p, size_t n) {
  char *c = p == NULL ? NULL : malloc(n + 1);
  if (c != NULL) memcpy(c, p, n), c[n] = 0;
  return c;
}

static void on_event(const event *x) {
  pthread_mutex_lock(&lock);
  if (n_events == EVENTS) abort();
  event *y = &log_of[n_events++];
  *y = *x;
  y->path = x->path == NULL ? NULL : copy(x->path, strlen(x->path));
  y->to = x->to == NULL ? NULL : copy(x->to, strlen(x->to));
  y->bytes = copy(x->bytes, x->kind == E_WRITE ? x->n : 0);
  pthread_mutex_unlock(&lock);
}

static void forget_events(void) {
  for (int i = 0; i < n_events; i++) {
    free((char *)(uintptr_t)log_of[i].path);
    free((char *)(uintptr_t)log_of[i].to);
    free((char *)(uintptr_t)log_of[i].bytes);
  }
  n_events = n_opened = 0;
}

/* The folder as a kill leaves it: all that was done. */
static void make_now(const char *path, const node *d) {
  mkdir(path, 0777);
  for (int i = 0; i < d->n_now; i++) {
    char *child = aci_ckpt_join(path, d->now[i].name);
    const node *x = &nodes[d->now[i].node];
    if (x->dir) make_now(child, x);
    else ac_test_write(child, x->data != NULL ? x->data : "", x->n);
    free(child);
  }
}

static ac_host_value text(const char *s) { return (ac_host_value){.type = AC_HOST_STRING, .len = strlen(s), .s = s}; }

static bool try_version(const char *name, const char *dir, int v) {
  ac_err e;
  int n;
  ac_host_value args[3] = {text(name), text(dir), {.type = AC_HOST_INT, .i = v}}, result;
  return ac_host_call(host, "write", 3, args, 1, &result, &n, &e) == AC_OK;
}

static void write_version(const char *name, const char *dir, int v) {
  if (!try_version(name, dir, v)) fail_msg("%s, version %d: %s", name, v, ac_host_error_text(host));
}

/* Fails unless the folder holds `least` or the version after it. least 0: nothing may be there. */
static void expect(const char *how, const char *name, const char *dir, int least, const char *call, int at) {
  ac_err e;
  int n;
  ac_host_value args[2] = {text(name), text(dir)}, r[2];
  assert_ok(ac_host_call(host, how, 2, args, 2, r, &n, &e), e);
  if (r[0].i != -1 && (r[0].i < least || r[0].i > least + 1))
    fail_msg("%s: %s finds version %d after call %d (%s), expected %d or %d: %s", name, how, (int)r[0].i, at, call, least, least + 1, r[1].s);
}

static void is_clean(const char *name, const char *dir, const char *call, int at) {
  ac_err e;
  int n;
  ac_host_value args[1] = {text(dir)}, r;
  assert_ok(ac_host_call(host, "left_over", 1, args, 1, &r, &n, &e), e);
  if (r.len > 0) fail_msg("%s: %s is left over after call %d (%s) failed, or a kill there and the next save", name, r.s, at, call);
}

static void no_left_over(const char *name, const char *dir, const char *call, int at) {
  char file[800];
  snprintf(file, sizeof file, "%s/x", dir);
  aci_temp_sweep_files(file, true); /* as a new process would: this one has read the folder before */
  write_version(name, dir, VERSIONS + 1);
  expect("read", name, dir, VERSIONS + 1, call, at);
  is_clean(name, dir, call, at);
}

static void look(const char *name, const char *call, int at, int least) {
  ac_err e;
  char dir[700];
  snprintf(dir, sizeof dir, "%s/kept", disk);
  prefixes++;
  for (int i = 0; i <= DRAWS; i++, disks++) {
    assert_ok(aci_ckpt_remove_tree(disk, &e), e);
    if (i < DRAWS) make_dir(disk, &nodes[0]);
    else make_now(disk, &nodes[0]);
    if (i == DRAWS) expect("plain", name, dir, least, call, at);
    expect("read", name, dir, least, call, at);
    if (i == DRAWS) no_left_over(name, dir, call, at);
  }
}

static void replay(const char *name) {
  ac_err e;
  char dir[700];
  snprintf(dir, sizeof dir, "%s/kept", root);
  assert_ok(aci_ckpt_remove_tree(dir, &e), e);
  for (int v = 1; v <= VERSIONS; v++) {
    on = true;
    write_version(name, dir, v);
    on = false;
    acknowledged[v - 1] = n_events;
  }
  forget_disk();
  for (int i = 0, least = 0; i < n_events; i++) {
    const bool changed = apply(&log_of[i]);
    bool ack = false;
    while (least < VERSIONS && acknowledged[least] <= i + 1) least++, ack = true;
    if ((ack || changed) && ac_test_sampled(ONE_OF)) look(name, log_of[i].call, i, least);
  }
  printf("%s: %d calls\n", name, n_events);
  forget_events();
}

/* Every call of a save fails for lack of room, alone or with all behind it. The version before is whole, or the new one when only the
 * end of its save failed. */
static void fill(const char *name) {
  ac_err e;
  char dir[700];
  int calls = 1;
  snprintf(dir, sizeof dir, "%s/kept", root);
  for (int k = 0; k <= calls; k++) { /* 0 counts the calls */
    for (int stays = 0; stays < 2; stays++) {
      if (k > 0 ? !ac_test_sampled(ONE_OF) : stays == 1) continue;
      assert_ok(aci_ckpt_remove_tree(dir, &e), e);
      write_version(name, dir, 1);
      full_from = k > 0 ? k : EVENTS;
      full_stays = stays == 1;
      n_calls = 0;
      on = true;
      const bool done = try_version(name, dir, 2);
      on = false;
      full_from = 0;
      faults += k > 0;
      expect("read", name, dir, done ? 2 : 1, "full disk", k);
      is_clean(name, dir, "full disk", k);
      forget_events();
      if (k == 0) calls = n_calls;
    }
  }
}

static void writers(void **state) {
  ac_err e;
  seed = case_seed();
  setenv("ACCEL_IO_URING", "0", 1); /* its writes cannot be seen */
  char dir[4096], *real_root = case_folder("writers"), *other = case_folder("writers-disk"), *full = realpath(real_root, NULL);
  ac_host_options o = AC_HOST_OPTIONS_INIT;
  const char *build = getenv("ACCEL_TEST_BUILD");
  snprintf(root, sizeof root, "%s", full);
  snprintf(disk, sizeof disk, "%s", other);
  snprintf(dir, sizeof dir, "%s/share/lua/5.4", build != NULL ? build : ".");
  o.lua_dir = dir;
  o.n_threads = 1;
  assert_ok(ac_host_open(&o, &host, &e), e);
  char *script = ac_test_source_path("tests/fault/power_writers_case.lua");
  assert_ok(ac_host_run_file(host, script, 0, NULL, &e), e);
  int n_writers = 0;
  for (;; n_writers++) {
    char name[64];
    int n;
    ac_host_value i = {.type = AC_HOST_INT, .i = n_writers + 1}, r;
    assert_ok(ac_host_call(host, "name_of", 1, &i, 1, &r, &n, &e), e);
    if (r.type != AC_HOST_STRING) break;
    snprintf(name, sizeof name, "%s", r.s);
    replay(name);
    fill(name);
  }
  printf("%d writers, %d prefixes, %d disks, %d saves on a full disk\n", n_writers, prefixes, disks, faults);
  ac_host_close(host);
  forget_disk();
  assert_ok(aci_ckpt_remove_tree(real_root, &e), e);
  assert_ok(aci_ckpt_remove_tree(other, &e), e);
  free(script);
  free(full);
  free(real_root);
  free(other);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(writers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
