/* The service that lets other programs look into a rank, from a client's end: who is admitted, what is answered, and that no client, whatever it
 * sends or leaves out, keeps the rank's own thread or other clients waiting.
 * tier: sampled, memory
 * 1,000 wrong tokens in a sample, 100,000 in a full run. */
#include "host/attach/client.h"

/* ---- who is admitted ---- */

static void test_folder_and_files(void **state) {
  struct stat s;
  char path[340];
  (void)state;
  assert_int_equal(stat(folder, &s), 0);
  assert_int_equal(s.st_mode & 0777, 0700);
  snprintf(path, sizeof path, "%s/token", folder);
  assert_int_equal(stat(path, &s), 0);
  assert_int_equal(s.st_mode & 0777, 0600);
  snprintf(path, sizeof path, "%s/rank0", folder);
  assert_int_equal(stat(path, &s), 0);
  assert_true(S_ISSOCK(s.st_mode));
  assert_int_equal(s.st_mode & 0777, 0600);
  snprintf(path, sizeof path, "%s/rank0.json", folder);
  char *text = ac_test_read(path, NULL), pid[40];
  snprintf(pid, sizeof pid, "\"pid\":%d", (int)getpid());
  assert_non_null(strstr(text, pid));
  free(text);
}

/* Names of files may be any bytes. The description is JSON, which ps and top read. */
static void test_names_that_are_not_utf_8(void **state) {
  (void)state;
  char path[340];
  ac_err e;
  ac_attach_options o = AC_ATTACH_OPTIONS_INIT;
  o.job = "bytes";
  o.ranks = 1;
  o.stacks = stacks;
  o.interrupt = interrupt;
  o.user = &interrupts;
  o.script = "n\xe9me \xc3\xa9 \033[31m.lua";
  ac_attach *a;
  assert_ok(ac_attach_open(&o, &a, &e), e);
  snprintf(path, sizeof path, "%s/../%s/rank0.json", folder, ac_attach_job(a));
  char *text = ac_test_read(path, NULL);
  ac_test_contains(text, "\"script\":\"n\\\\xe9me \xc3\xa9 \\\\x1b[31m.lua\"", __FILE__, __LINE__);
  free(text);
  ac_attach_close(a);
}

static void test_ranks_share_a_token(void **state) {
  ac_attach *second;
  ac_err e;
  (void)state;
  assert_ok(open_service("job", 1, &second, &e), e);
  assert_string_equal(ac_attach_job(second), ac_attach_job(service));
  const int fd = dial("rank1");
  admitted(fd); /* by the token of rank 0 */
  close(fd);
  ac_attach_close(second);
  struct stat s;
  char path[340];
  snprintf(path, sizeof path, "%s/token", folder);
  assert_int_equal(stat(path, &s), 0); /* rank 0 is still there */
}

static void test_open_to_others_is_refused(void **state) {
  ac_attach *a;
  ac_err e;
  char path[340];
  (void)state;
  snprintf(path, sizeof path, "%s/wide", runtime_dir);
  mkdir(path, 0700);
  setenv("XDG_RUNTIME_DIR", path, 1);
  snprintf(path, sizeof path, "%s/wide/accel", runtime_dir);
  mkdir(path, 0755);
  chmod(path, 0755);
  assert_fails(open_service("x", 0, &a, &e), STATE, "mode 0700", e);
  rmdir(path);
  assert_int_equal(symlink("/tmp", path), 0); /* a link to a folder of somebody else's */
  assert_fails(open_service("x", 0, &a, &e), IO, "cannot open", e);
  unlink(path);
  setenv("XDG_RUNTIME_DIR", runtime_dir, 1);
}

static void test_wrong_tokens(void **state) {
  const int tries = getenv("ACCEL_TEST_FULL") != NULL ? 100000 : 1000;
  uint64_t seed = 9;
  int in = 0;
  (void)state;
  for (int i = 0; i < tries; i++) {
    char hello[80] = "hello ";
    const int fd = dial("rank0");
    memcpy(hello + 6, token, 65);
    if (i % 3 == 0) hello[6 + ac_test_random(&seed) % 64] ^= 1; /* one bit */
    else if (i % 3 == 1) hello[6 + ac_test_random(&seed) % 64] = 0; /* cut off */
    else strcat(hello, "0");
    const char *answer = ask(fd, hello);
    if (strcmp(answer, "denied") != 0) in++;
    else assert_string_equal(ask(fd, "status"), ""); /* and the end */
    close(fd);
  }
  assert_int_equal(in, 0);
}

static void test_other_user(void **state) {
  (void)state;
  if (geteuid() != 0) skip(); /* only root can be another user */
  chmod(runtime_dir, 0711);
  char path[340], accel[340];
  snprintf(accel, sizeof accel, "%s/accel", runtime_dir);
  snprintf(path, sizeof path, "%s/rank0", folder);
  /* as it is: the folder keeps others out */
  for (int open_doors = 0; open_doors < 2; open_doors++) {
    if (open_doors) { /* even if it did not, the peer's user does not match */
      chmod(accel, 0777), chmod(folder, 0777), chmod(path, 0666);
    }
    const pid_t pid = fork();
    if (pid == 0) {
      int in = 0;
      if (setresuid(65534, 65534, 65534) != 0) _exit(99);
      for (int i = 0; i < 500; i++) {
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        snprintf(a.sun_path, sizeof a.sun_path, "%.100s", path);
        char hello[80];
        snprintf(hello, sizeof hello, "hello %s", token); /* it even knows the token */
        if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0 && strncmp(ask(fd, hello), "ok", 2) == 0) in++;
        close(fd);
      }
      _exit(in > 0);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  chmod(accel, 0700), chmod(folder, 0700), chmod(path, 0600);
}

/* ---- what is answered ---- */

static void test_requests(void **state) {
  (void)state;
  const int fd = dial("rank0");
  admitted(fd);
  assert_int_equal(ac_attach_step(service, 41), 0);
  assert_string_equal(ask(fd, "status"), "step 41");
  assert_string_equal(ask(fd, "stacks"), "  train.lua:3: in main chunk\n");
  assert_string_equal(ask(fd, "pause 50"), "no prompt");
  assert_string_equal(ask(fd, "fly"), "no such request");
  assert_string_equal(ask(fd, "pause x"), "no such request");
  assert_string_equal(ask(fd, "prompt 99"), "no such connection");
  const int silent = dial("rank0"); /* has no number yet */
  usleep(20000);
  assert_string_equal(ask(fd, "prompt 0"), "no such connection");
  close(fd), close(silent);
}

static void test_pause_and_stand(void **state) {
  int fd = -1;
  (void)state;
  char text[40];
  const int control = dial("rank0"), prompt = dial("rank0"), other = dial("rank0"), other_prompt = dial("rank0");
  const uint32_t id = admitted(control), other_id = admitted(other);
  admitted(prompt), admitted(other_prompt);
  assert_false(ac_attach_stand(service, &fd)); /* nobody is there */
  snprintf(text, sizeof text, "prompt %u", id);
  assert_string_equal(ask(prompt, text), "parked");
  snprintf(text, sizeof text, "prompt %u", other_id);
  assert_string_equal(ask(other_prompt, text), "busy");
  assert_string_equal(ask(other, "pause 100"), "no prompt"); /* it is not its own */
  ac_attach_step(service, 60);
  assert_string_equal(ask(control, "pause 60"), "late 60"); /* made already */
  assert_string_equal(ask(control, "pause 62"), "armed");
  assert_int_equal(ac_attach_step(service, 61), 0);
  assert_int_equal(ac_attach_step(service, 62), AC_ATTACH_PAUSE);
  assert_true(ac_attach_stand(service, &fd));
  assert_true(fd >= 0);
  assert_string_equal(ask(control, "status"), "paused 62");
  assert_string_equal(ask(control, "pause 70"), "late 62"); /* it stands */
  atomic_store(&interrupts, 0);
  assert_string_equal(ask(control, "interrupt"), "ok");
  assert_int_equal(atomic_load(&interrupts), 0); /* it stands, but evaluates nothing: the signal would be the script's */
  ac_attach_interruptible(service, true);
  assert_string_equal(ask(other, "interrupt"), "ok");
  assert_int_equal(atomic_load(&interrupts), 0); /* not for others */
  assert_string_equal(ask(control, "interrupt"), "ok");
  assert_int_equal(atomic_load(&interrupts), 1);
  ac_attach_interruptible(service, false);
  assert_string_equal(ask(control, "interrupt"), "ok");
  assert_int_equal(atomic_load(&interrupts), 1);
  /* the rank has the connection: bytes pass as they are */
  assert_int_equal(write(fd, "hi", 2), 2);
  char hi[2];
  assert_int_equal(read(prompt, hi, 2), 2);
  ac_attach_go(service, true);
  int again = -1;
  assert_true(ac_attach_stand(service, &again)); /* at a breakpoint: the caller has the connection */
  assert_int_equal(again, -1);
  ac_attach_go(service, true);
  assert_string_equal(ask(control, "pause 65"), "armed");
  assert_string_equal(ask(control, "cancel"), "ok");
  assert_int_equal(ac_attach_step(service, 65), 0);
  /* a pause that the rank has taken cannot be taken back: the client is told, and lets it continue */
  assert_string_equal(ask(control, "pause 66"), "armed");
  assert_int_equal(ac_attach_step(service, 66), AC_ATTACH_PAUSE);
  assert_string_equal(ask(control, "cancel"), "none");
  assert_true(ac_attach_stand(service, &again));
  assert_int_equal(again, -1);
  /* the client goes while the rank stands, which goes on as if it were there: told at its next step */
  ac_attach_go(service, true);
  assert_int_equal(ac_attach_step(service, 67), 0);
  assert_true(ac_attach_stand(service, &again));
  close(control);
  for (int i = 0; i < 200 && ac_attach_has_prompt(service); i++) usleep(10000);
  ac_attach_go(service, true);
  assert_int_equal(ac_attach_step(service, 68), AC_ATTACH_GONE);
  assert_int_equal(ac_attach_step(service, 69), 0);
  assert_string_equal(ask(other_prompt, text), "parked");
  close(other), close(other_prompt), close(prompt), close(fd);
  for (int i = 0; i < 200 && ac_attach_has_prompt(service); i++) usleep(10000);
  assert_false(ac_attach_has_prompt(service)); /* a parked prompt goes with its client */
  assert_int_equal(ac_attach_step(service, 70), 0);
}

/* The client of a prompt goes while the rank runs: told once, and another may come. */
static void test_client_gone(void **state) {
  (void)state;
  for (int turn = 0; turn < 2; turn++) {
    int fd = -1;
    char text[40];
    const int control = dial("rank0"), prompt = dial("rank0");
    snprintf(text, sizeof text, "prompt %u", admitted(control));
    admitted(prompt);
    assert_string_equal(ask(prompt, text), "parked");
    assert_true(ac_attach_stand(service, &fd));
    assert_true(fd >= 0);
    ac_attach_go(service, true);
    close(control);
    for (int i = 0; i < 200 && ac_attach_has_prompt(service); i++) usleep(10000);
    assert_int_equal(ac_attach_step(service, 71), AC_ATTACH_GONE);
    assert_int_equal(ac_attach_step(service, 72), 0);
    close(prompt), close(fd);
  }
}

static void *park_later(void *arg) {
  const int *fd = arg;
  char text[40];
  usleep(50000);
  snprintf(text, sizeof text, "prompt %u", admitted(fd[0]));
  admitted(fd[1]);
  put(fd[1], text);
  return NULL;
}

static void test_wait_for_a_client(void **state) {
  pthread_t t;
  int fd[2] = {dial("rank0"), dial("rank0")}, got = -1;
  (void)state;
  assert_false(ac_attach_wait(service, 0.02));
  pthread_create(&t, NULL, park_later, fd);
  assert_true(ac_attach_wait(service, 10));
  pthread_join(t, NULL);
  assert_true(ac_attach_stand(service, &got));
  assert_true(got >= 0);
  ac_attach_go(service, false);
  close(got), close(fd[0]), close(fd[1]);
}

/* ---- bad clients ---- */

static void test_garbage(void **state) {
  uint64_t seed = 5;
  (void)state;
  for (int i = 0; i < 500; i++) {
    unsigned char bytes[256];
    const int fd = dial("rank0");
    if (i % 2 == 0) admitted(fd);
    const size_t n = ac_test_random(&seed) % sizeof bytes;
    for (size_t k = 0; k < n; k++) bytes[k] = (unsigned char)ac_test_random(&seed);
    if (i % 3 == 0 && n >= 4) bytes[2] = bytes[3] = 0; /* a length that fits */
    ssize_t k = write(fd, bytes, n);
    (void)k;
    if (i % 5 == 0) shutdown(fd, SHUT_WR);
    close(fd);
  }
  const int fd = dial("rank0");
  admitted(fd);
  assert_string_equal(ask(fd, "stacks"), "  train.lua:3: in main chunk\n");
  close(fd);
}

/* Silent ones make room for the next client, and end after two seconds, ones that do not read are dropped, and others are served meanwhile. */
static void test_slow_clients(void **state) {
  int silent[15];
  (void)state;
  const int good = dial("rank0");
  admitted(good);
  for (int i = 0; i < 15; i++) silent[i] = dial("rank0");
  assert_string_equal(ask(good, "stacks"), "  train.lua:3: in main chunk\n");
  enum { CROWD = 100 };
  int crowd[CROWD];
  for (int i = 0; i < CROWD; i++) crowd[i] = dial("rank0"); /* these displace the silent ones, and each other */
  const int one_more = dial("rank0");
  admitted(one_more);
  assert_string_equal(ask(one_more, "stacks"), "  train.lua:3: in main chunk\n");
  close(one_more);
  usleep(2700000);
  for (int i = 0; i < CROWD; i++) assert_string_equal(get(crowd[i]), ""), close(crowd[i]);
  for (int i = 0; i < 15; i++) assert_string_equal(get(silent[i]), "");
  const int flood = dial("rank0");
  admitted(flood);
  fcntl(flood, F_SETFL, O_NONBLOCK);
  struct timespec began, now;
  clock_gettime(CLOCK_MONOTONIC, &began);
  bool dropped = false;
  do {
    const unsigned char ask_stacks[10] = {6, 0, 0, 0, 's', 't', 'a', 'c', 'k', 's'};
    const ssize_t k = send(flood, ask_stacks, sizeof ask_stacks, MSG_NOSIGNAL);
    dropped = k < 0 && errno != EAGAIN;
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while (!dropped && now.tv_sec - began.tv_sec < 10);
  assert_true(dropped);
  assert_string_equal(ask(good, "stacks"), "  train.lua:3: in main chunk\n");
  close(flood), close(good);
  for (int i = 0; i < 15; i++) close(silent[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_folder_and_files), cmocka_unit_test(test_names_that_are_not_utf_8),
      cmocka_unit_test(test_ranks_share_a_token), cmocka_unit_test(test_open_to_others_is_refused),
      cmocka_unit_test(test_wrong_tokens),       cmocka_unit_test(test_other_user),          cmocka_unit_test(test_requests),
      cmocka_unit_test(test_pause_and_stand),    cmocka_unit_test(test_wait_for_a_client),   cmocka_unit_test(test_garbage),
      cmocka_unit_test(test_slow_clients),      cmocka_unit_test(test_client_gone),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
