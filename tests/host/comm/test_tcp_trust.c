/* A job of two machines whose port strangers reach, from the packet that ended a job to floods: the job starts as if nobody were there,
 * and nobody learns anything or gets in.
 * tier: sampled, memory
 * 300 connections of each kind in a sample, 10,000 in a full run. */
#include "host/comm/tcp_ranks.h"

#include <poll.h>
#include <sys/resource.h>

#include "comm/tcp/auth.h"
#include "comm/tcp/rendezvous.h"

typedef struct notes {
  _Atomic int warnings; /* of rank 0 */
  _Atomic int opened, go;
  aci_peer_info infos[2];
} notes;
static notes *seen;
static rlim_t most_files; /* of rank 0; 0: as many as we may */

static void count(void *user, ac_log_level level, const char *area, const char *text) {
  (void)user, (void)area;
  if (level >= AC_LOG_WARN && strstr(text, "closed a connection") != NULL) atomic_fetch_add(&seen->warnings, 1);
}

/* A rank of its own process. secret: NULL the job's. */
static pid_t start_rank(int me, int port, const char *secret, const char *timeout) {
  fflush(NULL);
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid != 0) return pid;
  tcp_ranks t = {.n = 2, .machines = 2, .timeout = timeout, .port = port};
  alarm(100);
  self = (rank){.me = me, .n = 2};
  tcp_env(&t, me);
  if (me == 0 && most_files > 0) setrlimit(RLIMIT_NOFILE, &(struct rlimit){most_files, most_files});
  setenv("TORCHELASTIC_RUN_ID", "trust", 1);
  if (secret != NULL) setenv("ACCEL_JOB_SECRET", secret, 1);
  if (me == 0) ac_log_set(count, NULL, AC_LOG_WARN);
  const ac_world_options o = tcp_options();
  CHECK_OK(ac_ctx_new(NULL, &self.ctx, E_));
  ac_err e;
  e.msg[0] = 0;
  const double began = seconds();
  const ac_status st = ac_world_open(self.ctx, &o, &self.w, &e);
  shared->seconds[me] = seconds() - began;
  shared->code[me] = st;
  memcpy(shared->text[me], e.msg, sizeof e.msg);
  if (st == AC_OK) {
    const ac_coll c = {.kind = AC_COLL_BARRIER, .site = "t.lua:1"};
    CHECK_OK(ac_collective(ac_world_group(self.w), &c, E_));
    ac_world_close(self.w, NULL);
  }
  ac_ctx_free(self.ctx);
  exit(0);
}

static void end(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static long hostile; /* connections of strangers */

static int dial(int port) {
  char why[64];
  hostile++;
  for (int i = 0; i < 400; i++) {
    const int fd = aci_socket_dial("127.0.0.1", port, why, sizeof why);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if (fd >= 0 && poll(&p, 1, 1000) > 0 && aci_socket_error(fd) == 0) return fd;
    if (fd >= 0) close(fd);
    sleep_ms(5);
  }
  fail_msg("nobody listens at %d: %s", port, why);
  return -1;
}

/* Everything that the other end says until it closes the connection. */
static size_t listen_to(int fd, char *to, size_t n) {
  size_t got = 0;
  struct pollfd p = {.fd = fd, .events = POLLIN};
  while (got < n && poll(&p, 1, 3000) > 0) {
    const ssize_t k = recv(fd, to + got, n - got, 0);
    if (k <= 0) return got;
    got += (size_t)k;
  }
  fail_msg("the connection stays open");
  return got;
}

typedef void (*attack_fn)(int port);

/* Rank 0 is attacked while it waits; then rank 1 comes. */
static void attacked(attack_fn attack) {
  memset(shared, 0, sizeof *shared);
  memset(shared->code, -1, sizeof shared->code);
  atomic_store(&seen->warnings, 0);
  const int port = free_port();
  const pid_t zero = start_rank(0, port, NULL, "30");
  close(dial(port)); /* it listens */
  attack(port);
  assert_int_equal((int)shared->code[0], -1); /* it still waits */
  const pid_t one = start_rank(1, port, NULL, "30");
  end(zero);
  end(one);
  for (int r = 0; r < 2; r++) expect(r, AC_OK, 20, (const char *const[]){NULL});
  if (shared->seconds[1] > 2) ac_test_late("rank 1 beside strangers", shared->seconds[1]);
  assert_int_equal(atomic_load(&seen->warnings), 1); /* reported once */
}

/* ---- one packet of the old protocol, and infos that do not fit ---- */
static void packets(int port) {
  for (int kind = 0; kind < 6; kind++) {
    aci_rv_hello h = {.info = {.order = 0x01020304, .protocol = ACI_PROTOCOL, .rank = 1, .size = 2, .pid = 1, .version = "0.1.0",
                               .host = "evil", .run_id = "trust"}};
    memcpy(h.magic, kind == 4 ? "GET / HT" : ACI_RV_MAGIC, 8);
    memcpy(h.info.magic, "accelcd1", 8);
    if (kind == 1) h.info.size = 3;
    if (kind == 2) snprintf(h.info.version, sizeof h.info.version, "9.9.9");
    if (kind == 3) h.info.protocol = 99;
    if (kind == 5) memset(&h, 0, sizeof h);
    char said[4096];
    const int fd = dial(port);
    assert_int_equal(send(fd, &h, sizeof h, MSG_NOSIGNAL), sizeof h);
    const size_t n = listen_to(fd, said, sizeof said);
    assert_true(n == ACI_CHALLENGE || n == 0); /* nonce and generation, no reason and no name */
    close(fd);
  }
}

/* ---- the right handshake without the secret, cut at each byte, then with something in its place ---- */
static void halves(int port) {
  for (int at = 0; at <= ACI_RESPONSE; at += 4) {
    uint8_t m[ACI_RESPONSE] = "accelau1", said[200];
    m[9] = ACI_FOR_RENDEZVOUS;
    m[12] = 1;
    const int fd = dial(port);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_true(poll(&p, 1, 3000) > 0 && recv(fd, said, ACI_CHALLENGE, 0) == ACI_CHALLENGE);
    memcpy(m + 24, said + 16, ACI_NONCE); /* its own nonce back */
    assert_int_equal(send(fd, m, (size_t)at, MSG_NOSIGNAL), at);
    if (at < ACI_RESPONSE) shutdown(fd, SHUT_WR);
    assert_int_equal(listen_to(fd, (char *)said, sizeof said), 0);
    close(fd);
  }
}

/* ---- a rank that has another secret ---- */
static void thief(int port) {
  const pid_t pid = start_rank(1, port, "another one", "20");
  end(pid);
  EXPECT(1, PEER, 5, "rank 1 cannot join rank 0 at 127.0.0.1:", "does not accept the secret", "job trust", "ACCEL_JOB_SECRET",
         "--job-secret-file");
}

/* ---- more connections than places ---- */
static int crowd(void) { return getenv("ACCEL_TEST_FULL") != NULL ? 10000 : 300; }

static void idle(int port) {
  enum { OPEN = 400 };
  int fd[OPEN], n = crowd();
  for (int i = 0; i < OPEN; i++) fd[i] = -1;
  for (int i = 0; i < n; i++) {
    const int k = i % OPEN;
    if (fd[k] >= 0) close(fd[k]);
    fd[k] = dial(port);
  }
  /* left open until this process ends or dials again: rank 1 comes beside them */
  static int left[OPEN];
  for (int i = 0; i < OPEN; i++) {
    if (left[i] > 0) close(left[i]);
    left[i] = fd[i];
  }
}

static void packet(void **state) { attacked(packets); }
static void cut(void **state) { attacked(halves); }
static void steal(void **state) { attacked(thief); }
static void loris(void **state) { attacked(idle); }

/* Strangers come again as soon as they are sent away, before, while and after the ranks meet. */
static void flood(void **state) {
  memset(shared, 0, sizeof *shared);
  const int port = free_port();
  const double began = seconds();
  const pid_t zero = start_rank(0, port, NULL, "30");
  close(dial(port));
  fflush(NULL);
  const pid_t attacker = fork();
  if (attacker == 0) {
    char why[64];
    int fds[64], n = 0;
    memset(fds, -1, sizeof fds);
    for (int i = 0; i < crowd(); i++, n++) {
      const int k = i % 64;
      if (fds[k] >= 0) close(fds[k]);
      fds[k] = aci_socket_dial("127.0.0.1", port, why, sizeof why);
      if (fds[k] >= 0 && i % 3 == 0) (void)!send(fds[k], "accelau1 and more", 17, MSG_NOSIGNAL);
    }
    _exit(0);
  }
  const pid_t one = start_rank(1, port, NULL, "30");
  end(one);
  end(zero);
  int status;
  waitpid(attacker, &status, 0);
  for (int r = 0; r < 2; r++) expect(r, AC_OK, 20, (const char *const[]){NULL});
  hostile += crowd();
  print_message("%d connections, the ranks met after %.3f s of %.3f s\n", crowd(), shared->seconds[1], seconds() - began);
}

/* ---- links: two meshes whose infos went another way, as with MPI ---- */
static pid_t start_mesh(int me, const uint8_t *key, int64_t timeout_ns) {
  fflush(NULL);
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid != 0) return pid;
  static ac_world w;
  aci_mesh *m;
  ac_err e;
  alarm(60);
  w.place = (aci_place){.rank = me, .size = 2, .local_size = 1, .machines = 2, .machine = me, .run_id = "links"};
  w.timeout_ns = timeout_ns;
  if (me == 0) ac_log_set(count, NULL, AC_LOG_WARN);
  else ac_log_set(NULL, NULL, AC_LOG_OFF);
  if (aci_mesh_open(&w, "127.0.0.1", &m, &seen->infos[me], &e) != AC_OK) _exit(1);
  aci_mesh_set_key(m, key);
  atomic_fetch_add(&seen->opened, 1);
  while (atomic_load(&seen->go) == 0) sleep_ms(1);
  e.msg[0] = 0;
  shared->code[me] = aci_mesh_connect(m, seen->infos, &e);
  memcpy(shared->text[me], e.msg, sizeof e.msg);
  static const uint8_t wiped[ACI_HMAC];
  if (memcmp(m->key.key, wiped, sizeof wiped) != 0) _exit(2); /* linked ranks need no key */
  aci_mesh_close(m, NULL);
  _exit(0);
}

static void linked(const uint8_t *key_of_1, int64_t timeout_ns, ac_status code) {
  static const uint8_t key[ACI_HMAC] = {5, 6, 7};
  static const char *const says[] = {"", "accelms", "accelau1", "GET / HTTP/1.1\r\n\r\n"};
  enum { STRANGERS = 300 };
  int fd[STRANGERS];
  memset(shared, 0, sizeof *shared);
  memset(seen, 0, sizeof *seen);
  const pid_t zero = start_mesh(0, key, timeout_ns), one = start_mesh(1, key_of_1 != NULL ? key_of_1 : key, timeout_ns);
  while (atomic_load(&seen->opened) < 2) sleep_ms(1);
  for (int i = 0; i < STRANGERS; i++) {
    const char *text = says[i % 4];
    fd[i] = dial(seen->infos[0].port);
    assert_int_equal(send(fd[i], text, strlen(text), MSG_NOSIGNAL), strlen(text));
  }
  atomic_store(&seen->go, 1);
  end(zero);
  end(one);
  for (int i = 0; i < STRANGERS; i++) close(fd[i]);
  for (int r = 0; r < 2; r++) expect(r, code, 10, (const char *const[]){NULL});
  assert_int_equal(atomic_load(&seen->warnings), 1);
}

/* Rank 0 has fewer descriptors than its door has places: those who came first give way, not one who came last and may be about to answer. */
static void silent(int port) {
  enum { FIRST = 100, OPEN = 120 };
  static int fd[OPEN];
  uint8_t m[ACI_CHALLENGE];
  for (int i = 0; i < FIRST; i++) fd[i] = dial(port);
  const int peer = dial(port);
  size_t n = 0;
  for (ssize_t k; n < sizeof m && (k = recv(peer, m + n, sizeof m - n, 0)) != 0;) {
    if (k > 0) n += (size_t)k;
    else sleep_ms(1);
  }
  assert_int_equal(n, sizeof m);
  for (int i = FIRST; i < OPEN; i++) {
    fd[i] = dial(port);
    sleep_ms(1);
  }
  sleep_ms(20);
  assert_int_equal(recv(peer, m, sizeof m, 0), -1); /* it still waits for an answer */
  assert_true(errno == EAGAIN || errno == EWOULDBLOCK);
  close(peer);
  for (int i = FIRST; i < OPEN; i++) close(fd[i]);
  for (int i = 0; i < FIRST; i++) close(fd[i]);
}

static void scarce(void **state) {
  most_files = 80;
  attacked(silent);
  most_files = 0;
}

static void links(void **state) {
  static const uint8_t other[ACI_HMAC] = {5, 6, 8};
  linked(NULL, 10000000000, AC_OK);
  linked(other, 500000000, AC_PEER);
  ac_test_contains(shared->text[1], "it does not accept the secret of this machine", __FILE__, __LINE__);
}

int main(void) {
  const char *version;
  ac_err e;
  if (aci_hmac_library(&version, &e) != AC_OK) {
    printf("skipped: %s\n", e.msg);
    return 77;
  }
  seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(seen != MAP_FAILED);
  const struct CMUnitTest tests[] = {AC_TEST_TIMED(packet), AC_TEST_TIMED(cut), AC_TEST_TIMED(steal), AC_TEST_TIMED(scarce), AC_TEST_TIMED(loris),
                                     AC_TEST_TIMED(flood), cmocka_unit_test(links)};
  const int failed = cmocka_run_group_tests(tests, setup, teardown);
  if (failed == 0) printf("%ld hostile connections, none accepted\n", hostile);
  return failed;
}
