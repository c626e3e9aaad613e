/* accel/comm.h - bytes to other ranks: the world, groups of ranks, collectives.
 *
 * A world is joined once per process. It finds this rank in the environment: first variables of
 * accel-run's launcher (shared memory is inherited, no port is opened), then those set by torchrun,
 * mpirun or srun. Without any it is a world of one. Groups are ordered sets of ranks. The group of
 * all ranks is made with the world. Every collective carries a descriptor (kind, dtype, count,
 * reduction, root, script line), which is compared across ranks before bytes move. A difference, or
 * a rank that left, died or does not come, is an error on every rank. Its message names ranks and
 * lines.
 *
 * Buffers are contiguous host memory, borrowed until the call (or the work) is done. Ranks are
 * 0-based. `root` and peers are positions within the group. Reductions add in one fixed order, a
 * pairwise tree over the ranks of the group, the same in every backend: ((r0 + r1) + (r2 + r3)) +
 * ... 16-bit floats are summed in f32 and rounded once. MEAN divides last. The thread that owns the
 * context must call these functions, except where a comment allows any thread. */
#ifndef ACCEL_COMM_H
#define ACCEL_COMM_H
#include "accel/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ac_world ac_world;
typedef struct ac_group ac_group;
typedef struct ac_work ac_work; /* a collective under way */

/* X(NAME, name as scripts and messages spell it) */
#define AC_COLL_LIST(X)               \
  X(BARRIER, "barrier")               \
  X(ALL_REDUCE, "all_reduce")         \
  X(REDUCE, "reduce")                 \
  X(BROADCAST, "broadcast")           \
  X(ALL_GATHER, "all_gather")         \
  X(GATHER, "gather")                 \
  X(SCATTER, "scatter")               \
  X(REDUCE_SCATTER, "reduce_scatter") \
  X(ALL_TO_ALL, "all_to_all")         \
  X(SEND, "send")                     \
  X(RECV, "recv")                     \
  X(NEW_GROUP, "new_group")           \
  X(PROMPT, "accel.repl()")           \
  X(COMM_INIT, "the first collective of a device")
typedef enum ac_coll_kind {
#define AC_X(name, text) AC_COLL_##name,
  AC_COLL_LIST(AC_X)
#undef AC_X
      AC_COLL_KINDS
} ac_coll_kind;

typedef enum ac_reduce_op {
  AC_REDUCE_SUM,
  AC_REDUCE_MEAN,
  AC_REDUCE_MIN,
  AC_REDUCE_MAX,
  AC_REDUCE_PROD,
  AC_REDUCE_OPS
} ac_reduce_op;
AC_API const char *ac_coll_name(ac_coll_kind k);
AC_API const char *ac_reduce_op_name(ac_reduce_op op); /* "sum" "mean" "min" "max" "prod" */

/* One collective. Counts are elements of dtype. P is the size of the group.
 *   ALL_REDUCE      send[count] -> recv[count] on all
 *   REDUCE          send[count] -> recv[count] at root (recv of others is not touched and may be
 *                   NULL)
 *   BROADCAST       root's recv[count] -> recv[count] of all (send is not used)
 *   ALL_GATHER      send[own part] -> recv[all parts, in rank order]
 *   GATHER          the same, recv at root only
 *   SCATTER         root's send[all parts] -> recv[own part]
 *   REDUCE_SCATTER  send[all parts] -> recv[own part of the reduction]
 *   ALL_TO_ALL      send[parts for ranks 0..P-1] -> recv[parts from ranks 0..P-1]
 *   SEND, RECV      send[count] -> recv[count] of the rank `root`. tag distinguishes messages of
 *                   one pair
 * A part has `count` elements, or counts[r] (P numbers, the same list on all ranks). ALL_TO_ALL:
 * counts are the elements sent to each rank, recv_counts those received from each. send may equal
 * recv if both use the same place for the same elements (ALL_REDUCE, REDUCE, own part of
 * ALL_GATHER, GATHER, SCATTER, REDUCE_SCATTER). MEAN needs a float dtype. For bools SUM and MAX are
 * or, PROD and MIN are and. */
typedef struct ac_coll {
  ac_coll_kind kind;
  ac_dtype dtype;
  ac_reduce_op op;
  int root;
  int tag;
  int64_t count;
  const int64_t *counts, *recv_counts; /* NULL: even */
  const void *send;
  void *recv;
  const char *site; /* "train.lua:12", for messages. Copied. NULL: unknown */
  /* holds send and recv, if ac_group_takes_device allows it (for a send or receive,
   * ac_world_sends_device). Borrowed. NULL: host memory */
  ac_device *device;
} ac_coll;

/* ---- world ---- */
typedef struct ac_world_options {
  size_t struct_size;
  /* "shm", "tcp", "mpi", "solo", "sim". NULL: ACCEL_BACKEND, otherwise the best available */
  const char *backend;
  double timeout_s;       /* limit of every wait. 0: ACCEL_TIMEOUT */
  const char *script;     /* path: its contents must be the same on all ranks. NULL: not compared */
  int sim_rank, sim_size; /* backend "sim": which rank of which world to play */
  int sim_machines;       /* machines with equally many ranks each. 0: one */
  /* ranks of a machine share mapped memory, as in shm. Only its owner accounts for it */
  bool sim_shares_memory;
} ac_world_options;
#define AC_WORLD_OPTIONS_INIT \
  { sizeof(ac_world_options), NULL, 0, NULL, 0, 0, 0, false }
/* Joins. c is borrowed and must outlive the world (its CPU device gets the heap as the source of
 * parameter memory). INVALID for contradicting variables, PEER when ranks cannot be reached,
 * MISMATCH for other versions or scripts. */
AC_API ac_status ac_world_open(ac_ctx *c, const ac_world_options *o, ac_world **out, ac_err *e);
/* Leaves. Ranks that still wait for this one get an error. site: the line at which the script
 * ended, NULL: unknown. */
AC_API void ac_world_close(ac_world *w, const char *site);
/* This rank failed: peers that wait for it get text as the cause. Any thread. */
AC_API void ac_world_fail(ac_world *w, const char *site, const char *text);
/* True when a peer died or failed or a mismatch was found. *e holds the reason. Any thread. */
AC_API bool ac_world_aborted(ac_world *w, ac_err *e);
/* This process's place among the ranks of its machine, from the environment that its launcher set.
 * 0: alone. Joins nothing. */
AC_API int ac_env_local_rank(void);
AC_API int ac_world_rank(const ac_world *w);
AC_API int ac_world_size(const ac_world *w);
AC_API int ac_world_local_rank(const ac_world *w);
AC_API int ac_world_local_size(const ac_world *w);
AC_API int ac_world_machine(const ac_world *w);
AC_API int ac_world_machines(const ac_world *w);
AC_API const char *ac_world_backend(const ac_world *w);
/* Bytes that this rank has handed out of the memory that all local ranks map. 0: there is no such
 * memory. */
AC_API size_t ac_world_heap_bytes(const ac_world *w);
/* Publishes the rank's position on the status page, which launcher and peers read. Any thread. */
AC_API void ac_world_at(ac_world *w, const char *site, uint64_t step);
/* An interrupt at a step boundary. The ranks of one machine agree on one step at which all of them
 * stop, so that no rank waits for one that has stopped earlier. *signal_number: the signal that
 * interrupted this rank, 0: none. When the result is true, stop now. *signal_number is then the
 * signal that interrupted any of them. */
AC_API bool ac_world_stop_here(ac_world *w, uint64_t step, int *signal_number);
/* Waits of the owner's thread end with INTERRUPTED, and the world with them, once *at is not 0 and
 * CLOCK_MONOTONIC has reached it (ns). A signal handler may write it, in one store. It must outlive
 * the world. NULL (the default): no deadline. */
AC_API void ac_world_set_interrupt(ac_world *w, const volatile int64_t *at);
AC_API double ac_world_timeout(const ac_world *w);
AC_API void ac_world_set_timeout(ac_world *w, double seconds);

/* ---- elastic jobs: ranks may be lost, the others continue (accel-run --num-machines 1:1) ----
 * A *generation* is a numbered set of ranks. When a rank is lost, waits, queued works and later
 * collectives of all others return MEMBERSHIP, and ac_world_recover forms the next generation. */
typedef enum ac_phase {                    /* of an update (one step of the optimizers) */
                        AC_PHASE_BEGIN,    /* it changes nothing that a redo could not restore */
                        AC_PHASE_PREPARED, /* this rank's reduced gradients are complete */
                        AC_PHASE_APPLYING, /* it saw that all ranks were prepared */
                        AC_PHASE_APPLIED
} ac_phase;
enum { AC_MAX_LOST = 256 };
/* Why a generation began. NONE: a planned change was asked for and had no reason any more. */
typedef enum ac_change {
  AC_CHANGE_NONE,
  AC_CHANGE_LOST,
  AC_CHANGE_JOINED,
  AC_CHANGE_LEFT,
  AC_CHANGE_RESIZED
} ac_change;
typedef struct ac_membership {
  uint64_t generation;
  /* The last update that counts, by the phases of all ranks. A rank that has not applied it does so
   * now. All ranks do later updates again. 0: none, or no rank published a phase */
  uint64_t committed;
  int rank, size;                /* from here on */
  int rank_before, size_before;  /* in the last generation of this rank */
  int n_lost, lost[AC_MAX_LOST]; /* their ranks in that generation. Ranks that left count as well */
  double seconds;                /* from the first loss to the new generation */
  char reason[512];              /* how the first was lost */
  ac_change change;
  /* ranks of the new generation that were not in that of before, and those of them that do not have
   * the state of the job yet */
  int n_joined, joined[AC_MAX_LOST], n_healing, healing[AC_MAX_LOST];
  bool leaves; /* this rank is no member any more: it ends */
} ac_membership;
AC_API bool ac_world_elastic(const ac_world *w);
AC_API uint64_t ac_world_generation(const ac_world *w); /* from 1. 0: the job is not elastic */
/* Publishes the phase of this rank, for the case that ranks are lost. Two stores. Any thread.
 * update: counts from 1, the same on all ranks. */
AC_API void ac_world_set_phase(ac_world *w, ac_phase phase, uint64_t update);
/* Collective of the survivors: waits until all of them have come, and rebuilds the world and its
 * groups behind the same handles, with the survivors in their order. Their contents of buffers of
 * collectives that ended with MEMBERSHIP are undefined. Lost ranks leave the groups that had them.
 * A further loss meanwhile begins it anew. STATE: no rank was lost. An abort reason: the job ends.
 */
AC_API ac_status ac_world_recover(ac_world *w, ac_membership *out, ac_err *e);

/* Ranks that come and go between two updates. The launcher starts a process in the place of a lost
 * rank. Up to ac_world_join it observes: its world has the size of the job at the start, and no
 * other rank is in it. Barriers and broadcasts return at once, gathers give its own part for every
 * rank, and other collectives are refused. So are the last two outside ac_world_preamble. */
AC_API bool ac_world_observes(const ac_world *w);
/* on: the calls that follow belong to preparations that every rank makes alike. */
AC_API void ac_world_preamble(ac_world *w, bool on);
/* The number of ranks at the start. */
AC_API int ac_world_start_size(const ac_world *w);
/* The observer waits until the members come to a boundary, and is one of them from then on. */
AC_API ac_status ac_world_join(ac_world *w, ac_membership *out, ac_err *e);
/* It has the state of the job now: bytes of it, received in so many seconds. */
AC_API void ac_world_healed(ac_world *w, uint64_t bytes, double seconds);
/* Whether the launcher asks for a planned change. One load. Ranks may see it at different times, so
 * they must agree on the boundary. */
AC_API bool ac_world_asked(const ac_world *w);
/* Collective of the members, between two updates: waits until all have come, and returns as
 * ac_world_recover in the next generation. A loss meanwhile makes it a change for that reason. */
AC_API ac_status ac_world_meet_change(ac_world *w, ac_membership *out, ac_err *e);
/* Asks the launcher for n ranks, or for rank r to leave. */
AC_API ac_status ac_world_ask_ranks(ac_world *w, int n, ac_err *e);
AC_API ac_status ac_world_ask_leave(ac_world *w, int r, ac_err *e);

/* ---- groups ---- */
AC_API ac_group *ac_world_group(ac_world *w); /* all ranks. Borrowed */
/* Collective over the world: every rank calls with the same list (members in the order of their
 * group rank) and site. Ranks outside get a group of which they are not members (ac_group_rank -1).
 * It takes no collectives. */
AC_API ac_status ac_group_new(ac_world *w, int n, const int *ranks, const char *site,
                              ac_group **out, ac_err *e);
/* not collective. No work may be under way. The group of all ranks is not freed */
AC_API void ac_group_free(ac_group *g);
AC_API int ac_group_rank(const ac_group *g);
AC_API int ac_group_size(const ac_group *g);
AC_API int ac_group_global_rank(const ac_group *g, int group_rank); /* -1: out of range */

/* Whether tensors on d are given to this group's collectives as they lie (ac_coll.device): NCCL is
 * there and every member has a GPU of its own. Else they go through memory of the host, on all
 * members alike. Collective of the group the first time that it is asked. */
AC_API ac_status ac_group_takes_device(ac_group *g, ac_device *d, const char *site, bool *direct,
                                       ac_err *e);
/* Collective: announces that this rank works on d, and makes its communicator now. From here on,
 * sends and receives of tensors on d go from GPU to GPU if ac_group_takes_device allows it for the
 * group of all ranks. Otherwise they go through host memory, as before. */
AC_API ac_status ac_world_bind_device(ac_world *w, ac_device *d, const char *site, ac_err *e);
/* whether they do, to and from this rank of the world */
AC_API bool ac_world_sends_device(const ac_world *w, const ac_device *d, int peer);
/* Are all members on one machine, with memory that they all map? */
AC_API bool ac_group_shares_memory(const ac_group *g);
/* Collective: memory of the CPU that all members read and write, undefined at first. The member
 * `owner` (a group rank) provides it and alone accounts for it. It is freed when no member holds it
 * any more. Members order their reads and writes by collectives. UNSUPPORTED if the members share
 * no memory. */
AC_API ac_status ac_group_shared_storage(ac_group *g, size_t bytes, int owner, const char *site,
                                         ac_storage **out, ac_err *e);

/* ---- collectives ---- */
/* Runs the collective and returns when the buffers may be used. INVALID, DTYPE: an error of this
 * rank alone. MISMATCH, PEER, TIMEOUT: an error that concerns others. It aborts the world, and
 * every later call returns the same error. */
AC_API ac_status ac_collective(ac_group *g, const ac_coll *c, ac_err *e);
/* Starts it on the world's communication thread. Works of a world run in the order in which they
 * were started (sends and receives next to each other at the same time). `keep` (n storages) are
 * retained until it is done. counts are copied. */
AC_API ac_status ac_collective_start(ac_group *g, const ac_coll *c, int n, ac_storage *const *keep,
                                     ac_work **out, ac_err *e);
AC_API bool ac_work_done(const ac_work *k);
AC_API ac_status ac_work_wait(ac_work *k, ac_err *e); /* its outcome. May be called again */
AC_API void ac_work_retain(ac_work *k);
AC_API void ac_work_release(ac_work *k); /* does not wait. NULL is fine */

/* ---- flight recorder: the last ACCEL_RECORDS collectives of this rank ---- */
typedef struct ac_comm_record {
  uint64_t number;     /* counts this rank's collectives */
  uint32_t group, seq; /* which group, and its how manyth */
  ac_coll_kind kind;
  ac_dtype dtype;
  ac_reduce_op op;
  int root;
  int64_t count;
  uint64_t bytes; /* that this rank sent */
  /* bytes of the buffer that the ranks hold together: of a gather or scatter all parts, else count
   * elements */
  uint64_t payload;
  int ranks; /* in the group */
  /* some members (for a message, its peer) are on another machine. Only set if all machines have
   * equally many ranks */
  bool remote;
  int64_t queued, began, ended; /* ns of CLOCK_MONOTONIC. ended 0: under way */
  bool async;
  ac_status status;
  char site[64];
} ac_comm_record;
/* Fills up to max of the last records, oldest first. Returns their number. */
AC_API int ac_world_records(ac_world *w, ac_comm_record *out, int max);
AC_API uint64_t ac_world_bytes_sent(ac_world *w); /* by all collectives so far */

#ifdef __cplusplus
}
#endif
#endif
