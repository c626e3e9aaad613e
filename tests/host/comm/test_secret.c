/* Where the secret of a job comes from, what refuses it, and that machines which start at once agree on the file of the user. */
#include "support/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/secret.h"

static char folder[300], own[400];

static ac_status find(const char *run_id, aci_job_key *k, ac_err *e) {
  ac_params *p = NULL;
  ac_status st = ac_params_new(&p, e);
  if (st == AC_OK) st = aci_job_key_find(p, run_id, false, k, e);
  ac_params_free(p);
  return st;
}

static void write_file(const char *path, const char *text, mode_t mode) {
  ac_test_write(path, text, strlen(text));
  assert_int_equal(chmod(path, mode), 0);
}

static int setup(void **state) {
  const char *version;
  ac_err e;
  char *tmp = ac_test_tmp_path("home");
  snprintf(folder, sizeof folder, "%s", tmp);
  free(tmp);
  snprintf(own, sizeof own, "%s/accel/job_secret", folder);
  setenv("XDG_CONFIG_HOME", folder, 1);
  unsetenv("ACCEL_JOB_SECRET");
  unsetenv("ACCEL_JOB_SECRET_FILE");
  unsetenv("ACCEL_INSECURE");
  remove(own);
  return aci_hmac_library(&version, &e) == AC_OK ? 0 : 77;
}

static void keys(void **state) {
  aci_job_key a, b;
  ac_err e;
  setup(NULL);
  setenv("ACCEL_JOB_SECRET", "one", 1);
  assert_ok(find("job", &a, &e), e);
  assert_string_equal(a.origin, "ACCEL_JOB_SECRET");
  /* HMAC-SHA-256("one", "job"), by Python's hmac */
  static const uint8_t right[4] = {0xa7, 0x07, 0x78, 0xcc};
  assert_memory_equal(a.key, right, sizeof right);
  assert_ok(find("other job", &b, &e), e);
  assert_memory_not_equal(a.key, b.key, sizeof a.key);
  char *path = ac_test_tmp_path("secret");
  write_file(path, "one\n", 0644); /* mounted secrets look like this */
  setenv("ACCEL_JOB_SECRET", "two", 1);
  setenv("ACCEL_JOB_SECRET_FILE", path, 1); /* the option wins */
  assert_ok(find("job", &b, &e), e);
  assert_memory_equal(a.key, b.key, sizeof a.key);
  setenv("ACCEL_INSECURE", "1", 1);
  assert_ok(find("job", &b, &e), e);
  assert_true(b.insecure && !a.insecure);
  free(path);
}

static void refused_files(void **state) {
  aci_job_key k;
  ac_err e;
  setup(NULL);
  char *path = ac_test_tmp_path("fifo"), *big = ac_test_tmp_path("big"), long_one[ACI_SECRET_MOST + 10];
  remove(path);
  assert_int_equal(mkfifo(path, 0600), 0);
  setenv("ACCEL_JOB_SECRET_FILE", path, 1);
  assert_fails(find("job", &k, &e), INVALID, "expected a regular file", e); /* at once */
  setenv("ACCEL_JOB_SECRET_FILE", "/nowhere/secret", 1);
  assert_fails(find("job", &k, &e), IO, "create it on every machine", e);
  memset(long_one, 'x', sizeof long_one);
  long_one[sizeof long_one - 1] = 0;
  write_file(big, long_one, 0600);
  setenv("ACCEL_JOB_SECRET_FILE", big, 1);
  assert_fails(find("job", &k, &e), INVALID, "at most 4096 bytes", e);
  write_file(big, "\n", 0600);
  assert_fails(find("job", &k, &e), INVALID, "is empty", e);
  free(path);
  free(big);
}

static char warned[300];
static void note(void *user, ac_log_level level, const char *area, const char *text) {
  (void)user, (void)area;
  if (level == AC_LOG_WARN) snprintf(warned, sizeof warned, "%s", text);
}

/* Short secrets and files that others can read serve, and the warning names them. */
static void weak_secrets(void **state) {
  aci_job_key k;
  ac_err e;
  setup(NULL);
  ac_log_set(note, NULL, AC_LOG_WARN);
  char *path = ac_test_tmp_path("weak"), part[400];
  static const struct {
    const char *text, *says;
    mode_t mode;
  } row[] = {{"123456789012345\n", "has 15 bytes and can be guessed", 0600},
             {"1234567890123456\n", "can be read by other users of this machine (mode 0644); chmod 600 it", 0644},
             {"1234567890123456\n", "can be read by other users of this machine (mode 0640); chmod 600 it", 0640},
             {"1234567890123456\n", NULL, 0600}};
  setenv("ACCEL_JOB_SECRET_FILE", path, 1);
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    write_file(path, row[i].text, row[i].mode);
    assert_ok(find("job", &k, &e), e);
    warned[0] = 0;
    aci_job_key_warn(&k);
    snprintf(part, sizeof part, "the secret of jobs in %s %s", path, row[i].says != NULL ? row[i].says : "");
    if (row[i].says != NULL) ac_test_contains(warned, part, __FILE__, __LINE__);
    else assert_string_equal(warned, "");
  }
  unsetenv("ACCEL_JOB_SECRET_FILE");
  setenv("ACCEL_JOB_SECRET", "short", 1);
  assert_ok(find("job", &k, &e), e);
  aci_job_key_warn(&k);
  ac_test_contains(warned, "the secret of jobs in ACCEL_JOB_SECRET has 5 bytes and can be guessed; use 32", __FILE__, __LINE__);
  ac_log_set(NULL, NULL, AC_LOG_OFF);
  free(path);
}

/* Names of jobs are never cut: what is left might be another job's. */
static void names_of_jobs(void **state) {
  char id[ACI_RUN_ID], name[ACI_RUN_ID + 1];
  ac_err e;
  memset(name, 'j', sizeof name);
  name[ACI_RUN_ID] = 0;
  assert_fails(aci_run_id_of(name, "", 0, id, &e), INVALID, "is longer than 63 bytes; give all machines a shorter --run-id", e);
  assert_fails(aci_run_id_of("", name, 1, id, &e), INVALID, "the address of rank 0 names the job", e);
  name[ACI_RUN_ID - 1] = 0;
  assert_ok(aci_run_id_of(name, "", 0, id, &e), e);
  assert_string_equal(id, name);
  assert_ok(aci_run_id_of("", "::1", 29500, id, &e), e);
  assert_string_equal(id, "[::1]:29500");
  name[ACI_RUN_ID - 1] = 'j';
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "1", 1);
  setenv("TORCHELASTIC_RUN_ID", name, 1);
  aci_place p;
  assert_fails(aci_discover(&p, &e), INVALID, "run_id: the name of the job 'jjj", e);
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  unsetenv("TORCHELASTIC_RUN_ID");
}

static void file_of_the_user(void **state) {
  aci_job_key a, b;
  ac_err e;
  struct stat st;
  setup(NULL);
  assert_ok(find("job", &a, &e), e);
  assert_string_equal(a.origin, own);
  assert_int_equal(stat(own, &st), 0);
  assert_int_equal(st.st_mode & 07777, 0600);
  assert_int_equal(st.st_size, 65);
  assert_ok(find("job", &b, &e), e);
  assert_memory_equal(a.key, b.key, sizeof a.key);
  assert_int_equal(chmod(own, 0640), 0);
  assert_fails(find("job", &a, &e), INVALID, "other users can read", e);
  remove(own);
  assert_int_equal(symlink("/etc/hostname", own), 0);
  assert_fails(find("job", &a, &e), IO, "cannot read the secret", e);
  remove(own);
}

static void first_starts_at_once(void **state) {
  enum { N = 8 };
  setup(NULL);
  int fds[2], status;
  assert_int_equal(pipe(fds), 0);
  for (int i = 0; i < N; i++) {
    if (fork() != 0) continue;
    aci_job_key k;
    ac_err e;
    const bool ok = find("job", &k, &e) == AC_OK && write(fds[1], k.key, sizeof k.key) == (ssize_t)sizeof k.key;
    _exit(ok ? 0 : 1);
  }
  uint8_t first[ACI_HMAC], key[ACI_HMAC];
  for (int i = 0; i < N; i++) {
    assert_true(wait(&status) > 0 && status == 0);
    assert_int_equal(read(fds[0], i == 0 ? first : key, ACI_HMAC), ACI_HMAC);
    if (i > 0) assert_memory_equal(first, key, ACI_HMAC);
  }
  close(fds[0]);
  close(fds[1]);
}

static void no_home(void **state) {
  aci_job_key k;
  ac_err e;
  setup(NULL);
  setenv("XDG_CONFIG_HOME", "/proc/nowhere", 1);
  assert_fails(find("job", &k, &e), IO, "set ACCEL_JOB_SECRET or --job-secret-file", e);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(keys), cmocka_unit_test(refused_files), cmocka_unit_test(file_of_the_user),
                                     cmocka_unit_test(weak_secrets), cmocka_unit_test(names_of_jobs),
                                     cmocka_unit_test(first_starts_at_once), cmocka_unit_test(no_home)};
  const int skipped = setup(NULL);
  return skipped != 0 ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
