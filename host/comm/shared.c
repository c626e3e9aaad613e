/* Memory that all members of a group read and write: one of them takes it from its heap, all of
 * them map it. Parameters of sharded models lie there once per machine.
 *
 * A head in front of the bytes counts the members that still hold it. The owner's pages are given
 * back when the last one let go: by the owner, the next time that it takes such memory, so that no
 * member ever waits. An owner that leaves the world first leaves the pages to those that still read
 * them. */
#include <stdatomic.h>
#include <stdlib.h>

#include "comm/comm_impl.h"
#include "tensor/tensor_impl.h"

enum { HEAD = 64 }; /* bytes. Keeps the alignment of blocks */
typedef struct head {
  _Atomic int32_t holders;
} head;

typedef struct hold {
  aci_heap_maps *maps; /* a use of the mapping */
  head *head;
  ac_storage *block; /* the owner's memory. NULL on the others */
  struct hold *next; /* among those whose owner let go before others did */
} hold;

bool ac_group_shares_memory(const ac_group *g) {
  const ac_world *w = g->world;
  if ((w->heap == NULL && !w->sim_shares) || g->rank < 0) return false;
  for (int i = 0; i < g->size; i++)
    if (aci_seat_of(w, g->ranks[i]) < 0) return false;
  return true;
}

static void let_go(hold *h) {
  ac_storage_release(h->block);
  aci_heap_maps_let_go(h->maps, h->block == NULL);
  free(h);
}

static void free_shared(void *user) {
  hold *h = user;
  const bool last = atomic_fetch_sub_explicit(&h->head->holders, 1, memory_order_acq_rel) == 1;
  if (h->block == NULL || last || aci_heap_maps_closed(h->maps)) {
    if (!last && h->block != NULL) aci_heap_maps_keep(h->maps);
    let_go(h);
    return;
  }
  _Atomic(void *) *list = aci_heap_maps_left(h->maps);
  void *top = atomic_load(list);
  do h->next = top;
  while (!atomic_compare_exchange_weak(list, &top, h));
}

void aci_shared_sweep(aci_heap_maps *maps, bool all) {
  hold *h = atomic_exchange(aci_heap_maps_left(maps), NULL), *kept = NULL;
  while (h != NULL) {
    hold *next = h->next;
    const bool free_now = atomic_load_explicit(&h->head->holders, memory_order_acquire) == 0;
    if (all || free_now) {
      if (!free_now) aci_heap_maps_keep(maps);
      let_go(h);
    } else {
      h->next = kept;
      kept = h;
    }
    h = next;
  }
  while (kept != NULL) {
    hold *next = kept->next;
    void *top = atomic_load(aci_heap_maps_left(maps));
    do kept->next = top;
    while (!atomic_compare_exchange_weak(aci_heap_maps_left(maps), &top, kept));
    kept = next;
  }
}

/* The owner's part. *at: position of the head in its heap, -1 without memory. */
static ac_status take(const ac_group *g, size_t bytes, hold *h, int64_t *at, ac_err *e) {
  ac_world *w = g->world;
  ac_device *d;
  uint64_t offset;
  *at = -1;
  AC_TRY(ac_ctx_device(w->ctx, "cpu", &d, e));
  aci_shared_sweep(w->heap, false);
  AC_TRY(ac_storage_new(d, bytes + HEAD, AC_MEM_PARAMETER, &h->block, e));
  if (!aci_heap_offset(w, h->block->ptr, bytes + HEAD, &offset))
    return AC_FAIL(e, OOM, "the heap that ranks share has no %zu bytes of addresses left", bytes);
  h->head = h->block->ptr;
  atomic_store(&h->head->holders, g->size);
  *at = (int64_t)offset;
  return AC_OK;
}

/* Of the sim backend: the same collective, and memory that the owner alone accounts for. */
static ac_status simulated(ac_group *g, size_t bytes, int owner, const char *site, ac_storage **out,
                           ac_err *e) {
  int64_t at = 0;
  ac_device *d = ac_ctx_default_device(g->world->ctx);
  const ac_coll c = {.kind = AC_COLL_BROADCAST,
                     .dtype = AC_I64,
                     .count = 1,
                     .root = owner,
                     .recv = &at,
                     .send = &at,
                     .site = site};
  AC_TRY(ac_collective(g, &c, e));
  if (g->rank == owner || d->kind != AC_DEV_META)
    return ac_storage_new(d, bytes + HEAD, AC_MEM_PARAMETER, out, e);
  return ac_storage_wrap(d, NULL, bytes, NULL, NULL, out, e);
}

ac_status ac_group_shared_storage(ac_group *g, size_t bytes, int owner, const char *site,
                                  ac_storage **out, ac_err *e) {
  ac_world *w = g->world;
  *out = NULL;
  if (!ac_group_shares_memory(g))
    return AC_FAIL(e, UNSUPPORTED, "the ranks of this group share no memory");
  if (owner < 0 || owner >= g->size)
    return AC_FAIL(e, INVALID, "rank %d of a group of %d", owner, g->size);
  if (w->sim_shares) return simulated(g, bytes, owner, site, out, e);
  hold *h = calloc(1, sizeof *h);
  int64_t at = -1;
  ac_device *d = NULL;
  ac_err why;
  ac_status st = h == NULL ? AC_FAIL(e, OOM, "no memory for shared storage") : AC_OK, took = AC_OK;
  if (st == AC_OK) st = ac_ctx_device(w->ctx, "cpu", &d, e);
  if (st == AC_OK && g->rank == owner) took = take(g, bytes, h, &at, &why);
  const ac_coll c = {.kind = AC_COLL_BROADCAST,
                     .dtype = AC_I64,
                     .count = 1,
                     .root = owner,
                     .recv = &at,
                     .send = &at,
                     .site = site};
  const ac_status told = ac_collective(g, &c, st == AC_OK ? e : NULL);
  if (st == AC_OK) st = told;
  if (st == AC_OK && took != AC_OK) {
    *e = why;
    st = took;
  } else if (st == AC_OK && at < 0) {
    st = AC_FAIL(e, OOM, "rank %d has no %zu bytes for the ranks of its machine to share",
                 g->ranks[owner], bytes);
  }
  if (st == AC_OK) {
    h->head = (head *)(void *)(aci_heap_base(w, aci_seat_of(w, g->ranks[owner])) + at);
    h->maps = w->heap;
    st = ac_storage_wrap(d, (char *)h->head + HEAD, bytes, free_shared, h, out, e);
  }
  if (st != AC_OK) {
    if (h != NULL) ac_storage_release(h->block);
    free(h);
    return st;
  }
  aci_heap_maps_hold(h->maps, g->rank != owner);
  return AC_OK;
}
