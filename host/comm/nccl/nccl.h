/* Collectives of tensors on GPUs: NCCL moves the bytes, the world's own backend does all else.
 *
 * A group's communicator is made at its first collective of a device. Every member sends its device
 * and library over the host. If all have NCCL and a GPU of its own, member 0's unique id is
 * broadcast and each joins, without blocking. Otherwise the group's tensors go through host memory,
 * on all members alike. Groups made later are split off the world's communicator.
 *
 * A collective is first compared over the host, descriptor by descriptor, so that differing calls
 * are reported and no kernel is queued for them. Then the communication stream waits for the work
 * queued on the compute stream at the time of the call, NCCL's kernels are queued, and the compute
 * stream waits for their end. The host does not wait. A thread watches queued operations. On errors
 * of NCCL, the job's abort or the timeout it aborts the communicators, so that no kernel waits for
 * ever.
 *
 * Sends and receives have a communicator of two ranks and a stream for each direction between them,
 * and are matched over the host by their tags. They use NCCL once the world knows its device
 * (ac_world_bind_device).
 *
 * Memory of the device's pool is registered with each communicator that uses it, segment by segment
 * (NCCL 2.19 and later), so that transfers read and write it in place.
 *
 *   library.[hc]   NCCL's calls, loaded on first use         group.c      communicators
 *   run.c          a collective in NCCL's calls               pair.c       a send or receive
 *   register.c     segments that communicators know          nodes.c      NCCL inside of nodes, the
 *                  backend between them
 *   memory.c       memory that NCCL makes
 *   watch.c        streams, events, and the thread that watches them */
#ifndef ACI_COMM_NCCL_H
#define ACI_COMM_NCCL_H
#include "comm/comm_impl.h"
#include "comm/nccl/library.h"
#include "device/pool.h"

/* NULL: there is none. why gets a short reason. Loaded once per process: the functions hold no
 * state of ours. ACCEL_NCCL names the file, or is "off". */
const aci_nccl_library *aci_nccl_load(const ac_params *p, char *why, size_t n);

/* An operation queued on the communication stream. Held by the watch until it is over, and by the
 * work. */
struct aci_device_op {
  struct aci_device_op *next;
  _Atomic int ref;
  struct aci_nccl *nccl;
  ac_event *done;
  aci_desc desc;
  int64_t began;
};

/* Of a world, for its one device. Made with its first communicator. Works may outlive the world:
 * queued operations hold it as well. */
typedef struct aci_nccl {
  _Atomic int ref;
  ac_world *world;
  const aci_nccl_library *lib;
  ac_device *device; /* retained */
  ac_stream *stream;
  void *handle; /* the stream as CUDA has it */
  pthread_mutex_t lock;
  pthread_cond_t more;
  pthread_t thread;
  bool started, stop;
  aci_unmap_hook unmap;
  /* under the lock */
  aci_device_op *queued; /* oldest first */
  ac_event *spare[16];   /* events of ours that nobody waits for */
  int n_spare;
  /* memory.c: source of the segments of the pool's class PARAMETER. NULL: none */
  void *memory;
  bool registers; /* ACCEL_NCCL_REGISTER, until NCCL refuses */
  bool broken;    /* communicators were aborted: nothing is queued any more */
  /* of each rank. NULL: before the world's first collective of a device */
  uint64_t *node;
  struct aci_nccl_group *groups;
  /* of the thread that runs collectives */
  struct aci_nccl_direction *directions;
} aci_nccl;

/* A communicator: of a group (ac_group.device) or of a direction. */
struct aci_nccl_group {
  struct aci_nccl_group *next;
  ac_stream *stream;            /* of a direction. NULL: the world's */
  ac_device *device;            /* of the first request. Retained */
  aci_nccl_comm comm;           /* NULL: through the host */
  struct aci_nccl_nodes *nodes; /* NULL: comm has all members. Otherwise the members on this node */
  struct aci_nccl_segment *registered; /* under the lock of aci_nccl */
};

/* One direction between two ranks. */
typedef struct aci_nccl_direction {
  struct aci_nccl_group base;
  struct aci_nccl_direction *next_direction;
  int peer; /* global rank */
  bool sends, begun, joined;
  void *handle; /* of its stream */
  aci_nccl_id id;
  /* messages begun by the sender, matched by the receiver. The one whose turn it is */
  uint32_t tokens, matched, turn;
} aci_nccl_direction;

extern const aci_nccl_config aci_nccl_nonblocking;

/* ---- watch.c ---- */
ac_status aci_nccl_open(ac_world *w, ac_device *d, const aci_nccl_library *lib, ac_err *e);
ac_status aci_nccl_event(aci_nccl *n, ac_event **out, ac_err *e); /* a fresh one, or a spare */
void aci_nccl_event_back(aci_nccl *n, ac_event *ev);
void aci_nccl_release(aci_nccl *n);
/* An operation with an event of its own, held by the caller and the watch. drop: it is not queued
 * after all (NULL is fine). */
ac_status aci_nccl_op_new(aci_nccl *n, const aci_desc *d, aci_device_op **out, ac_err *e);
void aci_nccl_op_drop(aci_device_op *op);
/* Queued: the watch owns op from then on. */
void aci_nccl_watch(aci_nccl *n, aci_device_op *op);
/* DEVICE with NCCL's word for a status. */
ac_status aci_nccl_check(const aci_nccl *n, int status, const char *what, ac_err *e);
/* Waits until x's non-blocking communicator has accepted its last call. Serves aborts and the
 * timeout. The watch may abort it meanwhile. */
ac_status aci_nccl_settle(aci_nccl *n, ac_group *g, struct aci_nccl_group *x, const aci_desc *d,
                          int status, const char *what, ac_err *e);

/* ---- run.c ---- */
/* NCCL's type for a dtype, and its elements per one of ours: types that it cannot reduce are moved
 * as bytes. -1: not supported. */
int aci_nccl_type(ac_dtype t, bool reduces, size_t *scale);
/* Queues c on the world's stream, for x's communicator. `members` gives this rank's place and the
 * size. Waits belong to g. */
ac_status aci_nccl_call(aci_nccl *n, ac_group *g, const ac_group *members, struct aci_nccl_group *x,
                        const ac_coll *c, const aci_desc *d, ac_err *e);

/* ---- group.c ---- */
/* the watch knows its communicator from now on */
void aci_nccl_enlist(aci_nccl *n, struct aci_nccl_group *x);
/* Waits for queued operations, then ends the communicator. x itself stays the caller's. n NULL: it
 * had none. */
void aci_nccl_end(aci_nccl *n, struct aci_nccl_group *x);

/* ---- nodes.c ---- */
/* The identity of a node: host name and the launcher's machine number. */
uint64_t aci_nccl_node(const char *host, size_t n, int machine);
/* The number of nodes of the members, given each one's. 0: these cannot be served, and *why
 * completes "NCCL inside of nodes: ...". */
int aci_nccl_nodes_of(const uint64_t *node, int size, const char **why);
/* talks to nobody */
ac_status aci_nccl_nodes_open(ac_group *g, int n, struct aci_nccl_nodes **out, ac_err *e);
/* this rank's place among the members on its node, and how many they are */
const ac_group *aci_nccl_inner(const struct aci_nccl_nodes *s);
void aci_nccl_nodes_close(struct aci_nccl_nodes *s, ac_device *d); /* NULL is fine */
ac_status aci_nccl_run_nodes(aci_nccl *n, ac_group *g, const ac_coll *c, const aci_desc *d,
                             ac_err *e);

/* ---- pair.c ---- */
void aci_nccl_directions_close(aci_nccl *n);

/* ---- memory.c ---- */
void aci_nccl_memory_open(aci_nccl *n); /* without the lock */
void aci_nccl_memory_close(aci_nccl *n);

/* ---- register.c ---- */
void aci_nccl_register_open(aci_nccl *n); /* subscribes to freed memory. Ends with close */
void aci_nccl_register_close(aci_nccl *n);
/* Makes the segment that p lies in known to x's communicator, unless it is. Without the lock. */
void aci_nccl_register(aci_nccl *n, struct aci_nccl_group *x, const void *p);
/* Before x's communicator goes: all is taken back, or, of one that was aborted, forgotten. Without
 * the lock. */
void aci_nccl_unregister(aci_nccl *n, struct aci_nccl_group *x);

#endif
