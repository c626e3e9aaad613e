/* The mpi backend under mpirun: this program starts itself as the ranks of small jobs, one case each, and reads what
 * they print. Skipped where mpirun or accel_mpi.so is missing. tier: sampled */
#include "support/test.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "accel/comm.h"
#include "base/base_impl.h"
#include "base/vmath.h"

/* ======== as a rank ======== */
/* In the case "unable" one rank has no libcrypto. */
void *dlopen(const char *file, int mode) {
  void *(*real)(const char *, int);
  void *symbol = dlsym(RTLD_NEXT, "dlopen");
  memcpy(&real, &symbol, sizeof real);
  const char *what = getenv("ACCEL_TEST_CASE"), *one = getenv("OMPI_COMM_WORLD_RANK"), *other = getenv("PMI_RANK");
  const char *me = one != NULL ? one : other != NULL ? other : "";
  if (file != NULL && strncmp(file, "libcrypto", 9) == 0 && what != NULL && strcmp(what, "unable") == 0 && strcmp(me, "1") == 0) return NULL;
  return real(file, mode);
}

static ac_ctx *ctx;
static ac_world *world;
static int rank, size;

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void need(bool ok, const char *what, const ac_coll *c, int64_t i) {
  if (ok) return;
  printf("wrong: rank %d of %d, %s %s %s count %lld: %s, element %lld\n", rank, size, ac_coll_name(c->kind),
         ac_dtype_name(c->dtype), ac_reduce_op_name(c->op), (long long)c->count, what, (long long)i);
  fflush(stdout);
  _exit(9);
}

static double get(ac_dtype dt, const void *p, int64_t i) {
  switch (dt) {
    case AC_F64: return ((const double *)p)[i];
    case AC_F32: return (double)((const float *)p)[i];
    case AC_F16: return (double)aci_f16_to_f32(((const uint16_t *)p)[i]);
    case AC_BF16: return (double)aci_bf16_to_f32(((const uint16_t *)p)[i]);
    case AC_I64: return (double)((const int64_t *)p)[i];
    case AC_I32: return (double)((const int32_t *)p)[i];
    case AC_I16: return (double)((const int16_t *)p)[i];
    case AC_I8: return (double)((const int8_t *)p)[i];
    default: return (double)((const uint8_t *)p)[i];
  }
}

static void put(ac_dtype dt, void *p, int64_t i, double x) {
  switch (dt) {
    case AC_F64: ((double *)p)[i] = x; break;
    case AC_F32: ((float *)p)[i] = (float)x; break;
    case AC_F16: ((uint16_t *)p)[i] = aci_f32_to_f16((float)x); break;
    case AC_BF16: ((uint16_t *)p)[i] = aci_f32_to_bf16((float)x); break;
    case AC_I64: ((int64_t *)p)[i] = (int64_t)x; break;
    case AC_I32: ((int32_t *)p)[i] = (int32_t)x; break;
    case AC_I16: ((int16_t *)p)[i] = (int16_t)x; break;
    case AC_I8: ((int8_t *)p)[i] = (int8_t)x; break;
    default: ((uint8_t *)p)[i] = (uint8_t)x; break;
  }
}

/* What rank r holds: small enough that sums and products of a few ranks are exact in every dtype. */
static double value(int r, int64_t i) { return (double)(1 + (i + r) % (size > 4 ? 2 : 3)); }

static double reduced(ac_reduce_op op, int n, int64_t i) {
  double y = op == AC_REDUCE_PROD ? 1 : op == AC_REDUCE_MIN ? 9 : 0;
  for (int r = 0; r < n; r++) {
    const double x = value(r, i);
    if (op == AC_REDUCE_SUM || op == AC_REDUCE_MEAN) y += x;
    else if (op == AC_REDUCE_PROD) y *= x;
    else if ((op == AC_REDUCE_MIN) == (x < y)) y = x;
  }
  return y;
}

/* Rounded as the dtype is: a mean of three need not be exact. */
static double expected(ac_dtype dt, ac_reduce_op op, int n, int64_t i) {
  double y = reduced(op, n, i), cell;
  if (op != AC_REDUCE_MEAN) return y;
  if (dt == AC_F64) return y / n;
  put(dt, &cell, 0, (double)((float)y / (float)n));
  return get(dt, &cell, 0);
}

static ac_group *group;
static void *send_buf, *recv_buf;
static bool async;

static void fill(ac_dtype dt, void *p, int64_t n, int64_t first) {
  for (int64_t i = 0; i < n; i++) put(dt, p, i, value(rank, first + i));
}

static void run(const ac_coll *c) {
  ac_err e;
  ac_status st;
  if (async) {
    ac_work *k = NULL;
    st = ac_collective_start(group, c, 0, NULL, &k, &e);
    if (st == AC_OK) st = ac_work_wait(k, &e);
    ac_work_release(k);
  } else {
    st = ac_collective(group, c, &e);
  }
  if (st != AC_OK) need(false, e.msg, c, -1);
}

static void reductions(ac_dtype dt, int64_t n) {
  for (int op = 0; op < AC_REDUCE_OPS; op++) {
    if (op == AC_REDUCE_MEAN && !ac_dtype_is_float(dt)) continue;
    ac_coll c = {.kind = AC_COLL_ALL_REDUCE, .dtype = dt, .op = (ac_reduce_op)op, .count = n, .recv = recv_buf};
    c.send = op % 2 == 0 ? send_buf : recv_buf;
    fill(dt, (void *)c.send, n, 0);
    run(&c);
    for (int64_t i = 0; i < n; i++) need(get(dt, recv_buf, i) == expected(dt, c.op, size, i), "sum", &c, i);
    c.kind = AC_COLL_REDUCE;
    c.root = size - 1;
    c.send = send_buf;
    fill(dt, send_buf, n, 0);
    for (int64_t i = 0; i < n; i++) put(dt, recv_buf, i, 5);
    run(&c);
    for (int64_t i = 0; i < n; i++)
      need(get(dt, recv_buf, i) == (rank == c.root ? expected(dt, c.op, size, i) : 5), "at root", &c, i);
    c.kind = AC_COLL_REDUCE_SCATTER;
    fill(dt, send_buf, n * size, 0);
    run(&c);
    for (int64_t i = 0; i < n; i++)
      need(get(dt, recv_buf, i) == expected(dt, c.op, size, n * rank + i), "own part", &c, i);
  }
}

static void gathers(ac_dtype dt, int64_t n, const int64_t *counts) {
  ac_coll c = {.kind = AC_COLL_ALL_GATHER, .dtype = dt, .count = n, .counts = counts};
  c.send = send_buf;
  c.recv = recv_buf;
  const int64_t own = counts != NULL ? counts[rank] : n;
  fill(dt, send_buf, own, 0);
  for (int k = 0; k < 2; k++, c.kind = AC_COLL_GATHER) {
    c.root = size / 2;
    run(&c);
    int64_t at = 0;
    for (int r = 0; r < size && (k == 0 || rank == c.root); r++)
      for (int64_t i = 0; i < (counts != NULL ? counts[r] : n); i++, at++)
        need(get(dt, recv_buf, at) == value(r, i), "gathered", &c, at);
  }
  c.kind = AC_COLL_SCATTER;
  int64_t before = 0, total = 0;
  for (int r = 0; r < size; r++) {
    if (r < rank) before += counts != NULL ? counts[r] : n;
    total += counts != NULL ? counts[r] : n;
  }
  fill(dt, send_buf, total, 0);
  run(&c);
  for (int64_t i = 0; i < own; i++) need(get(dt, recv_buf, i) == value(c.root, before + i), "scattered", &c, i);
}

static void moves(ac_dtype dt, int64_t n) {
  ac_coll c = {.kind = AC_COLL_BROADCAST, .dtype = dt, .count = n, .root = size - 1, .recv = recv_buf};
  fill(dt, recv_buf, n, 0);
  run(&c);
  for (int64_t i = 0; i < n; i++) need(get(dt, recv_buf, i) == value(c.root, i), "broadcast", &c, i);
  c.kind = AC_COLL_ALL_TO_ALL;
  c.send = send_buf;
  c.root = 0;
  fill(dt, send_buf, n * size, 0);
  run(&c);
  for (int64_t i = 0; i < n * size; i++)
    need(get(dt, recv_buf, i) == value((int)(i / n), rank * n + i % n), "exchanged", &c, i);
}

/* Around the ring with two messages of different tags, asked for in the other order. */
static void pairs(ac_dtype dt, int64_t n, int tag) {
  ac_err e;
  if (size == 1) return;
  char *const to = send_buf, *const from = recv_buf;
  const size_t bytes = (size_t)n * ac_dtype_bytes(dt);
  fill(dt, to, n, 0);
  fill(dt, to + bytes, n, 1);
  ac_work *k[4];
  for (int i = 0; i < 4; i++) {
    const int which = i < 2 ? i : 3 - i;
    const bool sends = i < 2;
    const ac_coll c = {.kind = sends ? AC_COLL_SEND : AC_COLL_RECV,
                       .dtype = dt,
                       .count = n,
                       .root = (rank + (sends ? 1 : size - 1)) % size,
                       .tag = tag + which,
                       .send = to + (size_t)which * bytes,
                       .recv = from + (size_t)which * bytes};
    if (ac_collective_start(group, &c, 0, NULL, &k[i], &e) != AC_OK) need(false, e.msg, &c, -1);
  }
  const ac_coll c = {.kind = AC_COLL_RECV, .dtype = dt, .count = n};
  for (int i = 0; i < 4; i++) {
    if (ac_work_wait(k[i], &e) != AC_OK) need(false, e.msg, &c, -1);
    ac_work_release(k[i]);
  }
  const int left = (rank + size - 1) % size;
  for (int64_t i = 0; i < n; i++) {
    need(get(dt, from, i) == value(left, i), "first message", &c, i);
    need(get(dt, from + bytes, i) == value(left, i + 1), "second message", &c, i);
  }
}

static void everything(void) {
  static const ac_dtype dtypes[] = {AC_F32, AC_F64, AC_F16, AC_BF16, AC_I64, AC_I32, AC_I16, AC_I8, AC_U8};
  static const int64_t lengths[] = {0, 1, 7, 1000, 8193};
  enum { MOST = 8193 * 8 * 8 };
  send_buf = calloc(2, MOST);
  recv_buf = calloc(2, MOST);
  const ac_coll barrier = {.kind = AC_COLL_BARRIER};
  for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
      if (!ac_test_sampled(size > 4 ? 5 : 3)) continue;
      const ac_dtype dt = dtypes[d];
      const int64_t n = lengths[l], uneven[8] = {n, 0, n / 2, 3, 1, n, 0, 2};
      async = (d + l) % 2 != 0;
      reductions(dt, n);
      gathers(dt, n, NULL);
      gathers(dt, n, uneven);
      moves(dt, n);
      pairs(dt, n, d == 0 ? 0 : d == 1 ? -5 : 1 << 28);
      run(&barrier);
    }
  }
  free(send_buf);
  free(recv_buf);
}

/* Long buffers, and groups beside each other. */
static void long_and_groups(void) {
  ac_err e;
  const int64_t n = ((int64_t)2 << 20) + 1;
  send_buf = malloc((size_t)n * 4);
  recv_buf = malloc((size_t)n * 4);
  reductions(AC_F32, n / size);
  moves(AC_F32, n / size);
  free(send_buf);
  free(recv_buf);
  int list[2][4], count[2] = {0, 0};
  for (int r = size - 1; r >= 0; r--) list[r % 2][count[r % 2]++] = r;
  for (int k = 0; k < 2 && count[k] > 0; k++) {
    ac_group *g = NULL;
    if (ac_group_new(world, count[k], list[k], "test:1", &g, &e) != AC_OK) need(false, e.msg, &(ac_coll){0}, -1);
    int64_t x = rank + 1, want = 0;
    const ac_coll c = {.kind = AC_COLL_ALL_REDUCE, .dtype = AC_I64, .count = 1, .send = &x, .recv = &x};
    for (int i = 0; i < count[k]; i++) want += list[k][i] + 1;
    if (ac_group_rank(g) >= 0) {
      if (ac_collective(g, &c, &e) != AC_OK) need(false, e.msg, &c, -1);
      need(x == want, "group's sum", &c, 0);
    }
    ac_group_free(g);
  }
}

/* More bytes than an int counts, in one message. */
static void huge(void) {
  const int64_t n = ((int64_t)1 << 31) + 5;
  char *p = malloc((size_t)n);
  const ac_coll c = {.kind = rank == 0 ? AC_COLL_SEND : AC_COLL_RECV,
                     .dtype = AC_U8,
                     .count = n,
                     .root = 1 - rank,
                     .send = p,
                     .recv = p};
  memset(p, rank == 0 ? 7 : 0, (size_t)n);
  if (rank == 0) p[n - 1] = 9;
  run(&c);
  for (int64_t i = 0; i < n; i += i < n - 4096 ? 4095 : 1) need(p[i] == (i == n - 1 ? 9 : 7), "byte", &c, i);
  free(p);
}

/* One all_reduce of n elements from a line of the script; tells how it ended and how long it took. */
static void one_call(int64_t n, const char *site) {
  ac_err e;
  float *x = calloc((size_t)n + 1, 4);
  const ac_coll c = {.kind = AC_COLL_ALL_REDUCE, .dtype = AC_F32, .count = n, .send = x, .recv = x, .site = site};
  const double began = seconds();
  ac_status st = ac_collective(group, &c, &e);
  printf("<%d %s in %.3f s: %s>\n", rank, ac_status_name(st), seconds() - began, st == AC_OK ? "" : e.msg);
  fflush(stdout);
  free(x);
}

static int be_rank(const char *what) {
  ac_err e;
  ac_world_options o = AC_WORLD_OPTIONS_INIT;
  o.backend = "mpi";
  o.timeout_s = 60;
  if (ac_ctx_new(NULL, &ctx, &e) != AC_OK || ac_world_open(ctx, &o, &world, &e) != AC_OK) {
    printf("<open: %s>\n", e.msg);
    fflush(stdout);
    if (strcmp(what, "unable") == 0) sleep(1); /* mpirun ends the others with the first of us */
    return 3;
  }
  rank = ac_world_rank(world);
  size = ac_world_size(world);
  group = ac_world_group(world);
  const char *left_at = NULL;
  if (strcmp(what, "all") == 0) {
    everything();
    long_and_groups();
  } else if (strcmp(what, "huge") == 0) {
    huge();
  } else if (strcmp(what, "mismatch") == 0) {
    one_call(10, "train.lua:5");
    one_call(rank == 1 ? 11 : 10, rank == 1 ? "train.lua:8" : "train.lua:6");
  } else if (strcmp(what, "leave") == 0) {
    if (rank == 1) left_at = "train.lua:30";
    else one_call(10, "train.lua:6");
  } else if (strcmp(what, "fail") == 0) {
    one_call(10, "train.lua:5");
    if (rank == 1) ac_world_fail(world, "train.lua:7", "no such file");
    else one_call(10, "train.lua:6");
  } else if (strcmp(what, "kill") == 0) {
    one_call(10, "train.lua:5");
    if (rank == 1) raise(SIGKILL);
    one_call(10, "train.lua:6");
  } else if (strcmp(what, "slow") == 0) { /* one is done long before the others */
    one_call(10, "train.lua:5");
    if (rank == 0) usleep(700000);
  }
  const bool bad = ac_world_aborted(world, &e);
  if (bad) { /* mpirun ends the others with the first of us: let the one speak that the test looks at */
    const int heard = strcmp(what, "mismatch") == 0 ? 1 : 0;
    char *spoke = ac_test_tmp_path("spoke");
    if (rank == heard) ac_test_write(spoke, "", 0);
    for (int i = 0; i < 1000 && access(spoke, F_OK) != 0; i++) usleep(10000);
    free(spoke);
  }
  ac_world_close(world, left_at);
  ac_ctx_free(ctx);
  if (!bad) printf("<%d done>\n", rank);
  return bad ? 1 : 0;
}

/* ======== as the test ======== */
static char said[1 << 16];
static double took;

/* Runs a case on n ranks (0: without mpirun); returns the exit status and leaves the output in `said`. */
static int job(int n, const char *what, const char *env) {
  char self[512], command[1024];
  const ssize_t k = readlink("/proc/self/exe", self, sizeof self - 1);
  assert_true(k > 0);
  self[k] = 0;
  char launcher[64] = "", *spoke = ac_test_tmp_path("spoke");
  unlink(spoke);
  free(spoke);
  if (n > 0) snprintf(launcher, sizeof launcher, "mpirun -n %d", n);
  snprintf(command, sizeof command,
           "exec env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
           "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe " /* of Open MPI 5 */
           "ASAN_OPTIONS=detect_leaks=0 %s ACCEL_TEST_CASE=%s timeout -k 1 300 %s '%s' 2>&1 </dev/null",
           env, what, launcher, self);
  const double began = seconds();
  FILE *f = popen(command, "r");
  assert_non_null(f);
  const size_t got = fread(said, 1, sizeof said - 1, f);
  said[got] = 0;
  const int status = pclose(f);
  took = seconds() - began;
  return status < 0 ? status : status >> 8;
}

static void need_text(const char *part) {
  if (strstr(said, part) != NULL) return;
  print_error("no \"%s\" in:\n%s\n", part, said);
  fail();
}

/* Rank r's last line of a case names the outcome, came within a second and holds all parts. */
static void need_line(int r, const char *status, const char *const *parts) {
  char key[64];
  snprintf(key, sizeof key, "<%d %s in ", r, status);
  need_text(key);
  const char *line = strstr(said, key);
  const double seconds_of_call = strtod(line + strlen(key), NULL);
  if (seconds_of_call > 1) ac_test_late(line, seconds_of_call);
  const size_t n = strcspn(line, "\n");
  for (; *parts != NULL; parts++) {
    const char *at = strstr(line, *parts);
    if (at != NULL && at < line + n) continue;
    print_error("no \"%s\" in: %.*s\n", *parts, (int)n, line);
    fail();
  }
}

static void test_closed_forms(void **state) {
  static const int ranks[] = {1, 2, 3, 4, 7, 8};
  for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
    if (job(ranks[i], "all", "") == 0) continue;
    print_error("%d ranks:\n%s\n", ranks[i], said);
    fail();
  }
}

static void test_huge(void **state) {
  if (aci_host_memory() < (uint64_t)12 << 30 || getenv("ACCEL_TEST_SANITIZE") == NULL ||
      getenv("ACCEL_TEST_SANITIZE")[0] != 0)
    skip();
  if (job(2, "huge", "") == 0) return;
  print_error("%s\n", said);
  fail();
}

static void test_mismatch(void **state) {
  assert_int_not_equal(job(3, "mismatch", ""), 0);
  const char *const parts[] = {"count", "train.lua:6", "train.lua:8", "rank 1", NULL};
  need_line(1, "mismatch", parts);
  if (strstr(said, "ranks 0, 2") == NULL) ac_test_late(said, 0); /* one of them was */
  assert_true(took < 50);
}

static void test_leave(void **state) {
  assert_int_not_equal(job(2, "leave", ""), 0);
  need_line(0, "peer", (const char *const[]){"rank 1", "train.lua:30", NULL});
  assert_true(took < 50);
}

static void test_fail(void **state) {
  assert_int_not_equal(job(2, "fail", ""), 0);
  need_line(0, "peer", (const char *const[]){"rank 1", "train.lua:7", "no such file", NULL});
  assert_true(took < 50);
}

/* mpirun may end the survivors before they have said anything; then it names the dead rank itself. */
static void test_kill(void **state) {
  for (int i = 0; i < 2; i++) {
    assert_int_not_equal(job(3, "kill", ""), 0);
    if (strstr(said, "<0 peer in ") != NULL) need_line(0, "peer", (const char *const[]){"rank 1", NULL});
    else need_text("rank 1");
    assert_true(took < 50);
  }
}

/* All ranks name the one that cannot prove who it is, before any of them waits for it. */
static void test_unable(void **state) {
  assert_int_equal(job(3, "unable", ""), 3);
  const char *at = said;
  for (int n = 0; n < 3; n++) {
    at = strstr(at, "<open: rank 1 (");
    if (at == NULL) fail_msg("not all ranks name rank 1:\n%s", said);
    at++;
  }
  need_text("cannot prove who it is: its machine or its build of accel lacks libcrypto; install the package libssl3 there");
  if (took > 15) ac_test_late("a rank without libcrypto", took);
  assert_int_equal(job(3, "slow", "ACCEL_INSECURE=1"), 0); /* nobody asks */
}

static void test_slow_rank(void **state) {
  const int status = job(3, "slow", "");
  if (status != 0) print_error("%s\n", said);
  assert_int_equal(status, 0);
  for (int r = 0; r < 3; r++) need_text((const char *const[]){"<0 done>", "<1 done>", "<2 done>"}[r]);
}

static void test_no_launcher(void **state) {
  assert_int_equal(job(0, "all", "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2"), 3);
  need_text("backend mpi: torchrun started this rank, which MPI does not know; start the job by mpirun -n 2");
  assert_int_equal(job(2, "all", "RANK=0 WORLD_SIZE=5"), 3);
  need_text("torchrun gives rank 0 of 5, Open MPI gives rank ");
}

int main(void) {
  const char *what = getenv("ACCEL_TEST_CASE");
  if (what != NULL) return be_rank(what);
  if (system("command -v mpirun > /dev/null 2>&1") != 0) {
    printf("skipped: there is no mpirun (Debian: openmpi-bin)\n");
    return 77;
  }
  if (aci_module_open("accel_mpi.so") == NULL) {
    printf("skipped: accel_mpi.so was not built (Debian: libopenmpi-dev)\n");
    return 77;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_closed_forms), cmocka_unit_test(test_huge), AC_TEST_TIMED(test_mismatch),
      AC_TEST_TIMED(test_leave),        AC_TEST_TIMED(test_fail), AC_TEST_TIMED(test_kill),
      cmocka_unit_test(test_slow_rank), AC_TEST_TIMED(test_unable),    cmocka_unit_test(test_no_launcher)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
