/* Declarations shared by the files of the profile stage.
 *
 *   recorder.c    spans, and the callbacks that make them
 *   texts.[ch]    names, shapes and lines, each kept once
 *   offload.c     transfers between tiers, and waits for them
 *   memory.c      blocks of the pools, their categories and the timeline
 *   trace_file.c  traces that several ranks add to */
#ifndef ACI_PROFILE_IMPL_H
#define ACI_PROFILE_IMPL_H
#include <pthread.h>

#include "accel/profile.h"
#include "autograd/node.h"
#include "comm/comm_impl.h"
#include "device/pool.h"
#include "offload/offload.h"
#include "profile/texts.h"

/* One span as it is kept. Readers get ac_span. */
typedef struct aci_span {
  int64_t begin, end;
  int64_t flops, memory;
  uint64_t moved, bytes, sent;
  int32_t parent, group;
  uint32_t name, shapes, dtypes, site; /* numbers of texts, 0: none */
  uint8_t kind, thread;
  bool remote;
} aci_span;

enum { ACI_SPANS_PER_CHUNK = 4096 };

/* A block of a pool from its allocation (or the start) to its end. */
typedef struct aci_block_life {
  size_t bytes;
  uint32_t backwards; /* outermost backwards begun before it was made */
  uint8_t category;   /* AC_MEMORY_CATEGORIES: not marked */
  bool earlier;       /* it was there at the start */
  bool in_backward;   /* made in one */
  uint32_t used;      /* backwards that began while it lived */
  bool kept;          /* it lived on at the end */
  bool lasting;       /* of the class of parameters, and not freed */
} aci_block_life;

typedef struct aci_memory_event {
  int64_t ns;
  uint32_t life;
  bool born;
} aci_memory_event;

/* The memory of one device. Pools call from any thread: the lock guards all of it. */
typedef struct aci_memory_log {
  ac_profile *p;
  ac_device *device; /* retained */
  pthread_mutex_t lock;
  aci_pool_watch watch;
  size_t base; /* live bytes at the start */
  aci_block_life *lives;
  uint32_t n_lives, cap_lives;
  aci_memory_event *events;
  uint32_t n_events, cap_events;
  struct aci_block_slot {
    const ac_block *block;
    uint32_t life;
  } * slots; /* living blocks: open addressing, block NULL: free */
  uint32_t n_slots, mask;
  bool failed; /* no memory for the log: it ends there */
} aci_memory_log;

struct ac_profile {
  ac_ctx *ctx;
  ac_world *world; /* while it runs. NULL: none */
  ac_profile_options o;
  pthread_t owner;
  bool running;
  int64_t started, stopped;
  aci_texts texts;
  aci_span **chunks;
  int64_t n, cap, dropped;
  int64_t current;    /* innermost open span, -1 */
  uint32_t backwards; /* outermost ones begun so far */
  aci_tracer tracer;
  aci_coll_watch coll_watch;
  /* spans of collectives, which come on two threads, until they join the others */
  pthread_mutex_t coll_lock;
  struct aci_coll_row {
    ac_comm_record row;
    int32_t group, parent;
    bool other_thread;
  } * colls;
  int64_t n_colls, cap_colls;
  aci_io_watch io_watch; /* for aci_io_queue_watch */
  struct aci_io_row {
    int64_t begin, end;
    uint64_t bytes;
    int32_t parent; /* of a wait of the script */
    uint8_t what, tier;
  } * ios; /* under coll_lock */
  int64_t n_ios, cap_ios, lost_ios;
  aci_memory_log *memory[ACI_MAX_DEVICES];
  int n_memory;
};

static inline aci_span *aci_span_at(const ac_profile *p, int64_t i) {
  return &p->chunks[i / ACI_SPANS_PER_CHUNK][i % ACI_SPANS_PER_CHUNK];
}

/* The watch of a queue while p runs. The caller installs it, and removes it before p stops. */
static inline const aci_io_watch *aci_profile_io_watch(const ac_profile *p) { return &p->io_watch; }

/* ---- offload.c ---- */
void aci_profile_io_init(ac_profile *p);
void aci_profile_take_io(ac_profile *p); /* once nothing comes any more: rows become spans */
/* recorder.c: room for one more span. NULL: it is dropped. */
aci_span *aci_profile_append(ac_profile *p);

/* ---- memory.c ---- */
ac_status aci_memory_start(ac_profile *p, ac_err *e);
void aci_memory_stop(ac_profile *p);
void aci_memory_free(ac_profile *p);

#endif
