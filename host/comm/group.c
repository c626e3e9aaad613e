/* Groups of ranks. Making one is a collective of the world: members and free slots are agreed upon
 * there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "comm/comm_impl.h"

ac_group *ac_world_group(ac_world *w) { return w->all; }
int ac_group_rank(const ac_group *g) { return g->rank; }
int ac_group_size(const ac_group *g) { return g->size; }

int ac_group_global_rank(const ac_group *g, int group_rank) {
  return group_rank >= 0 && group_rank < g->size ? g->ranks[group_rank] : -1;
}

/* Is every rank of the group on this machine, so that it can meet in the segment? */
static bool is_local(const ac_world *w, const int *ranks, int n) {
  for (int i = 0; i < n; i++)
    if (aci_seat_of(w, ranks[i]) < 0) return false;
  return w->segment.head != NULL;
}

static ac_status check_ranks(const ac_world *w, int n, const int *ranks, ac_err *e) {
  if (n < 1 || n > w->place.size)
    return AC_FAIL(e, INVALID, "new_group: %d ranks of a world of %d", n, w->place.size);
  for (int i = 0; i < n; i++) {
    if (ranks[i] < 0 || ranks[i] >= w->place.size)
      return AC_FAIL(e, INVALID, "new_group: rank %d in a world of %d", ranks[i], w->place.size);
    for (int k = 0; k < i; k++)
      if (ranks[k] == ranks[i])
        return AC_FAIL(e, INVALID, "new_group: rank %d is named twice", ranks[i]);
  }
  return AC_OK;
}

/* All ranks exchange the slots they have in use (each rank frees groups on its own). The first slot
 * that is free everywhere is taken. The descriptor carries the members, so that different lists are
 * a mismatch. */
static ac_status agree(ac_world *w, int n, const int *ranks, const char *site, int *slot,
                       ac_err *e) {
  enum { WORDS = ACI_GROUPS / 64 };
  const size_t size = (size_t)w->place.size;
  uint64_t *used = malloc(size * sizeof w->used_groups);
  if (used == NULL) return AC_FAIL(e, OOM, "new_group: no memory");
  const ac_coll c = {.kind = AC_COLL_ALL_GATHER,
                     .dtype = AC_I64,
                     .count = WORDS,
                     .send = w->used_groups,
                     .recv = used,
                     .site = site};
  aci_desc d;
  aci_desc_fill(w->all, &c, ++w->all->seq, &d);
  d.kind = AC_COLL_NEW_GROUP;
  d.count = n;
  d.counts_hash = aci_hash_bytes(0, ranks, (size_t)n * sizeof *ranks) | 1;
  ac_comm_record *row = aci_record_begin(w, w->all, &c, w->all->seq, false);
  if (row != NULL) row->kind = AC_COLL_NEW_GROUP;
  ac_status st = w->backend->run(w->all, &c, &d, e);
  aci_record_end(w, row, st);
  *slot = -1;
  for (int i = 0; st == AC_OK && i < ACI_GROUPS && *slot < 0; i++) {
    bool busy = false;
    for (size_t r = 0; r < size; r++) busy |= used[r * WORDS + (size_t)i / 64] >> (i % 64) & 1;
    if (!busy) *slot = i;
  }
  free(used);
  return st;
}

ac_status ac_group_new(ac_world *w, int n, const int *ranks, const char *site, ac_group **out,
                       ac_err *e) {
  AC_TRY(check_ranks(w, n, ranks, e));
  AC_TRY(aci_aborted(w, e));
  /* queued work comes first on every rank: a barrier through the queue keeps the order */
  const ac_coll barrier = {.kind = AC_COLL_BARRIER, .site = site};
  AC_TRY(ac_collective(w->all, &barrier, e));
  int slot = -1;
  AC_TRY(agree(w, n, ranks, site, &slot, e));
  ac_group *g = calloc(1, sizeof *g);
  if (g == NULL || (g->ranks = malloc((size_t)n * sizeof *g->ranks)) == NULL) {
    free(g);
    return AC_FAIL(e, OOM, "new_group: no memory");
  }
  memcpy(g->ranks, ranks, (size_t)n * sizeof *ranks);
  /* ids rise on every rank with every group of the world, members or not, so that they are the same
   * everywhere */
  g->world = w;
  g->id = w->next_group++;
  g->size = n;
  g->rank = -1;
  for (int i = 0; i < n; i++)
    if (ranks[i] == w->place.rank) g->rank = i;
  g->slot = is_local(w, ranks, n) ? slot : -1;
  ac_status st = AC_OK;
  if (g->slot < 0 && is_local(w, ranks, n))
    st = AC_FAIL(e, UNSUPPORTED, "new_group: %d groups are alive already; free some", ACI_GROUPS);
  if (st == AC_OK && g->rank >= 0 && w->backend->group_open != NULL)
    st = w->backend->group_open(g, e);
  if (st != AC_OK) {
    free(g->ranks);
    free(g);
    return st;
  }
  /* outsiders keep the slot in use as well: their peers' group may outlive their own */
  if (g->slot >= 0) w->used_groups[g->slot / 64] |= (uint64_t)1 << (g->slot % 64);
  g->next = w->groups;
  w->groups = g;
  if ((st = aci_nccl_split(g, g->rank >= 0, e)) != AC_OK) {
    ac_group_free(g);
    return st;
  }
  *out = g;
  return AC_OK;
}

void ac_group_free(ac_group *g) {
  if (g == NULL || g == g->world->all) return;
  ac_world *w = g->world;
  for (ac_group **at = &w->groups; *at != NULL; at = &(*at)->next) {
    if (*at == g) {
      *at = g->next;
      break;
    }
  }
  aci_nccl_group_close(g);
  if (g->rank >= 0 && w->backend != NULL && w->backend->group_close != NULL)
    w->backend->group_close(g);
  if (g->slot >= 0) w->used_groups[g->slot / 64] &= ~((uint64_t)1 << (g->slot % 64));
  free(g->ranks);
  free(g);
}
