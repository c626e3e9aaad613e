/* How ranks find each other over TCP: slow starters, strangers on the port, and everything that does not
 * fit, each told in one line on the ranks it concerns. */
#include "host/comm/tcp_ranks.h"

#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>

#include "comm/tcp/rendezvous.h"

static char script_paths[2][256];
static bool no_resolver; /* names are not found, as where /etc/hosts is empty */
#define OWN_NAME "name-of-this-machine" /* /etc/hosts has it as the loopback */
static _Atomic int *everywhere;          /* sockets that were bound to all interfaces */

int bind(int fd, __CONST_SOCKADDR_ARG to, socklen_t n) {
  int (*real)(int, const struct sockaddr *, socklen_t);
  const struct sockaddr *a = to.__sockaddr__;
  void *symbol = dlsym(RTLD_NEXT, "bind");
  memcpy(&real, &symbol, sizeof real);
  const struct sockaddr_in *four = (const void *)a;
  const struct sockaddr_in6 *six = (const void *)a;
  const bool any = (a->sa_family == AF_INET && four->sin_addr.s_addr == htonl(INADDR_ANY)) ||
                   (a->sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr));
  if (any && everywhere != NULL) atomic_fetch_add(everywhere, 1);
  return real(fd, a, n);
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **all) {
  int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
  void *symbol = dlsym(RTLD_NEXT, "getaddrinfo");
  memcpy(&real, &symbol, sizeof real);
  struct addrinfo numeric = hints != NULL ? *hints : (struct addrinfo){0};
  if (no_resolver) numeric.ai_flags |= AI_NUMERICHOST;
  if (name != NULL && strcmp(name, OWN_NAME) == 0) name = "127.0.0.1";
  return real(name, service, &numeric, all);
}

static void write_scripts(void) {
  static const char *const names[2] = {"one.lua", "other.lua"};
  for (int i = 0; i < 2; i++) {
    char *p = ac_test_tmp_path(names[i]);
    snprintf(script_paths[i], sizeof script_paths[i], "%s", p);
    ac_test_write(p, i == 0 ? "print(1)" : "print(2)", 8);
    free(p);
  }
}

typedef struct join_case {
  int machines, delay_ms, delayed; /* rank `delayed` starts late */
  int size_of_1, rank_of_1;        /* what rank 1 says instead, if not 0 */
  bool other_script;               /* rank 1's */
  const char *address, *timeout, *run_id_of_1;
  int port;
  bool absent_0;
} join_case;

/* Joins and notes what came of it. */
static void join_and_note(int me, int n, const join_case *k, int port) {
  tcp_ranks t = {.n = n, .machines = k->machines, .address = k->address, .timeout = k->timeout, .port = port};
  alarm(60);
  self = (rank){.me = me, .n = n};
  tcp_env(&t, me);
  setenv("TORCHELASTIC_RUN_ID", "job-a", 1);
  if (me == 1 && k->size_of_1 > 0)
    env_int("WORLD_SIZE", k->size_of_1), env_int("LOCAL_WORLD_SIZE", k->size_of_1);
  if (me == 1 && k->rank_of_1 > 0) env_int("RANK", k->rank_of_1), env_int("LOCAL_RANK", k->rank_of_1);
  if (me == 1 && k->run_id_of_1 != NULL) setenv("TORCHELASTIC_RUN_ID", k->run_id_of_1, 1);
  if (me == k->delayed && k->delay_ms > 0) sleep_ms(k->delay_ms);
  ac_world_options o = tcp_options();
  o.script = script_paths[me == 1 && k->other_script];
  CHECK_OK(ac_ctx_new(NULL, &self.ctx, E_));
  ac_err e;
  e.msg[0] = 0;
  const double began = seconds();
  shared->code[me] = ac_world_open(self.ctx, &o, &self.w, &e);
  shared->seconds[me] = seconds() - began;
  memcpy(shared->text[me], e.msg, sizeof e.msg);
  if (shared->code[me] == AC_OK) {
    const ac_coll c = {.kind = AC_COLL_BARRIER, .site = "j.lua:1"};
    CHECK_OK(ac_collective(ac_world_group(self.w), &c, E_));
    ac_world_close(self.w, NULL);
  }
  ac_ctx_free(self.ctx);
  exit(0);
}

static void start_joining(int n, const join_case *k, pid_t *pid, int port) {
  memset(shared, 0, sizeof *shared);
  memset(shared->code, -1, sizeof shared->code);
  fflush(NULL);
  for (int i = 0; i < n; i++) {
    pid[i] = 0;
    if (i == 0 && k->absent_0) continue;
    pid[i] = fork();
    assert_true(pid[i] >= 0);
    if (pid[i] == 0) join_and_note(i, n, k, port);
  }
}

static void wait_all(int n, const pid_t *pid) {
  for (int i = 0; i < n; i++) {
    int status = 0;
    if (pid[i] == 0) continue;
    while (waitpid(pid[i], &status, 0) < 0 && errno == EINTR) {
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

static void join_all(int n, const join_case *k) {
  pid_t pid[MOST];
  start_joining(n, k, pid, k->port != 0 ? k->port : free_port());
  wait_all(n, pid);
}

static void all_joined(int n, double within) {
  for (int i = 0; i < n; i++) expect(i, AC_OK, within, (const char *const[]){NULL});
}

/* ---- well ---- */
static void joins(void **state) {
  for (int n = 1; n <= 7; n += 2) {
    join_all(n, &(join_case){0});
    all_joined(n, 2);
  }
}

static void slow_starters(void **state) {
  for (int late = 0; late < 3; late++) {
    join_all(3, &(join_case){.delay_ms = 700, .delayed = late});
    all_joined(3, 3);
  }
}

/* Ranks listen at the loopback where the loopback was asked for, also as several machines. Only a host name that /etc/hosts of this machine
 * maps to the loopback, and those of others do not, makes them listen on all interfaces. */
static void loopback_of_several_machines(void **state) {
  static const char *const asked[] = {"127.0.0.1", "localhost", OWN_NAME};
  for (int i = 0; i < 3; i++) {
    atomic_store(everywhere, 0);
    join_all(4, &(join_case){.machines = 2, .address = asked[i]});
    all_joined(4, 2);
    assert_int_equal(atomic_load(everywhere) > 0, i == 2);
  }
}

/* The loopback is found without a resolver, however it is written. */
static void without_resolver(void **state) {
  char why[64];
  const int fd = aci_socket_listen("::1", 0, NULL, why, sizeof why);
  static const char *const names[] = {"localhost", "LocalHost", "127.0.0.1", "::1", "[::1]"};
  const size_t n = fd >= 0 ? sizeof names / sizeof names[0] : 3; /* IPv6 may be missing */
  if (fd >= 0) close(fd);
  no_resolver = true;
  for (size_t i = 0; i < n; i++) {
    join_all(2, &(join_case){.address = names[i]});
    all_joined(2, 2);
  }
  join_all(2, &(join_case){.machines = 2, .address = "localhost"});
  all_joined(2, 2);
  no_resolver = false;
}

static void six(void **state) {
  char why[64];
  int fd = aci_socket_listen("::1", 0, NULL, why, sizeof why);
  if (fd < 0) skip(); /* no IPv6 here */
  close(fd);
  join_all(3, &(join_case){.address = "::1"});
  all_joined(3, 2);
}

static int dial_port(int port) {
  char why[64];
  for (int i = 0; i < 200; i++) {
    int fd = aci_socket_dial("127.0.0.1", port, why, sizeof why);
    sleep_ms(5);
    if (fd >= 0 && aci_socket_error(fd) == 0) return fd;
    if (fd >= 0) close(fd);
  }
  fail_msg("nobody listens at %d: %s", port, why);
  return -1;
}

static void strangers(void **state) {
  pid_t pid[MOST];
  const int port = free_port();
  const join_case k = {.delay_ms = 1000, .delayed = 2};
  static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  unsigned char noise[4096];
  uint64_t seed = 7;
  start_joining(3, &k, pid, port);
  int fds[40];
  for (int i = 0; i < 40; i++) {
    fds[i] = dial_port(port);
    for (size_t b = 0; b < sizeof noise; b++) noise[b] = (unsigned char)ac_test_random(&seed);
    if (i % 4 == 1) assert_true(send(fds[i], http, sizeof http, MSG_NOSIGNAL) > 0);
    if (i % 4 == 2) assert_true(send(fds[i], noise, sizeof noise, MSG_NOSIGNAL) > 0);
    if (i % 4 == 3) assert_true(send(fds[i], "accelau1", 8, MSG_NOSIGNAL) > 0); /* begins like a rank */
  }
  wait_all(3, pid);
  for (int i = 0; i < 40; i++) close(fds[i]);
  all_joined(3, 3);
}

/* ---- what does not fit ---- */
static void other_script(void **state) {
  join_all(3, &(join_case){.other_script = true});
  for (int r = 0; r < 3; r++) EXPECT(r, MISMATCH, 2, "one.lua", "other.lua", "rank 0 (", "rank 1 (");
}

static void other_size(void **state) {
  join_all(3, &(join_case){.size_of_1 = 5});
  for (int r = 0; r < 3; r++) EXPECT(r, MISMATCH, 2, "rank 0", "counts 3 ranks", "rank 1", "counts 5");
}

static void same_rank_twice(void **state) {
  join_all(4, &(join_case){.rank_of_1 = 2});
  for (int r = 0; r < 4; r++) EXPECT(r, MISMATCH, 2, "two processes are rank 2", "--machine_rank");
}

static void other_job(void **state) {
  pid_t pid[MOST];
  const int port = free_port();
  const join_case k = {.run_id_of_1 = "job-b"};
  start_joining(2, &k, pid, port);
  int status;
  assert_true(waitpid(pid[1], &status, 0) == pid[1]);
  EXPECT(1, PEER, 3, "rank 1 cannot join rank 0", "job job-b", "ACCEL_JOB_SECRET", "--run-id");
  assert_int_equal((int)shared->code[0], -1); /* waits for its own */
  pid[1] = fork();
  if (pid[1] == 0) join_and_note(1, 2, &(join_case){0}, port);
  wait_all(2, pid);
  all_joined(2, 3);
}

/* As a rank does that knows the secret. */
static void authenticate_by_hand(int fd) {
  static const char secret[] = "the secret of the tests", run_id[] = "job-a";
  uint8_t key[ACI_HMAC];
  ac_err e;
  size_t taken;
  aci_auth a = {.key = key, .run_id = run_id, .purpose = ACI_FOR_RENDEZVOUS, .from = 1, .world = 2};
  assert_ok(aci_hmac(secret, strlen(secret), run_id, strlen(run_id), key, &e), e);
  for (;;) {
    const aci_auth_state s = aci_auth_step(&a, fd, &taken);
    if (s == ACI_AUTH_DONE) return;
    if (s == ACI_AUTH_FAILED) fail_msg("%s", aci_auth_why(&a));
    sleep_ms(1);
  }
}

/* A rank of another version that knows the secret: only then it learns why it is refused, and ends the job. */
static void other_version(void **state) {
  pid_t pid[MOST];
  const int port = free_port();
  for (int protocol = 0; protocol < 2; protocol++) {
    start_joining(1, &(join_case){0}, pid, port); /* the child believes in a world of two */
    kill(pid[0], SIGKILL);
    waitpid(pid[0], NULL, 0);
    fflush(NULL);
    if ((pid[0] = fork()) == 0) join_and_note(0, 2, &(join_case){0}, port);
    int fd = dial_port(port);
    aci_rv_hello h = {.info = {.order = 0x01020304,
                               .protocol = ACI_PROTOCOL + (uint32_t)protocol,
                               .rank = 1,
                               .size = 2,
                               .pid = 77,
                               .version = "99.0",
                               .host = "far\033away",
                               .run_id = "job-a"}};
    memcpy(h.magic, ACI_RV_MAGIC, 8);
    memcpy(h.info.magic, "accelcd1", 8);
    authenticate_by_hand(fd);
    assert_true(send(fd, &h, sizeof h, MSG_NOSIGNAL) == (ssize_t)sizeof h);
    struct {
      aci_rv_head head;
      char text[ACI_RV_TEXT];
    } answer;
    memset(&answer, 0, sizeof answer);
    for (size_t got = 0; got < sizeof answer;) {
      const ssize_t n = recv(fd, (char *)&answer + got, sizeof answer - got, 0);
      if (n > 0) got += (size_t)n;
      else if (n == 0 || errno != EAGAIN) break;
      else sleep_ms(1);
    }
    close(fd);
    wait_all(1, pid);
    assert_int_equal(answer.head.kind, ACI_RV_REFUSED);
    if (protocol == 0)
      EXPECT(0, MISMATCH, 2, "rank 1 (far?away:77) runs accel 99.0", "rank 0 (", "install the same");
    else EXPECT(0, MISMATCH, 2, "another protocol");
    assert_string_equal(answer.text, shared->text[0]);
  }
}

/* ---- addresses ---- */
static void port_taken(void **state) {
  int port = 0;
  char why[64];
  int fd = aci_socket_listen("127.0.0.1", 0, &port, why, sizeof why);
  assert_true(fd >= 0);
  char part[64];
  snprintf(part, sizeof part, "127.0.0.1:%d", port);
  pid_t pid[MOST];
  start_joining(1, &(join_case){0}, pid, port);
  wait_all(1, pid);
  fflush(NULL);
  if ((pid[0] = fork()) == 0) join_and_note(0, 2, &(join_case){0}, port);
  wait_all(1, pid);
  EXPECT(0, IO, 1, part, "another program has the port", "--main_process_port");
  close(fd);
}

static void no_such_address(void **state) {
  join_all(2, &(join_case){.address = "192.0.2.7", .timeout = "0.5"}); /* of documentation: nobody's */
  EXPECT(0, IO, 1, "192.0.2.7:", "does not have the address", "--main_process_ip");
  EXPECT(1, PEER, 10, "rank 1 cannot reach rank 0 at 192.0.2.7:");
}

static void no_such_name(void **state) {
  join_all(2, &(join_case){.address = "no-such-host.invalid", .timeout = "1"});
  EXPECT(0, IO, 8, "no-such-host.invalid:", "--main_process_ip");
  EXPECT(1, PEER, 8, "no-such-host.invalid:", "--main_process_ip");
}

static void port_0(void **state) {
  pid_t pid[MOST];
  start_joining(2, &(join_case){0}, pid, 0);
  wait_all(2, pid);
  for (int r = 0; r < 2; r++) EXPECT(r, INVALID, 1, "port 0", "--main_process_port");
}

static void nobody_there(void **state) {
  join_all(3, &(join_case){.absent_0 = true, .timeout = "0.6"});
  for (int r = 1; r < 3; r++)
    EXPECT(r, PEER, 2, "cannot reach rank 0 at 127.0.0.1:", "Connection refused", "check that rank 0 runs");
}

static void one_never_comes(void **state) {
  pid_t pid[MOST];
  const int port = free_port();
  const join_case k = {.timeout = "0.6"};
  start_joining(2, &k, pid, port);
  for (int i = 0; i < 2; i++) {
    kill(pid[i], SIGKILL);
    waitpid(pid[i], NULL, 0);
  }
  fflush(NULL);
  for (int i = 0; i < 2; i++)
    if ((pid[i] = fork()) == 0) join_and_note(i, 4, &k, port);
  wait_all(2, pid);
  for (int r = 0; r < 2; r++) EXPECT(r, TIMEOUT, 2, "waited", "ranks 2, 3 of 4", "127.0.0.1:");
}

int main(void) {
  write_scripts();
  everywhere = mmap(NULL, sizeof *everywhere, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(everywhere != MAP_FAILED);
  const struct CMUnitTest tests[] = {
      AC_TEST_TIMED(joins),
      AC_TEST_TIMED(slow_starters),
      AC_TEST_TIMED(loopback_of_several_machines),
      AC_TEST_TIMED(without_resolver),
      AC_TEST_TIMED(six),
      AC_TEST_TIMED(strangers),
      AC_TEST_TIMED(other_script),
      AC_TEST_TIMED(other_size),
      AC_TEST_TIMED(same_rank_twice),
      AC_TEST_TIMED(other_job),
      AC_TEST_TIMED(other_version),
      AC_TEST_TIMED(port_taken),
      AC_TEST_TIMED(no_such_address),
      AC_TEST_TIMED(no_such_name),
      AC_TEST_TIMED(port_0),
      AC_TEST_TIMED(nobody_there),
      AC_TEST_TIMED(one_never_comes),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
