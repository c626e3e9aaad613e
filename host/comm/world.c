/* Joining and leaving the world, and a rank's public state. Called by bindings and by C programs
 * that embed us. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/open_read.h"
#include "comm/comm_impl.h"

#ifndef ACCEL_VERSION
#define ACCEL_VERSION "unknown"
#endif

enum { SPINS = 4000 }; /* about 100 us: longer than any skew worth spinning for */
/* longer than the usual save or evaluation of one rank */
static const int64_t LATE_NS = 10 * INT64_C(1000000000);

/* Of the script's contents. 0: there is none, or it cannot be read. A pipe, for example, can be
 * read only once. */
static uint64_t hash_of(const char *path) {
  ac_err ignored;
  int fd;
  uint64_t bytes, h = 0;
  if (path == NULL || aci_open_read(path, &fd, &bytes, &ignored) != AC_OK) return 0;
  unsigned char buf[4096];
  ssize_t n;
  while ((n = read(fd, buf, sizeof buf)) > 0) h = aci_hash_bytes(h, buf, (size_t)n);
  close(fd);
  return n < 0 ? 0 : h | 1;
}

static const aci_backend *by_name(const char *name, ac_err *e) {
  static const aci_backend *const all[] = {&aci_solo_backend, &aci_shm_backend, &aci_tcp_backend,
                                           &aci_sim_backend};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    if (strcmp(all[i]->name, name) == 0) return all[i];
  if (strcmp(name, "mpi") == 0) return aci_mpi_backend(e);
  AC_FAIL(e, INVALID, "no backend '%s'; there are solo, shm, tcp, mpi, sim", name);
  return NULL;
}

static const aci_backend *choose(const ac_world *w, const ac_world_options *o, ac_err *e) {
  const aci_place *p = &w->place;
  const char *name =
      o->backend != NULL ? o->backend : ac_params_str(ac_ctx_params(w->ctx), "BACKEND");
  if (strcmp(name, "auto") != 0) {
    if (strcmp(name, "shm") == 0 && w->segment.head == NULL) {
      AC_FAIL(e, INVALID,
              "backend shm: ranks share memory only when accel-run --num_processes starts them%s%s",
              p->source[0] != 0 ? "; this one was started by " : "", p->source);
      return NULL;
    }
    if (strcmp(name, "shm") == 0 && p->local_size != p->size) {
      AC_FAIL(e, INVALID, "backend shm: %d of %d ranks are on this machine; use tcp or mpi",
              p->local_size, p->size);
      return NULL;
    }
    return by_name(name, e);
  }
  if (w->segment.head != NULL && p->local_size == p->size) return &aci_shm_backend;
  if (p->size == 1) return &aci_solo_backend;
  if (p->pmi) { /* srun started them as ranks of MPI, whose module may be missing */
    ac_err why;
    const aci_backend *mpi = aci_mpi_backend(&why);
    if (mpi != NULL) return mpi;
    if (p->rank == 0)
      ac_log_write(AC_LOG_WARN, "comm",
                   "srun --mpi=pmi2 starts ranks of MPI, and %s. They use tcp; srun --mpi=none or "
                   "--backend tcp says the same without this warning",
                   why.msg);
    return &aci_tcp_backend;
  }
  if (strcmp(p->source, "torchrun") == 0 || strcmp(p->source, "accel-run") == 0 ||
      strcmp(p->source, "Slurm") == 0 || strcmp(p->source, "Flux") == 0)
    return &aci_tcp_backend;
  return aci_mpi_backend(e);
}

static void set_cloexec(int fd) {
  if (fd >= 0) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* Fills the fields that other ranks and the launcher read. */
static void fill_page(ac_world *w) {
  aci_page *p = w->page;
  p->pid = (int32_t)getpid();
  p->rank = aci_start_rank(w);
  memcpy(p->version, w->version, sizeof p->version);
  if (gethostname(p->host, sizeof p->host - 1) != 0) p->host[0] = 0;
  p->script_hash = w->script_hash;
  memcpy(p->script, w->script, sizeof p->script);
}

/* CPUs that the ranks of this machine share. The launcher counted them before it gave each rank its
 * own. mpirun and srun bind ranks as well, so this rank's CPUs do not show which CPUs the others
 * have. */
static int shared_cpus(const ac_world *w) {
  if (w->segment.head != NULL) return (int)w->segment.head->n_cpus;
  const long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : (int)n;
}

void aci_world_set_spins(ac_world *w) {
  const int n = ac_world_local_size(w);
  w->spins = n <= shared_cpus(w) ? SPINS : 0;
  w->thread_spins = 2 * n <= shared_cpus(w) ? SPINS : 0;
}

static void world_free(ac_world *w) {
  if (w == NULL) return;
  aci_queue_free(w->queue);
  aci_records_free(w->records);
  while (w->groups != NULL) ac_group_free(w->groups);
  if (w->all != NULL) {
    free(w->all->ranks);
    free(w->all);
  }
  if (w->heap != NULL) aci_heap_maps_close(w);
  if (w->segment.head != NULL) aci_segment_close(&w->segment);
  free(w);
}

static ac_status make_all(ac_world *w, ac_err *e) {
  ac_group *g = calloc(1, sizeof *g);
  if (g == NULL || (g->ranks = malloc((size_t)w->place.size * sizeof *g->ranks)) == NULL) {
    free(g);
    return AC_FAIL(e, OOM, "no memory for a world of %d", w->place.size);
  }
  for (int i = 0; i < w->place.size; i++) g->ranks[i] = i;
  g->world = w;
  g->rank = w->place.rank;
  g->size = w->place.size;
  g->slot = w->segment.head != NULL && w->place.local_size == w->place.size ? 0 : -1;
  w->used_groups[0] = 1;
  w->next_group = 1;
  w->all = g;
  return AC_OK;
}

ac_status ac_world_open(ac_ctx *c, const ac_world_options *o, ac_world **out, ac_err *e) {
  static const ac_world_options standard = AC_WORLD_OPTIONS_INIT;
  if (o == NULL) o = &standard;
  ac_world *w = calloc(1, sizeof *w);
  if (w == NULL) return AC_FAIL(e, OOM, "no memory for the world");
  w->ctx = c;
  w->owner = pthread_self();
  const bool sim = o->backend != NULL && strcmp(o->backend, "sim") == 0;
  bool joined = false;
  ac_status st;
  if (sim) {
    w->place = (aci_place){.rank = o->sim_rank,
                           .size = o->sim_size > 0 ? o->sim_size : 1,
                           .local_rank = o->sim_rank,
                           .machines = 1,
                           .fd_control = -1,
                           .fd_segment = -1,
                           .fd_console = -1};
    const int machines = o->sim_machines > 0 ? o->sim_machines : 1;
    if (o->sim_rank < 0 || o->sim_rank >= w->place.size || w->place.size % machines != 0) {
      st = AC_FAIL(e, INVALID, "backend sim: rank %d of %d on %d machines", o->sim_rank,
                   w->place.size, machines);
      goto fail;
    }
    w->place.machines = machines;
    w->place.local_size = w->place.size / machines;
    w->place.machine = o->sim_rank / w->place.local_size;
    w->place.local_rank = o->sim_rank % w->place.local_size;
    w->sim_shares = o->sim_shares_memory;
  } else {
    AC_GOTO(fail, st, aci_discover(&w->place, e));
  }
  w->first = w->place.rank - w->place.local_rank;
  double timeout = o->timeout_s > 0 ? o->timeout_s : ac_params_float(ac_ctx_params(c), "TIMEOUT");
  ac_world_set_timeout(w, timeout);
  w->watch.late_ns = LATE_NS;
  const double join = ac_params_float(ac_ctx_params(c), "JOIN_TIMEOUT");
  w->join_ns = join > 1e9 ? INT64_MAX / 4 : (int64_t)(join * 1e9);
  /* programs that a script starts must not inherit the rank's descriptors */
  set_cloexec(w->place.fd_control);
  set_cloexec(w->place.fd_segment);
  for (int i = 0; i < w->place.n_heaps; i++) set_cloexec(w->place.fd_heap[i]);
  set_cloexec(w->place.fd_console);
  for (int i = 0; i < w->place.n_fronts; i++) set_cloexec(w->place.fd_front[i]);
  snprintf(w->version, sizeof w->version, "%s", ACCEL_VERSION);
  snprintf(w->script, sizeof w->script, "%s", o->script != NULL ? o->script : "");
  w->script_hash = hash_of(o->script);
  /* from here on the launcher and the local ranks read this rank's page */
  if (w->place.fd_segment >= 0) {
    AC_GOTO(fail, st, aci_segment_open(w->place.fd_segment, &w->segment, e));
    if ((int)w->segment.head->n_ranks != w->place.local_size) {
      st = AC_FAIL(e, INVALID, "the launcher's segment is for %u ranks, LOCAL_WORLD_SIZE=%d",
                   w->segment.head->n_ranks, w->place.local_size);
      goto fail;
    }
    w->page = aci_page_of(w->segment.head, w->place.local_rank);
    w->generation = w->segment.head->members.elastic;
    if (aci_is_guest(w)) aci_observe(w);
    fill_page(w);
  }
  aci_world_set_spins(w);
  const int n_records = (int)ac_params_int(ac_ctx_params(c), "RECORDS");
  if (n_records > 0) w->records = aci_records_new(n_records);
  w->queue = aci_queue_new(w);
  if (w->queue == NULL || (n_records > 0 && w->records == NULL)) {
    st = AC_FAIL(e, OOM, "no memory for the world");
    goto fail;
  }
  AC_GOTO(fail, st, make_all(w, e));
  w->backend = sim ? &aci_sim_backend : w->observes ? &aci_observer_backend : choose(w, o, e);
  if (w->backend == NULL) {
    st = e != NULL ? e->code : AC_UNSUPPORTED;
    goto fail;
  }
  if (ac_world_elastic(w) && w->backend->reform == NULL) {
    st = AC_FAIL(e, UNSUPPORTED, "an elastic job needs the backend shm or tcp, got %s",
                 w->backend->name);
    goto fail;
  }
  /* before joining: peers may address this rank's heap as soon as it has joined */
  if (w->segment.head != NULL) AC_GOTO(fail, st, aci_heap_maps_open(w, e));
  AC_GOTO(fail, st, w->backend->join(w, e));
  joined = true;
  if (w->segment.head != NULL && !w->observes) aci_segment_key_done(w->segment.head);
  if (w->backend->group_open != NULL) AC_GOTO(fail, st, w->backend->group_open(w->all, e));
  *out = w;
  return AC_OK;
fail:
  if (joined) w->backend->leave(w, NULL);
  /* a joined rank has notified its peers by leave */
  if (!joined && w->page != NULL) atomic_store(&w->page->state, ACI_FAILED);
  world_free(w);
  return st;
}

void ac_world_close(ac_world *w, const char *site) {
  if (w == NULL) return;
  aci_queue_free(w->queue); /* works under way end first: peers count on them */
  w->queue = NULL;
  for (ac_group *g = w->groups; g != NULL; g = g->next) aci_nccl_group_close(g);
  aci_nccl_group_close(w->all);
  aci_nccl_close(w);
  for (ac_group *g = w->groups; g != NULL; g = g->next)
    if (g->rank >= 0 && w->backend->group_close != NULL) w->backend->group_close(g);
  if (w->backend->group_close != NULL) w->backend->group_close(w->all);
  w->backend->leave(w, site);
  w->backend = NULL;
  world_free(w);
}

void ac_world_fail(ac_world *w, const char *site, const char *text) {
  char line[512];
  if (w->page != NULL) {
    snprintf(w->page->last, sizeof w->page->last, "%s", text);
    if (site != NULL) aci_page_set_at(w->page, site, w->page->step);
    atomic_store(&w->page->state, ACI_FAILED);
  }
  /* after a loss the launcher names the lost rank, which is the cause */
  if (w->place.size == 1 || aci_is_guest(w) || aci_aborted(w, NULL) != AC_OK) return;
  snprintf(line, sizeof line, "rank %d failed%s%s: %s", w->place.rank, site != NULL ? " at " : "",
           site != NULL ? site : "", text);
  for (char *s = line; *s != 0; s++)
    if (*s == '\n') *s = ' ';
  aci_abort(w, AC_PEER, w->place.rank, line);
}

void ac_world_at(ac_world *w, const char *site, uint64_t step) {
  if (w->page != NULL) aci_page_set_at(w->page, site, step);
}

/* The first rank that asks picks a step that none has passed: two beyond the furthest, since a rank
 * may be inside the next step while we look. */
bool ac_world_stop_here(ac_world *w, uint64_t step, int *signal_number) {
  aci_head *h = w->segment.head;
  const bool asked = *signal_number != 0;
  if (h == NULL) return asked;
  uint64_t at = atomic_load_explicit(&h->stop_at, memory_order_acquire);
  if (at == 0 && asked) {
    uint64_t furthest = step, none = 0;
    for (uint32_t i = 0; i < h->n_ranks; i++) {
      const uint64_t s = aci_page_of(h, (int)i)->step;
      if (s > furthest) furthest = s;
    }
    int32_t no_signal = 0; /* before the step: who sees that has it */
    atomic_compare_exchange_strong(&h->stop_signal, &no_signal, *signal_number);
    atomic_compare_exchange_strong(&h->stop_at, &none, furthest + 2);
    at = atomic_load(&h->stop_at);
  }
  if (at == 0 || step < at) return false;
  *signal_number = atomic_load(&h->stop_signal);
  return true;
}

void ac_world_set_interrupt(ac_world *w, const volatile int64_t *at) { w->interrupt = at; }

int ac_world_rank(const ac_world *w) { return w->place.rank; }
int ac_world_size(const ac_world *w) { return w->place.size; }
/* Ranks of this machine with a number below `end`. */
static int count_local(const ac_world *w, int end) {
  int n = 0;
  for (int r = 0; r < end; r++) n += aci_seat_of(w, r) >= 0;
  return n;
}
int ac_world_local_rank(const ac_world *w) {
  return w->reseated ? count_local(w, w->place.rank) : w->place.local_rank;
}
int ac_world_local_size(const ac_world *w) {
  return w->reseated ? count_local(w, w->place.size) : w->place.local_size;
}
int ac_world_machine(const ac_world *w) { return w->place.machine; }
int ac_world_machines(const ac_world *w) { return w->place.machines; }
const char *ac_world_backend(const ac_world *w) { return w->backend->name; }
uint64_t ac_world_bytes_sent(ac_world *w) { return atomic_load(&w->bytes_sent); }

double ac_world_timeout(const ac_world *w) { return (double)atomic_load(&w->timeout_ns) / 1e9; }

void ac_world_set_timeout(ac_world *w, double seconds) {
  if (!(seconds > 0)) return;
  atomic_store(&w->timeout_ns, seconds > 1e9 ? INT64_MAX / 4 : (int64_t)(seconds * 1e9));
}
