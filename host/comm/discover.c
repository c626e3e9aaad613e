/* Finds this process's rank. The environment holds it, in the launcher's own variables. Called by
 * ac_world_open.
 *
 * Launchers are asked in this order: accel-run (ACCEL_WORLD), torchrun, Open MPI, MPICH and Intel
 * MPI, MVAPICH2, Flux, JSM, Slurm. The first that gives both rank and size is used. A second one that
 * contradicts it is an error. The last three are never a contradiction: mpirun and torchrun started
 * by srun see the variables of their own daemons. srun --mpi=pmi2 sets MPICH's variables, and its own
 * tell more, so they are used if the two agree.
 *
 * A launcher that sets a rank and no size (PMIx, PALS, ALPS) is refused: the ranks would not know
 * of each other, and each would train alone. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/secret.h"

typedef struct names {
  const char *source, *rank, *size, *local_rank, *local_size;
} names;

static const names launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", NULL},
    {"JSM", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK",
     "JSM_NAMESPACE_LOCAL_SIZE"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL},
};
/* Variables with a rank, of launchers that keep the number of ranks elsewhere. */
static const names sizeless[] = {{.source = "PMIx", .rank = "PMIX_RANK"},
                                 {.source = "PALS", .rank = "PALS_RANKID"},
                                 {.source = "ALPS", .rank = "ALPS_APP_PE"},
                                 {.source = "PMI", .rank = "PMI_RANK"},
                                 {.source = "Open MPI", .rank = "OMPI_COMM_WORLD_RANK"},
                                 {.source = "Flux", .rank = "FLUX_TASK_RANK"},
                                 {.source = "JSM", .rank = "JSM_NAMESPACE_RANK"}};
enum {
  N_LAUNCHERS = sizeof launchers / sizeof launchers[0],
  N_SIZELESS = sizeof sizeless / sizeof sizeless[0],
  SLURM = N_LAUNCHERS - 1,
  FLUX = SLURM - 2, /* from here on: never a contradiction */
  MPICH = 2,
  NOT_SET = -1
};

/* A whole number in 0..max. Not set or empty: *out = NOT_SET. */
static ac_status number(const char *name, long max, int *out, ac_err *e) {
  const char *text = name == NULL ? NULL : getenv(name);
  *out = NOT_SET;
  if (text == NULL || text[0] == 0) return AC_OK;
  char *end;
  errno = 0;
  long v = strtol(text, &end, 10);
  if (*end != 0 || errno != 0 || v < 0 || v > max)
    return AC_FAIL(e, INVALID, "%s='%s' is not a number in 0..%ld", name, text, max);
  *out = (int)v;
  return AC_OK;
}

/* Tasks on machine `node` of Slurm's list "4(x2),3". */
static int slurm_tasks(const char *list, int node) {
  while (list != NULL && *list != 0) {
    char *end;
    long n = strtol(list, &end, 10), times = 1;
    if (end == list || n <= 0) return NOT_SET;
    if (end[0] == '(' && end[1] == 'x') {
      times = strtol(end + 2, &end, 10);
      if (*end++ != ')' || times <= 0) return NOT_SET;
    }
    if (node < times) return (int)n;
    node -= (int)times;
    list = *end == ',' ? end + 1 : NULL;
  }
  return NOT_SET;
}

/* First name of Slurm's node list: "n[01-03,7],m4" gives n01. */
static bool slurm_first(const char *list, char *out, size_t n) {
  if (list == NULL || *list == 0) return false;
  size_t k = strcspn(list, "[,");
  if (k + 1 > n) return false;
  memcpy(out, list, k);
  out[k] = 0;
  if (list[k] != '[') return true;
  const char *digits = list + k + 1;
  size_t d = strspn(digits, "0123456789");
  if (d == 0 || k + d + 1 > n) return false;
  memcpy(out + k, digits, d);
  out[k + d] = 0;
  return true;
}

static ac_status read_set(const names *l, aci_place *p, bool *complete, ac_err *e) {
  int rank, size, local_rank, local_size;
  *complete = false;
  AC_TRY(number(l->rank, INT_MAX, &rank, e));
  AC_TRY(number(l->size, INT_MAX, &size, e));
  if (l == launchers && (rank == NOT_SET) != (size == NOT_SET))
    ac_log_write(AC_LOG_WARN, "comm", "%s is set without %s; ignored",
                 rank == NOT_SET ? l->size : l->rank, rank == NOT_SET ? l->rank : l->size);
  if (rank == NOT_SET || size == NOT_SET) return AC_OK;
  if (l == &launchers[SLURM]) {
    /* a batch script and a salloc shell have these variables as well, without being one of many */
    int step;
    AC_TRY(number("SLURM_STEP_NUM_TASKS", INT_MAX, &step, e));
    if (step != size || size <= 1) return AC_OK;
  }
  if (size == 0) return AC_FAIL(e, INVALID, "%s=0: a world has at least one rank", l->size);
  if (rank >= size)
    return AC_FAIL(e, INVALID, "%s=%d must be below %s=%d", l->rank, rank, l->size, size);
  AC_TRY(number(l->local_rank, INT_MAX, &local_rank, e));
  AC_TRY(number(l->local_size, INT_MAX, &local_size, e));
  p->machine = NOT_SET;
  if (l == &launchers[SLURM]) {
    AC_TRY(number("SLURM_NODEID", INT_MAX, &p->machine, e));
    local_size = slurm_tasks(getenv("SLURM_STEP_TASKS_PER_NODE"), p->machine < 0 ? 0 : p->machine);
  }
  if (l == &launchers[FLUX]) {
    int machines;
    AC_TRY(number("FLUX_JOB_NNODES", INT_MAX, &machines, e));
    if (machines > 1 && size % machines != 0)
      return AC_FAIL(e, UNSUPPORTED,
                     "Flux runs %d ranks on %d machines and does not name the number on this one; "
                     "start equally many on each: flux run -N %d --tasks-per-node=M",
                     size, machines, machines);
    if (machines > 1) local_size = size / machines;
  }
  if (local_size == NOT_SET) local_size = size; /* not given: one machine */
  if (local_rank == NOT_SET) local_rank = rank % local_size;
  if (local_size < 1 || local_size > size || local_rank >= local_size)
    return AC_FAIL(e, INVALID, "%s: local rank %d of %d does not fit rank %d of %d", l->source,
                   local_rank, local_size, rank, size);
  p->rank = rank;
  p->size = size;
  p->local_rank = local_rank;
  p->local_size = local_size;
  snprintf(p->source, sizeof p->source, "%s", l->source);
  *complete = true;
  return AC_OK;
}

/* srun --mpi=pmi2: the step's own variables name its machines as well. */
static ac_status read_step(aci_place *p, ac_err *e) {
  aci_place step = *p;
  bool complete;
  AC_TRY(read_set(&launchers[SLURM], &step, &complete, e));
  if (!complete || step.rank != p->rank || step.size != p->size) return AC_OK;
  *p = step;
  p->pmi = true;
  return AC_OK;
}

/* No launcher gave rank and size: one that gave a rank alone ends the run. */
static ac_status refuse_sizeless(ac_err *e) {
  int step;
  AC_TRY(number("SLURM_STEP_NUM_TASKS", INT_MAX, &step, e));
  for (int i = 0; i < N_SIZELESS && step != 1; i++) { /* srun -n 1 --mpi=pmix is one process */
    int rank;
    AC_TRY(number(sizeless[i].rank, INT_MAX, &rank, e));
    if (rank != NOT_SET)
      return AC_FAIL(e, UNSUPPORTED,
                     "%s=%d: this is a rank of a job that %s started, and the number of ranks is "
                     "missing. Set RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and MASTER_ADDR "
                     "in each rank, or start them by mpirun, srun, flux or accel-run. "
                     "ACCEL_WORLD=none is for a process that is alone",
                     sizeless[i].rank, rank, sizeless[i].source);
  }
  return AC_OK;
}

/* "segment=5,heaps=6:7:8,console=9", as the launcher wrote it. */
static ac_status read_fds(const char *text, aci_place *p, ac_err *e) {
  static const char *const keys[] = {"control=", "segment=", "heaps=", "console=", "front="};
  enum { N_KEYS = sizeof keys / sizeof keys[0], HEAPS = 2, FRONT = 4 };
  const char *at = text;
  while (*at != 0) {
    int key = 0;
    while (key < N_KEYS && strncmp(at, keys[key], strlen(keys[key])) != 0) key++;
    if (key == N_KEYS) break;
    at += strlen(keys[key]);
    for (;;) {
      char *end;
      long fd = strtol(at, &end, 10);
      if (end == at || fd < 0 || fd > INT_MAX)
        return AC_FAIL(e, INVALID, "ACCEL_WORLD='%s': not a value of the launcher; leave it unset",
                       text);
      at = end;
      if (key == 0) p->fd_control = (int)fd;
      if (key == 1) p->fd_segment = (int)fd;
      if (key == HEAPS && p->n_heaps < ACI_MAX_LOCAL) p->fd_heap[p->n_heaps++] = (int)fd;
      if (key == 3) p->fd_console = (int)fd;
      if (key == FRONT && p->n_fronts < ACI_MAX_LOCAL) p->fd_front[p->n_fronts++] = (int)fd;
      if ((key != HEAPS && key != FRONT) || *at != ':') break;
      at++;
    }
    if (*at == ',') at++;
  }
  if (*at != 0 || p->fd_segment < 0 || p->n_heaps != p->local_size ||
      (p->n_fronts != 0 && p->n_fronts != p->local_size))
    return AC_FAIL(
        e, INVALID,
        "ACCEL_WORLD='%s' does not fit LOCAL_WORLD_SIZE=%d; it is set by accel-run for its ranks only",
        text, p->local_size);
  return AC_OK;
}

static ac_status read_address(aci_place *p, ac_err *e) {
  const char *address = getenv("MASTER_ADDR"), *job = getenv("SLURM_JOB_ID");
  int port;
  AC_TRY(number("MASTER_PORT", 65535, &port, e));
  if (address != NULL && address[0] != 0) {
    if (strlen(address) >= sizeof p->address) return AC_FAIL(e, INVALID, "MASTER_ADDR is too long");
    const size_t n = strlen(address);
    /* [::1], as in a URL */
    const bool brackets = n > 2 && address[0] == '[' && address[n - 1] == ']';
    snprintf(p->address, sizeof p->address, "%.*s", (int)(brackets ? n - 2 : n),
             address + brackets);
  } else if (p->local_size == p->size) {
    snprintf(p->address, sizeof p->address, "127.0.0.1");
  } else if (strcmp(p->source, "Slurm") == 0) {
    slurm_first(getenv("SLURM_STEP_NODELIST"), p->address, sizeof p->address);
  }
  if (port == NOT_SET) {
    port = 29500;
    /* jobs share machines */
    if (strcmp(p->source, "Slurm") == 0 && job != NULL) port = 20000 + atoi(job) % 20000;
  }
  /* torchrun's agent listens on MASTER_PORT itself */
  const char *store = getenv("TORCHELASTIC_USE_AGENT_STORE");
  if (store != NULL && strcmp(store, "True") == 0) port = port < 65535 ? port + 1 : port - 1;
  p->port = port;
  return AC_OK;
}

ac_status aci_discover(aci_place *p, ac_err *e) {
  memset(p, 0, sizeof *p);
  p->size = p->local_size = p->machines = 1;
  p->fd_control = p->fd_segment = p->fd_console = -1;
  const char *fds = getenv("ACCEL_WORLD"), *id;
  /* accel-run sets "joined=<pid>" once it has joined: programs that its script starts are not
   * ranks, and it cannot join twice */
  if (fds != NULL && strncmp(fds, "joined=", 7) == 0 && atol(fds + 7) == (long)getpid())
    return AC_FAIL(e, INVALID, "a rank of accel-run can join its world only once, and has left it");
  if (fds != NULL && (strcmp(fds, "none") == 0 || strncmp(fds, "joined=", 7) == 0)) return AC_OK;
  const bool ours = fds != NULL && fds[0] != 0;
  /* the first complete set is used. Later ones must agree, except Slurm's, and except all sets if
   * our own launcher set one */
  bool found = false;
  for (int i = 0; i < N_LAUNCHERS; i++) {
    aci_place other = *p;
    bool complete;
    if (found && (ours || i >= FLUX)) break;
    AC_TRY(read_set(&launchers[i], &other, &complete, e));
    if (!complete) continue;
    if (!found) {
      *p = other;
      found = true;
    } else if (other.rank != p->rank || other.size != p->size) {
      return AC_FAIL(
          e, INVALID,
          "%s gives rank %d of %d, %s gives rank %d of %d; unset the variables of one of them",
          p->source, p->rank, p->size, other.source, other.rank, other.size);
    }
  }
  if (!found && !ours) AC_TRY(refuse_sizeless(e));
  if (found && strcmp(p->source, launchers[MPICH].source) == 0) AC_TRY(read_step(p, e));
  if (ours) {
    if (!found || strcmp(p->source, "torchrun") != 0)
      return AC_FAIL(
          e, INVALID,
          "ACCEL_WORLD is set without RANK and WORLD_SIZE; it is set by accel-run for its ranks only");
    snprintf(p->source, sizeof p->source, "accel-run");
    AC_TRY(read_fds(fds, p, e));
  }
  int machine, machines;
  AC_TRY(number("GROUP_RANK", INT_MAX, &machine, e));
  AC_TRY(number("GROUP_WORLD_SIZE", INT_MAX, &machines, e));
  const bool named = found && (ours || strcmp(p->source, "torchrun") == 0);
  /* without GROUP_RANK machines are taken to have equally many ranks each */
  p->machines = named && machines > 0 ? machines : (p->size + p->local_size - 1) / p->local_size;
  if (p->machine <= 0)
    p->machine = named && machine >= 0 ? machine : (p->rank - p->local_rank) / p->local_size;
  AC_TRY(number("TORCHELASTIC_RESTART_COUNT", INT_MAX, &p->restart, e));
  AC_TRY(number("TORCHELASTIC_MAX_RESTARTS", INT_MAX, &p->max_restarts, e));
  if (p->restart < 0) p->restart = 0;
  if (p->max_restarts < 0) p->max_restarts = 0;
  if ((id = getenv("TORCHELASTIC_RUN_ID")) == NULL || id[0] == 0) id = getenv("SLURM_JOB_ID");
  if (found && id != NULL && id[0] != 0) AC_TRY(aci_run_id_of(id, "", 0, p->run_id, e));
  return found ? read_address(p, e) : AC_OK;
}

int ac_env_local_rank(void) {
  aci_place p;
  ac_err e;
  if (aci_discover(&p, &e) == AC_OK) return p.local_rank;
  const char *said = getenv("LOCAL_RANK"); /* a second host of a rank that has joined */
  return said != NULL && atoi(said) > 0 ? atoi(said) : 0;
}
