/* The pool's structures, shared by pool.c and pool_control.c. Everything is under its lock. */
#ifndef ACI_POOL_IMPL_H
#define ACI_POOL_IMPL_H
#include <pthread.h>

#include "base/biased.h"
#include "device/pool.h"
#include "device/segments.h"

enum { ACI_POOL_SIZES = 40, ACI_POOL_QUANTUM = 64 };

typedef struct slab slab;
typedef struct stream_cache stream_cache;

typedef struct cell {
  ac_block head;
  slab *owner;
  struct cell *next_free;
} cell;

struct slab {
  aci_owner kind;
  uint32_t size_index;
  uint32_t n_cells, n_carved, n_used; /* carved: structures filled in so far */
  stream_cache *home;
  aci_chunk *chunk;
  cell *free;
  slab *prev, *next; /* circle of the slabs of this size with room. Full ones are in none */
  cell cells[];
};

/* The free memory of one memory class and one stream. */
struct stream_cache {
  ac_mem_class class;
  ac_stream *stream;
  bool kept; /* for recorded steps: nothing is unmapped */
  slab *with_room[ACI_POOL_SIZES];
  size_t n_empty; /* slabs without a used cell */
  aci_segments small, large;
  stream_cache *next;
};

/* The common first members of blocks, which ac_block_free reads. */
typedef struct any_block {
  ac_block head;
  const aci_owner *owner; /* NULL: zero bytes */
} any_block;

struct ac_pool {
  aci_biased lock;
  bool closed, poison;
  const aci_pool_watch *watch; /* NULL: nobody looks */
  int64_t fail_at;
  const void *divert; /* NULL: nothing is diverted, see aci_pool_divert */
  pthread_t diverter;
  aci_budget budget;
  size_t live_bytes, live_blocks, peak_bytes, born_bytes;
  uint64_t n_allocs;
  /* of the NULL stream. Caches of other streams follow by next */
  stream_cache *stream_caches[AC_MEM_CLASSES];
};

/* Whether ACCEL_ALLOC_FAIL wants this allocation to fail. For blocks of every kind. */
bool aci_pool_told_to_fail(ac_pool *p);
/* The message for people. It replaces the message of a lower level, except the system's own
 * refusal. */
ac_status aci_pool_out_of_memory(ac_pool *p, size_t bytes, const char *cause, ac_err *e);
/* Empty slabs are freed to the segments they are chunks of, which can then serve other sizes. */
void aci_pool_reclaim(stream_cache *h);
/* Returns free segments to the system, except those kept for recorded steps. Returns their
 * bytes. */
size_t aci_pool_give_back(ac_pool *p);

#endif
