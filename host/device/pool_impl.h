/* What pool.c and pool_control.c share: the pool's structures. Everything is under its lock. */
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
  slab *prev, *next; /* circle of the slabs of this size with room; full ones are in none */
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

/* A block's first members as far as they are common: what ac_block_free looks at. */
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
  stream_cache *stream_caches[AC_MEM_CLASSES]; /* of the NULL stream; those of other streams follow by next */
};

/* Whether ACCEL_ALLOC_FAIL wants this allocation to fail; for blocks of every kind. */
bool aci_pool_told_to_fail(ac_pool *p);
/* The message for people; replaces what a lower level said, except that the system's own refusal is kept. */
ac_status aci_pool_out_of_memory(ac_pool *p, size_t bytes, const char *cause, ac_err *e);
/* Empty slabs are freed to the segments they are chunks of, where they serve other sizes. */
void aci_pool_reclaim(stream_cache *h);
/* Free segments go back to the system, except what is kept for recorded steps. The bytes of them. */
size_t aci_pool_give_back(ac_pool *p);

#endif
