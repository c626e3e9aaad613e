/* Internals of the comm stage: the world, its groups, the backend table.
 *
 * Life of a collective: check.c completes and checks it on this rank alone -> record.c opens a row
 * -> the backend's run (inline on the caller when nothing is queued, else on the one communication
 * thread, work.c) -> the row is closed. Backends compare descriptors themselves, since each has its
 * own way to exchange them (slots, messages). aci_mismatch and aci_wait word every error, so that
 * all backends report the same.
 *
 *   discover.c     rank and size, from the environment of whoever started us
 *   world.c        joining and leaving. group.c: groups of ranks
 *   check.c        checks of a collective on one rank, and the messages for ranks that differ
 *   work.c         inline or on the communication thread. record.c: the flight recorder
 *   segment.[ch]   the control segment that local ranks share. heap.c: the memory that they share,
 *                  the heap
 *   wait.[ch]      every wait for a local rank. watch.c: its checks (aborts, deaths, time).
 *                  deadlock.c: rings of waits
 *   late.c         ranks that are later than the others
 *   abort.c        why the job ends, kept once per rank
 *   generation.c   an elastic job after the loss of ranks: the same handles with fewer members.
 *                  tcp/generation.c: the same for its links
 *   join.c         ranks that come and go between two updates of an elastic job
 *   reduce.[ch]    the arithmetic of reductions, one for all backends
 *   prompt.c       a barrier for the prompt of a REPL, and beginning anew after an abort
 *   solo/          a world of one: collectives are copies
 *   shm/           one machine: slots, staging buffers and heaps
 *   link/          every algorithm over messages between two ranks. tcp/ and mpi/ move the messages
 *   tcp/           sockets: rendezvous, a mesh of connections, also the host channel of mpi/
 *   mpi/           Open MPI or MPICH, in a module that is loaded on first use
 *   nccl/          tensors on GPUs, on top of the backend, which compares their descriptors
 *   sim/           one rank of a world that is not there: bytes are counted, nothing travels */
#ifndef ACI_COMM_IMPL_H
#define ACI_COMM_IMPL_H
#include <pthread.h>
#include <string.h>

#include "accel/comm.h"
#include "base/relax.h"
#include "comm/segment.h"

typedef struct aci_backend {
  size_t struct_size;
  const char *name;
  /* join: all ranks of the world call it once, on the owner's thread. May block up to the timeout.
   * Fills world->impl. */
  ac_status (*join)(ac_world *w, ac_err *e);
  void (*leave)(ac_world *w, const char *site); /* notifies peers. Frees world->impl */
  /* group_open: called on every member, in the same order everywhere. Does not communicate.
   * (optional) */
  ac_status (*group_open)(ac_group *g, ac_err *e);
  void (*group_close)(ac_group *g); /* (optional) */
  /* run: one collective that check.c found sound, desc filled in except where_*. Blocks until it is
   * done. One at a time per world, on the owner's or the communication thread. Everything but SEND
   * and RECV. */
  ac_status (*run)(ac_group *g, const ac_coll *c, aci_desc *d, ac_err *e);
  /* send_recv: one step of a SEND or RECV, without blocking. *state belongs to the transfer and is
   * NULL before the first call. Sets *done once it is over. After an error the transfer is over as
   * well. Called with *done true (after an abort): only frees *state. */
  ac_status (*send_recv)(ac_group *g, const ac_coll *c, aci_desc *d, void **state, bool *done,
                         ac_err *e);
  /* every event that a send or receive may wait for rings the rank's doorbell (segment.h): waiters
   * sleep there and do not poll */
  bool rings;
  /* abort: any thread. Every wait of this rank ends soon, and peers learn the abort reason. If
   * there is a segment, its abort reason is set already. (optional) */
  void (*abort)(ac_world *w, ac_status code, int rank, const char *text);
  /* reset: called with no work of this rank under way after an abort. Sets the groups' seq and the
   * backend's counters to
   * 0. (optional: without it an abort is the end) */
  ac_status (*reset)(ac_world *w, ac_err *e);
  /* reform: called with no work under way on any rank, after ranks were lost. The groups have their
   * new members, and the segment is empty. (optional: such a world cannot be elastic) */
  ac_status (*reform)(ac_world *w, ac_err *e);
  /* hosts: names of the other machines, "a,b". (optional: there are none) */
  void (*hosts)(const ac_world *w, char *buf, size_t n);
  /* bytes: the bytes that this rank sends for c, for ac_world_bytes_sent. (optional: the bytes that
   * the caller passes, once) */
  uint64_t (*bytes)(const ac_group *g, const ac_coll *c);
} aci_backend;

extern const aci_backend aci_solo_backend, aci_shm_backend, aci_tcp_backend, aci_sim_backend;
const aci_backend *aci_mpi_backend(ac_err *e); /* loads accel_mpi.so. NULL with the reason */

enum { ACI_RUN_ID = 64 }; /* bytes of the name of a job with its end */

/* Our place, from the launcher or the environment. */
typedef struct aci_place {
  int rank, size, local_rank, local_size, machine, machines;
  char source[24];   /* "accel-run", "torchrun", "Open MPI", "MPICH", "Flux", "Slurm", "" */
  bool pmi;          /* srun --mpi=pmi2: the ranks may have MPI */
  char address[256]; /* of rank 0's rendezvous. "" none */
  int port;
  char run_id[ACI_RUN_ID];
  int restart, max_restarts;
  int fd_control, fd_segment, n_heaps; /* -1: none */
  int fd_heap[ACI_MAX_LOCAL];
  int fd_console; /* this rank's end of the line to the REPL's prompt. -1: none */
  /* of the first local rank in a script: the prompt's ends, one per local rank. 0: none */
  int n_fronts;
  int fd_front[ACI_MAX_LOCAL];
} aci_place;
/* Reads the environment (ecosystem's table of launchers). No variables: rank 0 of 1. INVALID names
 * the two sets that contradict. */
ac_status aci_discover(aci_place *out, ac_err *e);

/* Told of every collective that has ended, on the thread that ran it (profile). */
typedef struct aci_coll_watch {
  void (*fn)(void *user, const ac_comm_record *row);
  void *user;
} aci_coll_watch;

typedef struct aci_record_ring aci_record_ring;
typedef struct aci_queue aci_queue;
typedef struct aci_heap_maps aci_heap_maps;
typedef struct aci_device_op aci_device_op;
struct aci_nccl;
struct aci_nccl_group;

/* A wait's memory of a ring of ranks that wait for each other (deadlock.c). Zero at first. */
typedef struct aci_deadlock_probe {
  int64_t checked_at; /* ns */
  aci_wait_kind weakest;
  int n;                        /* ranks in the ring that was found then. 0: none */
  uint8_t ring[ACI_MAX_LOCAL];  /* local ranks */
  uint32_t turn[ACI_MAX_LOCAL]; /* their `waiting` then */
} aci_deadlock_probe;

/* The memory of a world's waits about the other ranks of this machine (watch.c). */
typedef struct aci_watchdog {
  int64_t probed;                    /* ns: of the last look at processes */
  int64_t gone[ACI_MAX_LOCAL];       /* ns: time at which its end was first seen. 0: not seen */
  uint32_t told[ACI_MAX_LOCAL / 32]; /* reported as stopped */
  int64_t prompt_seen;               /* ns: when some rank was last seen at a prompt */
  bool told_prompt;                  /* and that was reported */
  /* of a wait after which it is reported the first time. 0: never */
  int64_t late_ns;
  /* the wait that was looked at last, its length at the next report */
  int64_t late_began, late_next;
  int64_t began; /* the wait that aci_wait_check was last asked about */
  int missing;
  aci_deadlock_probe probe;
} aci_watchdog;

struct ac_world {
  ac_ctx *ctx;
  aci_place place;
  /* of accel. The script's path: ranks must have the same contents */
  char version[24], script[104];
  uint64_t script_hash; /* 0: not known */
  const aci_backend *backend;
  void *impl;              /* the backend's */
  aci_segment_map segment; /* of this machine. head NULL: none */
  aci_page *page;          /* this rank's. NULL: none */
  aci_heap_maps *heap;     /* NULL: none */
  struct aci_nccl *nccl;   /* of nccl/. NULL: no group has a communicator so far */
  /* sends and receives of its tensors go through it (ac_world_bind_device) */
  bool pairs_on_device;
  ac_group *all;
  ac_group *groups;    /* list of the others */
  uint32_t next_group; /* id of the next one, the same on all ranks */
  uint64_t used_groups[ACI_GROUPS / 64];
  _Atomic int64_t timeout_ns;
  int64_t join_ns; /* the same for the start, when ranks meet. 0: timeout_ns */
  bool sim_shares; /* of the sim backend: local ranks share memory */
  /* turns of a spinning wait before it sleeps. 0 when ranks outnumber cores */
  int spins;
  /* the same for the communication thread. 0 if it has no core besides the rank's own */
  int thread_spins;
  aci_record_ring *records;
  aci_queue *queue;
  _Atomic uint64_t bytes_sent;
  /* NULL: none. Called for collectives while there is a flight recorder */
  _Atomic(const aci_coll_watch *) coll_watch;
  _Atomic int telling; /* calls of it under way */
  /* the abort reason as this rank knows it */
  aci_watchdog watch;
  pthread_t owner;                   /* the thread that joined */
  _Atomic int awaited;               /* works that the owner waits for */
  const volatile int64_t *interrupt; /* ac_world_set_interrupt. NULL: none */
  _Atomic int aborted;               /* 0 no, 1 being written, 2 abort_reason is valid */
  ac_err abort_reason;
  /* of an elastic job (generation.c) */
  uint32_t round; /* the one that it knows. Another in the segment: ranks were lost since */
  uint64_t generation;
  /* Ranks have other numbers than at the start: seat[r] is the number that rank r had then. From the
   * first of its machine on it stays the index of its page, heap, slots and mailboxes */
  bool reseated;
  uint8_t seat[ACI_MAX_LOCAL];
  int first; /* number at the start of the first rank of this machine */
  /* it was started into a job that runs, and is no member yet (join.c). preamble: its calls are those
   * that every rank makes alike */
  bool observes, preamble;
};

/* Number at the start of a world rank. */
static inline int aci_start_of(const ac_world *w, int rank) {
  return w->reseated ? w->seat[rank] : rank;
}

/* Local rank, at the start, of a world rank. -1: it is on another machine. */
static inline int aci_seat_of(const ac_world *w, int rank) {
  const int i = aci_start_of(w, rank) - w->first;
  return i >= 0 && i < w->place.local_size ? i : -1;
}
/* The number of this rank at the start, as in names of files. */
static inline int aci_start_rank(const ac_world *w) { return w->first + w->place.local_rank; }

struct ac_group {
  ac_world *world;
  ac_group *next;
  uint32_t id;                   /* 0: all. Names it in messages */
  int slot;                      /* index of its slots in the segment. -1: none */
  int rank, size;                /* rank -1: no member */
  int *ranks;                    /* group rank -> global rank */
  uint32_t seq;                  /* collectives so far (sends and receives do not count) */
  void *impl;                    /* the backend's */
  struct aci_nccl_group *device; /* of nccl/. NULL: it has had no collective of a device */
};

/* ---- world.c ---- */
/* How long its waits spin, by its ranks on this machine and the CPUs that they share. */
void aci_world_set_spins(ac_world *w);

/* ---- check.c ---- */
/* Checks one collective on this rank alone and fills the descriptor (seq included. The caller has
 * raised g->seq). */
ac_status aci_coll_check(const ac_group *g, const ac_coll *c, ac_err *e);
void aci_desc_fill(const ac_group *g, const ac_coll *c, uint32_t seq, aci_desc *d);
int64_t aci_part(const ac_coll *c, int r);    /* elements of rank r's part */
int64_t aci_part_at(const ac_coll *c, int r); /* elements before it */
int64_t aci_total(const ac_group *g, const ac_coll *c);
static inline bool aci_desc_same(const aci_desc *a, const aci_desc *b) {
  return memcmp(a, b, ACI_DESC_SAME) == 0;
}
/* The error for descriptors that differ: descs[i] is the descriptor of group rank i (NULL:
 * unknown). Names two groups of ranks, the field that differs and both script lines. Sets the abort
 * reason. Returns AC_MISMATCH. */
ac_status aci_mismatch(ac_group *g, const aci_desc *const *descs, ac_err *e);
/* "all_reduce f32 (1000) sum at train.lua:12" */
const char *aci_desc_text(const aci_desc *d, char *buf, size_t n);

/* ---- wait.c: every wait for another rank of this machine ---- */
/* Waits until the word of group rank `peer` is at or past `value` (wrapping difference). mine: the
 * descriptor of this rank's call, for the status page and messages. Serves aborts, peers that left
 * or died, stopped peers, deadlocks, the timeout. */
ac_status aci_wait_slow(ac_group *g, int peer, _Atomic uint32_t *word, uint32_t value,
                        const aci_desc *mine, ac_err *e);
static inline ac_status aci_wait(ac_group *g, int peer, _Atomic uint32_t *word, uint32_t value,
                                 const aci_desc *mine, ac_err *e) {
  for (int i = g->world->spins; i >= 0; i--) {
    if ((int32_t)(atomic_load_explicit(word, memory_order_acquire) - value) >= 0) return AC_OK;
    aci_relax();
  }
  return aci_wait_slow(g, peer, word, value, mine, e);
}
/* Publishes a value in this rank's own slot and wakes who sleeps on it. */
static inline void aci_signal(aci_slot *own, _Atomic uint32_t *word, uint32_t value) {
  atomic_store_explicit(word, value, memory_order_seq_cst);
  if (atomic_load_explicit(&own->sleepers, memory_order_seq_cst) != 0) aci_futex_wake(word);
}
/* For waits of other kinds (sockets, MPI): call it every few milliseconds at most. An error ends
 * the wait. began: ns when the wait began. missing: group rank that is waited for, -1 several. */
ac_status aci_wait_check(ac_group *g, const aci_desc *mine, int64_t began, int missing, ac_err *e);
/* Such a wait is over (its page otherwise shows it until the next one). */
void aci_wait_over(ac_world *w);

/* ---- abort.c ---- */
/* The job is over: kept here, given to the segment and the backend. rank: whose doing, -1 of
 * several. */
void aci_abort(ac_world *w, ac_status code, int rank, const char *text);
/* AC_OK, or the reason to leave a wait. The abort reason is this rank's error ("stopped: rank 2
 * ..."). MEMBERSHIP: ranks were lost, and the others continue. Cheap. */
ac_status aci_aborted(ac_world *w, ac_err *e);

/* ---- generation.c ---- */
/* Takes over the generation that the launcher has formed. before: the members of that before, of
 * which there are out->size_before, by their numbers at the start. */
ac_status aci_generation_adopt(ac_world *w, const uint8_t *before, ac_membership *out, ac_err *e);

/* ---- join.c ---- */
/* Makes the world of a rank that was started into a job that runs. */
void aci_observe(ac_world *w);
/* The backend of an observer: no other rank is in its world. */
extern const aci_backend aci_observer_backend;
/* Requests to the launcher. seat: number at the start of the rank that leaves. */
ac_status aci_ask_ranks(aci_head *h, int n, ac_err *e);
ac_status aci_ask_leave(aci_head *h, int seat, ac_err *e);
/* It observes, or it does not have the state of the job yet: its failure is its own. */
static inline bool aci_is_guest(const ac_world *w) {
  return w->page != NULL &&
         atomic_load_explicit(&w->page->joins, memory_order_relaxed) != ACI_JOIN_NONE;
}

/* ---- record.c ---- */
aci_record_ring *aci_records_new(int n);
void aci_records_free(aci_record_ring *r);
ac_comm_record *aci_record_begin(ac_world *w, const ac_group *g, const ac_coll *c, uint32_t seq,
                                 bool async);
void aci_record_run(ac_world *w, ac_comm_record *row); /* a queued one begins */
void aci_record_end(ac_world *w, ac_comm_record *row, ac_status st);
/* Sets the watch, borrowed until it is replaced. Waits until the previous one is no longer
 * called. */
void aci_coll_watch_set(ac_world *w, const aci_coll_watch *watch);
/* Writes the recorder as JSON lines to ACCEL_RECORD_FILE, if set. Once per world. */
void aci_records_dump(ac_world *w);

/* ---- work.c ---- */
aci_queue *aci_queue_new(ac_world *w);
/* ends the thread. Works not yet begun fail with the abort reason */
void aci_queue_free(aci_queue *q);
void aci_queue_drain(aci_queue *q); /* waits until nothing is queued */

/* ---- nccl/: collectives of tensors on GPUs ---- */
/* Whether NCCL takes this collective. Others go through host memory. Returns the same on all
 * ranks. */
bool aci_device_takes(const ac_coll *c);
/* Whether it does so in a group whose tensors it takes (ac_group_takes_device): not all kinds go
 * between nodes by another way. */
bool aci_device_serves(const ac_group *g, ac_coll_kind kind);
/* Compares over the host, then queues it after `ready` (NULL: nothing). *out: the queued operation,
 * owned by the caller. */
ac_status aci_device_run(ac_group *g, const ac_coll *c, aci_desc *d, ac_event *ready,
                         aci_device_op **out, ac_err *e);
/* A send or receive, as a backend's send_recv. *out is set with *done, if it was queued. */
ac_status aci_device_send_recv(ac_group *g, const ac_coll *c, aci_desc *d, ac_event *ready,
                               void **state, bool *done, aci_device_op **out, ac_err *e);
/* the compute stream waits for its end, the host does not */
ac_status aci_device_op_join(aci_device_op *op, ac_err *e);
bool aci_device_op_done(aci_device_op *op);
void aci_device_op_release(aci_device_op *op); /* NULL is fine */
/* Called when group g of w has just been made: its members' communicator is split off the world's,
 * if the world has one. Every rank calls it. */
ac_status aci_nccl_split(ac_group *g, bool member, ac_err *e);
void aci_nccl_group_close(ac_group *g);
void aci_nccl_close(ac_world *w);

/* ---- prompt.c: all ranks at one prompt ---- */
/* A barrier of its own kind. */
ac_status aci_prompt_meet(ac_world *w, const char *site, ac_err *e);
/* After an abort, on every rank. All ranks live and wait for the prompt's commands: reset on all of
 * them, then aci_abort_clear once, then resume on all with the greatest *next_group. UNSUPPORTED:
 * the backend cannot. */
ac_status aci_prompt_reset(ac_world *w, uint32_t *next_group, ac_err *e);
void aci_prompt_resume(ac_world *w, uint32_t next_group);

/* ---- heap.c: the memory that all local ranks map ---- */
/* Maps the heaps of all local ranks and makes this rank's the source of parameter memory of the
 * context's CPU device. */
ac_status aci_heap_maps_open(ac_world *w, ac_err *e);
void aci_heap_maps_close(ac_world *w);
/* Offset of [p, p+bytes) in this rank's heap. False: it is private memory. */
bool aci_heap_offset(const ac_world *w, const void *p, size_t bytes, uint64_t *offset);
/* Start of local rank r's heap in this process. */
unsigned char *aci_heap_base(const ac_world *w, int local_rank);
/* Bytes of every heap that this rank maps. 0: there are none. */
size_t aci_heap_span(const ac_world *w);
ac_status aci_heap_make(int *fd, ac_err *e);    /* for the launcher: an empty heap */
bool aci_heap_holds_foreign(const ac_world *w); /* memory in heaps of other ranks */
/* Uses of the mapping in addition to the world's and the pool's. foreign: of another rank's heap,
 * which then stays mapped when the world is closed. */
void aci_heap_maps_hold(aci_heap_maps *h, bool foreign);
void aci_heap_maps_let_go(aci_heap_maps *h, bool foreign);
/* blocks freed from now on keep their pages: others read them */
void aci_heap_maps_keep(aci_heap_maps *h);
bool aci_heap_maps_closed(aci_heap_maps *h);           /* was the world closed? */
_Atomic(void *) *aci_heap_maps_left(aci_heap_maps *h); /* shared.c's list */
/* shared.c: frees the blocks that all members have released. all: this rank leaves, regardless of
 * other holders. */
void aci_shared_sweep(aci_heap_maps *h, bool all);

#endif
