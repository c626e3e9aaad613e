/* The mpi backend: data by MPI, for clusters with a network of their own and jobs that mpirun or
 * srun starts. The algorithms come from comm/link, so results have the same bits as in every
 * backend. MPI itself does not report dead ranks or calls that do not match, so descriptors, aborts
 * and leave notices travel over a separate mesh of sockets (comm/tcp/mesh.h), whose addresses MPI
 * exchanges.
 *
 * MPI is finalised at the exit of processes whose worlds ended well. After an abort it is not:
 * MPI_Finalize waits for all ranks, and mpirun ends the remaining ones once a rank has failed.
 * Called by world.c. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base_impl.h"
#include "base/open_read.h"
#include "comm/mpi/mpi.h"
#include "comm/secret.h"
#include "comm/tcp/mesh.h"

enum {
  LOOK_NS = 2000000,    /* between two looks at the sockets while waiting for data */
  GRACE_NS = 200000000, /* time for data that a rank sent before it left or continued */
  LEFT_NS = 2000000000, /* a barrier of ranks that have all left takes less */
  LINGER_NS = 300000000,
  YIELDS = 2000, /* of the processor, before a wait sleeps between its turns */
  NAP_NS = 50000
};

typedef struct state {
  aci_mesh *mesh;
  int64_t checked_at;       /* ns of the last look at the sockets */
  int idle;                 /* turns of MPI since something was last over */
  int64_t stuck;            /* ns: start of a stuck transfer. 0: not stuck */
  aci_mpi_transfer **batch; /* room for poll */
  int room;
} state;

/* ---- the module ---- */
static const aci_mpi_api *api;
static char unusable[256]; /* why api is NULL */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
  void *h = aci_module_open("accel_mpi.so");
  if (h == NULL) {
    const char *text = dlerror();
    snprintf(unusable, sizeof unusable,
             "accel_mpi.so was not built or not found (%.150s); install libopenmpi-dev and rebuild",
             text != NULL ? text : "no reason given");
    return;
  }
  aci_mpi_open_fn open_fn;
  void *symbol = dlsym(h, ACI_MPI_SYMBOL);
  memcpy(&open_fn, &symbol, sizeof open_fn);
  const aci_mpi_api *got = symbol == NULL ? NULL : open_fn();
  if (got == NULL || got->version != ACI_MPI_API_VERSION) {
    snprintf(unusable, sizeof unusable,
             "accel_mpi.so is of another version of this library; rebuild");
    return;
  }
  api = got;
}

const char *aci_mpi_library(void) {
  pthread_once(&once, load);
  return api != NULL ? api->library : NULL;
}

/* ---- joining ---- */
/* Does the environment look as if something that speaks to MPI had started us? Without it MPI_Init
 * makes a world of one, at best. */
static bool has_launcher(void) {
  static const char *const names[] = {
      "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_SIZE",
      "SLURM_STEP_NUM_TASKS"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (getenv(names[i]) != NULL) return true;
  return false;
}

static void nap(int64_t ns) {
  const struct timespec t = {ns / 1000000000, (long)(ns % 1000000000)};
  nanosleep(&t, NULL);
}

/* Tests the collective under way until it is over or the timeout passes. */
static ac_status await(ac_world *w, const char *what, ac_err *e) {
  char why[ACI_MPI_TEXT];
  const int64_t began = aci_now_ns(), limit = atomic_load(&w->timeout_ns);
  for (int turn = 0;; turn++) {
    const int done = api->test(why);
    if (done > 0) return AC_OK;
    if (done < 0) return AC_FAIL(e, PEER, "backend mpi: %s: %s", what, why);
    if (aci_now_ns() - began > limit)
      return AC_FAIL(e, TIMEOUT, "backend mpi: %s: not all of %d ranks came within %.3g s", what,
                     w->place.size, (double)limit / 1e9);
    if (turn < 100) sched_yield();
    else nap(200000);
  }
}

static bool same_host(const aci_peer_info *a, const aci_peer_info *b) {
  return memcmp(a->host, b->host, sizeof a->host) == 0;
}

/* mpirun may deal ranks out in any order, so machines are identified by name and numbered as they
 * come. If names contradict the launcher's number for this machine (containers of one name), the
 * launcher's number counts. */
static void count_machines(ac_world *w, const aci_peer_info *infos) {
  aci_place *p = &w->place;
  int n = 0, here = 0, mine = 0;
  for (int r = 0; r < p->size; r++) {
    int first = 0;
    while (!same_host(&infos[first], &infos[r])) first++;
    here += same_host(&infos[r], &infos[p->rank]);
    if (first < r) continue;
    if (same_host(&infos[r], &infos[p->rank])) mine = n;
    n++;
  }
  if (here != p->local_size) return;
  p->machine = mine;
  p->machines = n;
}

static ac_status init(ac_world *w, ac_err *e) {
  const aci_place *p = &w->place;
  const char *by = p->source[0] != 0 ? p->source : "nobody";
  char why[ACI_MPI_TEXT];
  int rank = 0, size = 0;
  if (strcmp(p->source, "accel-run") == 0 || (p->size > 1 && !has_launcher()))
    return AC_FAIL(
        e, INVALID,
        "backend mpi: %s started this rank, which MPI does not know; start the job by mpirun -n %d, or "
        "take tcp",
        by, p->size);
  if (!api->init(&rank, &size, why)) return AC_FAIL(e, PEER, "backend mpi: %s", why);
  if (rank != p->rank || size != p->size)
    return AC_FAIL(
        e, INVALID,
        "backend mpi: %s gives rank %d of %d, %s gives %d of %d; start the job by the mpirun of this "
        "MPI (srun: --mpi=pmix)",
        api->library, rank, size, by, p->rank, p->size);
  return AC_OK;
}

/* The message that MPI exchanges: a rank's info and, from rank 0, the key of the job. */
typedef struct card {
  aci_peer_info info;
  uint8_t key[ACI_HMAC];
  /* of rank 0: ranks must prove who they are. Of each rank: it can */
  uint8_t secure, able, zero[6];
} card;

/* Rank 0 makes the key of the job. Without a library a job on one machine continues without
 * proofs. */
static ac_status make_key(const ac_world *w, card *c, ac_err *e) {
  const aci_place *p = &w->place;
  const bool insecure = ac_params_int(ac_ctx_params(w->ctx), "INSECURE") != 0,
             one_machine = p->local_size == p->size;
  const char *version;
  ac_err why;
  c->secure = !insecure && aci_hmac_library(&version, &why) == AC_OK;
  if (c->secure) return aci_random_bytes(c->key, sizeof c->key, e);
  if (!insecure && !one_machine)
    return AC_FAIL(
        e, UNSUPPORTED,
        "ranks of several machines must prove who they are: %s, or start with --insecure", why.msg);
  if (insecure && !one_machine) aci_job_key_warn(&(aci_job_key){.insecure = true});
  if (!insecure) ac_log_write(AC_LOG_WARN, "comm", "ranks do not prove who they are: %s", why.msg);
  return AC_OK;
}

/* A rank that lacks the library would be refused by every other, one by one and late. All find it
 * here, at once. */
static ac_status all_able(const card *cards, size_t size, ac_err *e) {
  char host[sizeof cards->info.host], shown[ACI_PATH_SHOWN];
  for (size_t r = 0; cards[0].secure && r < size; r++) {
    if (cards[r].able) continue;
    snprintf(host, sizeof host, "%.*s", (int)sizeof host - 1, cards[r].info.host);
    return AC_FAIL(
        e, UNSUPPORTED,
        "rank %zu (%s:%d) cannot prove who it is: its machine or its build of accel lacks libcrypto; install the "
        "package libssl3 there (to build: libssl-dev), or start all ranks with --insecure",
        r, aci_path_shown(host, shown), (int)cards[r].info.pid);
  }
  return AC_OK;
}

/* Every rank takes part in the exchange, including one that cannot listen: this informs the
 * others. */
static ac_status connect_all(ac_world *w, state *s, ac_err *e) {
  const size_t size = (size_t)w->place.size;
  char why[ACI_MPI_TEXT];
  card own;
  memset(&own, 0, sizeof own);
  aci_peer_info *infos = calloc(size, sizeof *infos);
  card *cards = calloc(size, sizeof *cards);
  if (infos == NULL || cards == NULL) {
    free(infos);
    free(cards);
    return AC_FAIL(e, OOM, "backend mpi: no memory for %zu ranks", size);
  }
  ac_status opened = aci_mesh_open(w, NULL, &s->mesh, &own.info, e), st = AC_OK;
  if (opened == AC_OK && w->place.rank == 0) opened = make_key(w, &own, e);
  const char *version;
  own.able = ac_params_int(ac_ctx_params(w->ctx), "INSECURE") != 0 ||
             aci_hmac_library(&version, NULL) == AC_OK;
  if (opened != AC_OK) memset(&own, 0, sizeof own);
  ac_err *later = opened == AC_OK ? e : NULL;
  if (!api->gather_begin(&own, sizeof own, cards, why))
    st = AC_FAIL(later, PEER, "backend mpi: %s", why);
  if (st == AC_OK) st = await(w, "joining", later);
  for (size_t r = 0; st == AC_OK && r < size; r++) infos[r] = cards[r].info;
  for (size_t r = 0; st == AC_OK && opened == AC_OK && r < size; r++)
    if (infos[r].magic[0] == 0)
      st = AC_FAIL(e, PEER, "backend mpi: rank %zu could not open its sockets; see its message", r);
  if (opened != AC_OK) st = opened;
  if (st == AC_OK) st = all_able(cards, size, e);
  if (st == AC_OK) count_machines(w, infos);
  if (st == AC_OK) aci_mesh_set_key(s->mesh, cards[0].secure ? cards[0].key : NULL);
  if (st == AC_OK) st = aci_mesh_connect(s->mesh, infos, e);
  if (st == AC_OK) aci_mesh_set_progress(s->mesh, api->progress);
  aci_forget(cards, size * sizeof *cards);
  aci_forget(&own, sizeof own);
  free(cards);
  free(infos);
  return st;
}

static ac_status join(ac_world *w, ac_err *e) {
  state *s = calloc(1, sizeof *s);
  if (s == NULL) return AC_FAIL(e, OOM, "backend mpi: no memory");
  w->impl = s;
  ac_status st = init(w, e);
  if (st == AC_OK) st = connect_all(w, s, e);
  if (st == AC_OK) return AC_OK;
  aci_mesh_close(s->mesh, NULL);
  api->fini(false);
  free(s);
  w->impl = NULL;
  return st;
}

static bool all_left(const ac_world *w, state *s) {
  for (int r = 0; r < w->place.size; r++) {
    const aci_request any = {.peer = r};
    if (r != w->place.rank && !aci_mesh_cannot_complete(s->mesh, &any)) return false;
  }
  return true;
}

static void leave(ac_world *w, const char *site) {
  state *s = w->impl;
  char why[ACI_MPI_TEXT];
  ac_err e;
  if (s == NULL) return;
  const bool failed = aci_aborted(w, NULL) != AC_OK;
  if (!failed) aci_mesh_send_leave(s->mesh, site);
  bool good = !failed && api->barrier_begin(why);
  /* others may work on for long. The sockets show ranks that fail instead of leaving */
  int64_t since = aci_now_ns();
  for (int turn = 0; good; turn++) {
    const int done = api->test(why);
    if (done > 0) break;
    const int64_t now = aci_now_ns();
    if (!all_left(w, s)) since = now;
    good = done == 0 && now - since < LEFT_NS &&
           aci_mesh_check(s->mesh, -1,
                          turn < 20    ? 0
                          : turn < 100 ? 1
                                       : 5,
                          &e) == AC_OK;
  }
  aci_mesh_close(s->mesh, site);
  /* mpirun blames the first rank that exits without MPI_Finalize: those that failed go first */
  if (!good && !failed) nap(LINGER_NS);
  api->fini(good);
  free(s->batch);
  free(s);
  w->impl = NULL;
}

static void abort_world(ac_world *w, ac_status code, int rank, const char *text) {
  state *s = w->impl;
  if (s != NULL && s->mesh != NULL) aci_mesh_abort(s->mesh, code, rank, text);
}

/* ---- the link ---- */
static ac_status start(ac_world *w, aci_request *m, ac_err *e) {
  char why[ACI_MPI_TEXT];
  m->impl = api->start(m->peer, m->sends, m->channel, m->ptr, m->bytes, why);
  if (m->impl == NULL)
    return AC_FAIL(e, INTERNAL, "backend mpi: a message with rank %d: %s", m->peer, why);
  return AC_OK;
}

static void cancel(ac_world *w, aci_request *m) {
  api->drop(m->impl);
  m->impl = NULL;
}

/* Takes over the transfers that MPI finished. */
static void collect(aci_request *const *m, int n, int *fault) {
  for (int i = 0; i < n; i++) {
    aci_mpi_transfer *t = m[i]->impl;
    if (m[i]->over || t == NULL || !t->over) continue;
    if ((int)t->fault > *fault) *fault = (int)t->fault;
    m[i]->done = m[i]->bytes;
    m[i]->over = true;
    api->drop(t);
    m[i]->impl = NULL;
  }
}

/* A message of another length belongs to another call. The caller has the descriptors, which show
 * the difference. For other faults the sockets have the better reason, if a rank died. */
static ac_status broken(ac_world *w, state *s, int fault, const char *why, ac_err *e) {
  if (fault == ACI_MPI_LENGTH) return AC_FAIL(e, MISMATCH, "backend mpi: %s", why);
  AC_TRY(aci_mesh_check(s->mesh, -1, 50, e));
  aci_abort(w, AC_PEER, -1, why);
  return AC_FAIL(e, PEER, "backend mpi: %s", why);
}

/* Looks at the sockets now and then. A rank that left, or continued to another call, owes only the
 * data still on its way. */
static ac_status look(ac_world *w, state *s, aci_request *const *m, int n, int64_t now, ac_err *e) {
  AC_TRY(aci_aborted(w, e));
  if (now - s->checked_at < LOOK_NS) return AC_OK;
  s->checked_at = now;
  AC_TRY(aci_mesh_check(s->mesh, -1, 0, e));
  int stuck = 0;
  while (stuck < n && (m[stuck]->over || !aci_mesh_cannot_complete(s->mesh, m[stuck]))) stuck++;
  if (stuck == n) s->stuck = 0;
  else if (s->stuck == 0) s->stuck = now;
  else if (now - s->stuck > GRACE_NS) return aci_mesh_fail_transfer(s->mesh, m[stuck], e);
  return AC_OK;
}

static ac_status progress(ac_world *w, aci_request *const *m, int n, int wait_ms, ac_err *e) {
  state *s = w->impl;
  char why[ACI_MPI_TEXT];
  if (n > s->room) {
    aci_mpi_transfer **more = realloc(s->batch, (size_t)n * sizeof *more);
    if (more == NULL) return AC_FAIL(e, OOM, "backend mpi: no memory for %d messages", n);
    s->batch = more;
    s->room = n;
  }
  /* the batch borrows the requests' transfers for one poll. collect drops finished ones */
  int under_way = 0;
  for (int i = 0; i < n; i++) {
    s->batch[i] = m[i]->over ? NULL : m[i]->impl;
    under_way += s->batch[i] != NULL;
  }
  if (under_way == 0) return AC_OK;
  int64_t now = aci_now_ns();
  const int64_t until = now + (int64_t)wait_ms * 1000000;
  for (;;) {
    const int over = api->poll(s->batch, n, why);
    if (over != 0) {
      int fault = 0;
      collect(m, n, &fault);
      s->idle = 0;
      s->stuck = 0;
      return over < 0 ? broken(w, s, fault, why, e) : AC_OK;
    }
    /* a turn of MPI takes some tenths of a microsecond, a look at the clock a tenth of that */
    now = aci_now_ns();
    AC_TRY(look(w, s, m, n, now, e));
    if (now >= until) return AC_OK;
    if (s->idle < w->spins + YIELDS) s->idle++;
    if (s->idle > w->spins) s->idle < w->spins + YIELDS ? (void)sched_yield() : nap(NAP_NS);
  }
}

static ac_status exchange_descs(ac_group *g, const aci_desc *d, aci_desc *all, ac_err *e) {
  return aci_mesh_exchange_descs(((state *)g->world->impl)->mesh, g, d, all, e);
}

static const aci_link over_mpi = {
    .start = start, .progress = progress, .cancel = cancel, .exchange_descs = exchange_descs};

static ac_status run(ac_group *g, const ac_coll *c, aci_desc *d, ac_err *e) {
  return aci_link_run(&over_mpi, g, c, d, e);
}

static ac_status send_recv(ac_group *g, const ac_coll *c, aci_desc *d, void **impl, bool *done,
                           ac_err *e) {
  return aci_link_send_recv(&over_mpi, g, c, d, impl, done, e);
}

/* Messages of before may still be on their way, matched by nobody: the new ones travel in
 * communicators of their own. */
static ac_status reset(ac_world *w, ac_err *e) {
  state *s = w->impl;
  char why[ACI_MPI_TEXT];
  AC_TRY(aci_mesh_reset(s->mesh, e));
  s->stuck = 0;
  if (!api->renew_begin(why)) return AC_FAIL(e, PEER, "backend mpi: %s", why);
  AC_TRY(await(w, "beginning anew", e));
  api->renew_end();
  return AC_OK;
}

static void hosts(const ac_world *w, char *buf, size_t n) {
  const state *s = w->impl;
  if (s != NULL) aci_mesh_hosts(s->mesh, buf, n);
}

const aci_backend *aci_mpi_backend(ac_err *e) {
  static const aci_backend mpi = {.struct_size = sizeof(aci_backend),
                                  .name = "mpi",
                                  .join = join,
                                  .leave = leave,
                                  .run = run,
                                  .send_recv = send_recv,
                                  .abort = abort_world,
                                  .reset = reset,
                                  .hosts = hosts};
  pthread_once(&once, load);
  if (api != NULL) return &mpi;
  AC_FAIL(e, UNSUPPORTED, "backend mpi: %s", unusable);
  return NULL;
}
