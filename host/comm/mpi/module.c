/* accel_mpi.so: messages by MPI_Isend and MPI_Irecv, for the table of mpi.h. Opened by mpi.c on
 * first use.
 *
 * A message above PIECE bytes travels as several, all begun at once: MPI counts in int, and MPI's
 * own order keeps the pieces of two messages apart. Channels become tags. Collectives of a world
 * run one after the other on every rank, so their tag only has to distinguish neighbours. Sends and
 * receives are matched by group and tag. While both are small they fit into MPI's tag. Otherwise
 * they are hashed in a communicator of their own. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/mpi/mpi.h"

enum { PIECE = 1 << 30, COLLECTIVE = 0, EXACT = 1, HASHED = 2, N_COMMS = 3, LEAST_TAG_UB = 32767 };

struct aci_mpi_requests {
  int n, left;
  bool sends;
  MPI_Request r[];
};
typedef struct aci_mpi_requests requests;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of everything below, and of MPI */
static MPI_Comm comms[N_COMMS], fresh[N_COMMS];
/* a world is joined. We initialised MPI. A world ended with an error */
static bool joined, ours, spoiled;
static int tag_bits;
/* of gather_begin, barrier_begin, renew_begin */
static MPI_Request pending[N_COMMS] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
static struct {
  int room;
  MPI_Request *r;
  MPI_Status *status;
  int *index, *owner; /* owner: transfer of r[i]. place: its index among that transfer's requests */
  int *place;
} batch;

static bool explain(int rc, const char *what, char *why) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int n;
  if (rc == MPI_SUCCESS) return true;
  if (MPI_Error_string(rc, text, &n) != MPI_SUCCESS) snprintf(text, sizeof text, "error %d", rc);
  snprintf(why, ACI_MPI_TEXT, "%s: %.200s", what, text);
  return false;
}

/* ---- the world ---- */
/* MPI_Finalize waits for all ranks: after a failure it would wait for ever. */
static void at_exit(void) {
  int ended = 0;
  if (!joined && !spoiled && MPI_Finalized(&ended) == MPI_SUCCESS && !ended) MPI_Finalize();
}

static bool init_mpi(char *why) {
  int has = 0, level = MPI_THREAD_SINGLE, ended = 0;
  MPI_Finalized(&ended);
  if (ended || joined || spoiled) {
    snprintf(why, ACI_MPI_TEXT, "%s",
             ended    ? "MPI is finalised already"
             : joined ? "this process is in a world already"
                      : "an earlier world of this process failed; start the job anew");
    return false;
  }
  MPI_Initialized(&has);
  if (has) {
    MPI_Query_thread(&level);
  } else {
    if (!explain(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread", why))
      return false;
    ours = true;
    atexit(at_exit);
  }
  if (level >= MPI_THREAD_SERIALIZED) return true;
  snprintf(why, ACI_MPI_TEXT,
           "this MPI %s without MPI_THREAD_SERIALIZED, which the communication thread needs",
           has ? "was initialised" : "comes");
  return false;
}

static bool init(int *rank, int *size, char *why) {
  pthread_mutex_lock(&lock);
  bool ok = init_mpi(why);
  joined |= ok;
  for (int i = 0; ok && i < N_COMMS; i++) {
    ok = explain(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]), "MPI_Comm_dup", why) &&
         explain(MPI_Comm_set_errhandler(comms[i], MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler",
                 why);
  }
  if (ok) {
    int *ub = NULL, found = 0;
    MPI_Comm_get_attr(comms[0], MPI_TAG_UB, &ub, &found);
    const int most = found && *ub > LEAST_TAG_UB ? *ub : LEAST_TAG_UB;
    for (tag_bits = 0; tag_bits < 31 && most >> tag_bits != 0;) tag_bits++;
    if (most != (int)((1u << tag_bits) - 1)) tag_bits--;
    MPI_Comm_rank(comms[0], rank);
    MPI_Comm_size(comms[0], size);
  }
  pthread_mutex_unlock(&lock);
  return ok;
}

static void fini(bool good) {
  pthread_mutex_lock(&lock);
  for (int i = 0; joined && good && i < N_COMMS; i++) MPI_Comm_free(&comms[i]);
  if (joined && !good) spoiled = true;
  joined = false;
  pthread_mutex_unlock(&lock);
}

static bool gather_begin(const void *mine, size_t bytes, void *all, char *why) {
  pthread_mutex_lock(&lock);
  bool ok = explain(MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                                   comms[COLLECTIVE], &pending[0]),
                    "MPI_Iallgather", why);
  pthread_mutex_unlock(&lock);
  return ok;
}

static bool barrier_begin(char *why) {
  pthread_mutex_lock(&lock);
  bool ok = explain(MPI_Ibarrier(comms[COLLECTIVE], &pending[0]), "MPI_Ibarrier", why);
  pthread_mutex_unlock(&lock);
  return ok;
}

static void progress(void) {
  int any = 0;
  pthread_mutex_lock(&lock);
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comms[COLLECTIVE], &any, MPI_STATUS_IGNORE);
  pthread_mutex_unlock(&lock);
}

static int test(char *why) {
  int done = 0;
  pthread_mutex_lock(&lock);
  bool ok = explain(MPI_Testall(N_COMMS, pending, &done, MPI_STATUSES_IGNORE), "MPI_Testall", why);
  pthread_mutex_unlock(&lock);
  return ok ? done : -1;
}

static bool renew_begin(char *why) {
  pthread_mutex_lock(&lock);
  bool ok = true;
  for (int i = 0; ok && i < N_COMMS; i++)
    ok = explain(MPI_Comm_idup(MPI_COMM_WORLD, &fresh[i], &pending[i]), "MPI_Comm_idup", why);
  pthread_mutex_unlock(&lock);
  return ok;
}

/* The old ones stay as they are: messages that nobody takes lie in them. */
static void renew_end(void) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < N_COMMS; i++) {
    comms[i] = fresh[i];
    MPI_Comm_set_errhandler(comms[i], MPI_ERRORS_RETURN);
  }
  pthread_mutex_unlock(&lock);
}

/* ---- messages ---- */
/* Which communicator and tag carry a channel: bit 32 is set for sends and receives, the group lies
 * above it, the sequence number or the user's tag below. */
static int tag_of(uint64_t channel, MPI_Comm *comm) {
  const uint32_t low = (uint32_t)channel, most = (uint32_t)((1ull << tag_bits) - 1);
  const uint64_t group = channel >> 33;
  if ((channel >> 32 & 1) == 0) {
    *comm = comms[COLLECTIVE];
    return (int)(low & most);
  }
  const int group_bits = tag_bits / 3, user_bits = tag_bits - group_bits;
  if (group >> group_bits == 0 && low >> user_bits == 0) {
    *comm = comms[EXACT];
    return (int)((uint32_t)group << user_bits | low);
  }
  uint64_t h = channel; /* finaliser of splitmix64 */
  h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
  h = (h ^ h >> 27) * 0x94d049bb133111ebu;
  *comm = comms[HASHED];
  return (int)((h ^ h >> 31) & most);
}

static aci_mpi_transfer *make(int peer, bool sends, size_t bytes) {
  const size_t n = bytes == 0 ? 1 : (bytes - 1) / PIECE + 1;
  aci_mpi_transfer *t = calloc(1, sizeof *t);
  requests *q = malloc(sizeof *q + n * sizeof q->r[0]);
  if (t == NULL || q == NULL) {
    free(t);
    free(q);
    return NULL;
  }
  for (size_t i = 0; i < n; i++) q->r[i] = MPI_REQUEST_NULL;
  q->n = (int)n;
  q->left = 0;
  q->sends = sends;
  t->peer = peer;
  t->bytes = bytes;
  t->requests = q;
  return t;
}

static int piece_bytes(const aci_mpi_transfer *t, int i) {
  const size_t left = t->bytes - (size_t)i * PIECE;
  return left < PIECE ? (int)left : PIECE;
}

/* Gives up the requests under way. An unmatched receive ends at once. For the rest MPI keeps the
 * request. */
static void abandon(requests *q) {
  for (int i = 0; i < q->n; i++) {
    if (q->r[i] == MPI_REQUEST_NULL) continue;
    int done = 0;
    MPI_Cancel(&q->r[i]);
    MPI_Test(&q->r[i], &done, MPI_STATUS_IGNORE);
    if (!done) MPI_Request_free(&q->r[i]);
  }
}

static aci_mpi_transfer *start(int peer, bool sends, uint64_t channel, void *ptr, size_t bytes,
                               char *why) {
  aci_mpi_transfer *t = make(peer, sends, bytes);
  if (t == NULL) {
    snprintf(why, ACI_MPI_TEXT, "no memory for a message");
    return NULL;
  }
  requests *q = t->requests;
  bool ok = true;
  MPI_Comm comm;
  pthread_mutex_lock(&lock);
  const int tag = tag_of(channel, &comm);
  for (int i = 0; ok && i < q->n; i++) {
    char *at = bytes == 0 ? NULL : (char *)ptr + (size_t)i * PIECE;
    const int n = bytes == 0 ? 0 : piece_bytes(t, i);
    ok = sends ? explain(MPI_Isend(at, n, MPI_BYTE, peer, tag, comm, &q->r[i]), "MPI_Isend", why)
               : explain(MPI_Irecv(at, n, MPI_BYTE, peer, tag, comm, &q->r[i]), "MPI_Irecv", why);
    if (ok) q->left++;
  }
  if (!ok) abandon(q);
  pthread_mutex_unlock(&lock);
  if (ok) return t;
  free(q);
  free(t);
  return NULL;
}

static bool batch_room(int n) {
  if (n <= batch.room) return true;
  const size_t k = (size_t)n + 64;
  free(batch.r);
  free(batch.status);
  free(batch.index);
  batch.r = malloc(k * sizeof *batch.r);
  batch.status = malloc(k * sizeof *batch.status);
  batch.index = malloc(3 * k * sizeof *batch.index);
  batch.owner = batch.index + k;
  batch.place = batch.owner + k;
  batch.room = batch.r != NULL && batch.status != NULL && batch.index != NULL ? (int)k : 0;
  return batch.room > 0;
}

/* Takes the outcome of one request. A fault ends the whole transfer. */
static bool take(aci_mpi_transfer *t, int place, const MPI_Status *s, bool has_error, char *why) {
  requests *q = t->requests;
  int got = 0;
  char what[64];
  q->left--;
  t->over |= q->left == 0;
  if (has_error && s->MPI_ERROR != MPI_SUCCESS) {
    int class = MPI_ERR_OTHER;
    MPI_Error_class(s->MPI_ERROR, &class);
    snprintf(what, sizeof what, "a message with rank %d", t->peer);
    explain(s->MPI_ERROR, what, why);
    t->fault = class == MPI_ERR_TRUNCATE ? ACI_MPI_LENGTH : ACI_MPI_BROKEN;
    t->over = true;
    return false;
  }
  if (q->sends || MPI_Get_count(s, MPI_BYTE, &got) != MPI_SUCCESS || got == piece_bytes(t, place))
    return true;
  snprintf(why, ACI_MPI_TEXT, "rank %d sent %d bytes, expected %d", t->peer, got,
           piece_bytes(t, place));
  t->fault = ACI_MPI_LENGTH;
  t->over = true;
  return false;
}

static int poll_all(aci_mpi_transfer *const *t, int n, char *why) {
  int total = 0, k = 0, done = 0, over = 0;
  for (int i = 0; i < n; i++)
    if (t[i] != NULL && !t[i]->over) total += t[i]->requests->n;
  if (total == 0) return 0;
  if (!batch_room(total)) {
    snprintf(why, ACI_MPI_TEXT, "no memory for %d requests", total);
    return -1;
  }
  /* the requests of all transfers in one array: owner and place lead back from MPI's indices */
  for (int i = 0; i < n; i++) {
    if (t[i] == NULL || t[i]->over) continue;
    for (int j = 0; j < t[i]->requests->n; j++) {
      if (t[i]->requests->r[j] == MPI_REQUEST_NULL) continue;
      batch.r[k] = t[i]->requests->r[j];
      batch.owner[k] = i;
      batch.place[k++] = j;
    }
  }
  const int rc = MPI_Testsome(k, batch.r, &done, batch.index, batch.status);
  if (rc != MPI_SUCCESS && rc != MPI_ERR_IN_STATUS) {
    explain(rc, "MPI_Testsome", why);
    return -1;
  }
  bool ok = true;
  if (done == MPI_UNDEFINED) done = 0;
  for (int i = 0; i < done; i++) {
    const int at = batch.index[i];
    aci_mpi_transfer *x = t[batch.owner[at]];
    x->requests->r[batch.place[at]] = MPI_REQUEST_NULL;
    ok = take(x, batch.place[at], &batch.status[i], rc == MPI_ERR_IN_STATUS, why) && ok;
    over += x->over && x->fault == ACI_MPI_FINE;
  }
  return ok ? over : -1;
}

static int poll(aci_mpi_transfer *const *t, int n, char *why) {
  pthread_mutex_lock(&lock);
  int over = poll_all(t, n, why);
  pthread_mutex_unlock(&lock);
  return over;
}

static void drop(aci_mpi_transfer *t) {
  if (t == NULL) return;
  if (t->requests->left > 0) {
    pthread_mutex_lock(&lock);
    abandon(t->requests);
    pthread_mutex_unlock(&lock);
  }
  free(t->requests);
  free(t);
}

/* ---- the table ---- */
static char library[64];
static const aci_mpi_api api = {.version = ACI_MPI_API_VERSION,
                                .library = library,
                                .init = init,
                                .fini = fini,
                                .gather_begin = gather_begin,
                                .barrier_begin = barrier_begin,
                                .test = test,
                                .renew_begin = renew_begin,
                                .renew_end = renew_end,
                                .progress = progress,
                                .start = start,
                                .poll = poll,
                                .drop = drop};

__attribute__((visibility("default"))) const aci_mpi_api *accel_mpi_open(void);
const aci_mpi_api *accel_mpi_open(void) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int n = 0;
  pthread_mutex_lock(&lock);
  if (library[0] == 0 && MPI_Get_library_version(text, &n) == MPI_SUCCESS) {
    text[strcspn(text, ",\n")] = 0; /* cut off the build details */
    snprintf(library, sizeof library, "%.*s", (int)sizeof library - 1, text);
  }
  pthread_mutex_unlock(&lock);
  return &api;
}
