/* A generated matrix of programs that differ on one rank: operation, dtype, count, reduction, root, order, a
 * call missing, a call too many, an early end. Every rank is told within a second, by both script lines; none
 * hangs. */
#include "host/comm/ranks.h"

#include <sys/mman.h>

enum { N = 3, MAX_CALLS = 4, BYTES = 1 << 21 };

typedef struct call {
  ac_coll_kind kind;
  ac_dtype dtype;
  int64_t count;
  ac_reduce_op op;
  int root;
  bool uneven;
  const char *site;
} call;

typedef struct program {
  int n;
  call calls[MAX_CALLS];
} program;

typedef struct plan {
  program usual, odd;
  int odd_rank;
} plan;

typedef struct result {
  ac_status code;
  bool ended; /* all calls went well */
  double seconds;
  char text[600];
} result;

static result *results; /* of the ranks, shared */
static unsigned char *send_buf, *recv_buf;

static ac_status run_call(rank *r, const call *k, ac_err *e) {
  int64_t counts[N];
  for (int i = 0; i < N; i++) counts[i] = k->count + i;
  const bool parts = k->kind == AC_COLL_ALL_GATHER || k->kind == AC_COLL_GATHER ||
                     k->kind == AC_COLL_SCATTER || k->kind == AC_COLL_REDUCE_SCATTER;
  const ac_coll c = {.kind = k->kind,
                     .dtype = k->dtype,
                     .op = k->op,
                     .root = k->root,
                     .count = k->count,
                     .counts = k->uneven && parts ? counts : NULL,
                     .send = send_buf,
                     .recv = recv_buf,
                     .site = k->site};
  return ac_collective(ac_world_group(r->w), &c, e);
}

static void runs(rank *r) {
  const plan *p = r->arg;
  const program *mine = r->me == p->odd_rank ? &p->odd : &p->usual;
  result *out = &results[r->me];
  send_buf = calloc(1, BYTES);
  recv_buf = calloc(1, BYTES);
  for (int i = 0; i < mine->n && out->code == AC_OK; i++) {
    ac_err e;
    e.msg[0] = 0;
    const int64_t t = aci_now_ns();
    out->code = run_call(r, &mine->calls[i], &e);
    out->seconds = (double)(aci_now_ns() - t) / 1e9;
    memcpy(out->text, e.msg, sizeof e.msg);
  }
  out->ended = out->code == AC_OK;
  free(send_buf);
  free(recv_buf);
}

static int n_cases;

static void try_plan(const plan *p, const char *what) {
  ranks k;
  memset(results, 0, N * sizeof *results);
  ranks_make(&k, N);
  ranks_start(&k, runs, p);
  ranks_wait(&k);
  ranks_free(&k);
  int told = 0;
  for (int r = 0; r < N; r++) {
    const result *x = &results[r];
    char where[160];
    snprintf(where, sizeof where, "%s, case %d: %s, odd rank %d, rank %d", what, n_cases,
             ac_coll_name(p->usual.calls[0].kind), p->odd_rank, r);
    if (!WIFEXITED(k.status[r]) || WEXITSTATUS(k.status[r]) != 0) fail_msg("%s: ended badly", where);
    if (x->ended) continue;
    told++;
    if (x->code != AC_MISMATCH && x->code != AC_PEER)
      fail_msg("%s: %s: %s", where, ac_status_name(x->code), x->text);
    if (x->code == AC_MISMATCH &&
        (strstr(x->text, "usual.lua:") == NULL || strstr(x->text, "odd.lua:") == NULL))
      fail_msg("%s: not both lines: %s", where, x->text);
    if (x->code == AC_PEER && strstr(x->text, " left at end.lua:99") == NULL)
      fail_msg("%s: %s", where, x->text);
    if (x->seconds > 1) ac_test_late(where, x->seconds);
  }
  if (told == 0) fail_msg("%s, case %d: nobody was told", what, n_cases);
}

static void run_plan(const plan *p, const char *what) {
  if (n_cases++ % ac_test_every(7) != 0) return;
  do try_plan(p, what);
  while (ac_test_was_late());
}

/* ---- the generator ---- */
static const ac_coll_kind kinds[] = {AC_COLL_BARRIER,   AC_COLL_ALL_REDUCE, AC_COLL_REDUCE,
                                     AC_COLL_BROADCAST, AC_COLL_ALL_GATHER, AC_COLL_REDUCE_SCATTER,
                                     AC_COLL_SCATTER,   AC_COLL_GATHER,     AC_COLL_ALL_TO_ALL};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };
enum { N_SIZES = 3 };
static const int64_t counts[N_SIZES] = {3, 1100, 30000}; /* in the slot, one piece, several */

static bool reduces(ac_coll_kind k) {
  return k == AC_COLL_ALL_REDUCE || k == AC_COLL_REDUCE || k == AC_COLL_REDUCE_SCATTER;
}
static bool has_root(ac_coll_kind k) {
  return k == AC_COLL_REDUCE || k == AC_COLL_BROADCAST || k == AC_COLL_GATHER || k == AC_COLL_SCATTER;
}
static bool has_parts(ac_coll_kind k) {
  return k == AC_COLL_ALL_GATHER || k == AC_COLL_GATHER || k == AC_COLL_SCATTER ||
         k == AC_COLL_REDUCE_SCATTER;
}

static call base(int kind, int size) {
  return (call){
      .kind = kinds[kind], .dtype = AC_F32, .count = counts[size], .root = 1, .site = "usual.lua:1"};
}

/* One call each; the odd rank's is x. */
static void differs(const char *what, call usual, call x, int odd_rank) {
  x.site = "odd.lua:2";
  const plan p = {.usual = {1, {usual}}, .odd = {1, {x}}, .odd_rank = odd_rank};
  run_plan(&p, what);
}

static void fields(void **state) {
  for (int k = 0; k < N_KINDS; k++) {
    for (int size = 0; size < N_SIZES; size++) {
      for (int odd = 0; odd < N; odd++) {
        const call usual = base(k, size);
        call x = base((k + 1 + odd + size) % N_KINDS, size);
        differs("operation", usual, x, odd);
        if (usual.kind == AC_COLL_BARRIER) continue;
        x = usual;
        x.dtype = odd % 2 != 0 ? AC_I32 : AC_F64;
        differs("dtype", usual, x, odd);
        x = usual;
        x.count = odd == 0 ? usual.count + 1 : odd == 1 ? counts[(size + 1) % N_SIZES] : 0;
        differs("count", usual, x, odd);
        if (has_parts(usual.kind)) {
          x = usual;
          x.uneven = true;
          differs("parts", usual, x, odd);
        }
        if (reduces(usual.kind)) {
          x = usual;
          x.op = odd % 2 != 0 ? AC_REDUCE_MAX : AC_REDUCE_MEAN;
          differs("reduction", usual, x, odd);
        }
        if (has_root(usual.kind)) {
          x = usual;
          x.root = odd == 1 ? 0 : 2;
          differs("root", usual, x, odd);
        }
      }
    }
  }
}

static void sequences(void **state) {
  for (int k = 0; k < N_KINDS; k++) {
    for (int size = 0; size < N_SIZES; size++) {
      for (int odd = 0; odd < N; odd++) {
        call a = base(k, size), b = base((k + 2 + odd) % N_KINDS, (size + 1) % N_SIZES), c = a, d = b;
        b.site = "usual.lua:3";
        c.site = "odd.lua:5";
        d.site = "odd.lua:6";
        const plan order = {.usual = {2, {a, b}}, .odd = {2, {d, c}}, .odd_rank = odd};
        run_plan(&order, "order");
        const plan missing = {.usual = {3, {a, a, b}}, .odd = {2, {c, d}}, .odd_rank = odd};
        run_plan(&missing, "missing");
        const plan extra = {.usual = {2, {a, b}}, .odd = {3, {c, c, d}}, .odd_rank = odd};
        run_plan(&extra, "extra");
        const plan extra_last = {.usual = {1, {a}}, .odd = {2, {c, c}}, .odd_rank = odd};
        run_plan(&extra_last, "extra at the end");
        const plan early = {.usual = {2, {a, b}}, .odd = {1, {c}}, .odd_rank = odd};
        run_plan(&early, "early end");
      }
    }
  }
}

static int setup(void **state) {
  results = mmap(NULL, N * sizeof *results, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return results == MAP_FAILED;
}

static int teardown(void **state) {
  print_message("%d cases\n", n_cases);
  return n_cases < 500 || munmap(results, N * sizeof *results) != 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(fields), cmocka_unit_test(sequences)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
