/* Groups of GPUs on several nodes whose tensors travel by NCCL inside a node and over the backend
 * (tcp, mpi) between nodes (ACCEL_NCCL_INTER_NODE=host): for networks that NCCL does not drive.
 * Called by group.c and run.c.
 *
 * The members of a node share a communicator. Members of equal place in their nodes are a group of
 * the backend. A large buffer is cut into a shard for each place, so that all members of a node
 * send at the same time. The first member alone carries a small one. Of P places:
 *
 *   ALL_REDUCE      NCCL scatters the node's reduction over the places, each reduces its shard
 *                   between nodes, NCCL gathers the shards
 *   REDUCE_SCATTER  NCCL reduces the parts of each place's counterparts, these exchange and reduce
 *                   them
 *   ALL_GATHER      each place gathers the parts of its counterparts, NCCL gathers the parts of all
 *                   places
 *   BROADCAST       NCCL gives it to the root's node, each place sends its shard to its
 *                   counterparts, NCCL gathers the shards there
 *
 * Bytes pass through two slots of page-locked memory: while one is with the backend, the other is
 * copied from the device. The host waits for the device here. A work that was started waits on the
 * communication thread. */
#include <stdlib.h>
#include <time.h>

#include "base/json.h"
#include "comm/nccl/nccl.h"
#include "comm/wait.h"
#include "device/device_impl.h"

enum { SLOT = 4 << 20, ALONE = 32 << 10 };

struct aci_nccl_nodes {
  int n, here, per; /* nodes, this one, members of each */
  ac_group inner;   /* as run.c sees the members of this node: rank and size */
  ac_group between; /* the counterparts of this rank, a group of the backend: node -> rank */
  bool opened;
  ac_block *slots;   /* NULL: not used so far */
  ac_event *down[2]; /* the copies into each */
  int64_t counts[];  /* room of the call under way: per, then n */
};

uint64_t aci_nccl_node(const char *host, size_t n, int machine) {
  return aci_hash_bytes((uint64_t)machine + 1, host, n);
}

int aci_nccl_nodes_of(const uint64_t *node, int size, const char **why) {
  int per = 1, n = 1;
  while (per < size && node[per] == node[0]) per++;
  for (int i = per; i < size; i += per, n++) {
    for (int k = 1; k < per; k++)
      if (i + k >= size || node[i + k] != node[i])
        return *why = "its members on a node are not equally many, or do not follow each other", 0;
    for (int k = 0; k < i; k += per)
      if (node[k] == node[i])
        return *why = "its members on a node are not equally many, or do not follow each other", 0;
  }
  return n;
}

ac_status aci_nccl_nodes_open(ac_group *g, int n, struct aci_nccl_nodes **out, ac_err *e) {
  const int per = g->size / n, place = g->rank % per;
  struct aci_nccl_nodes *s = calloc(1, sizeof *s + (size_t)(per + n) * sizeof s->counts[0]);
  int *ranks = malloc((size_t)n * sizeof *ranks);
  if (s == NULL || ranks == NULL) {
    free(s);
    free(ranks);
    return AC_FAIL(e, OOM, "no memory for a communicator");
  }
  for (int k = 0; k < n; k++) ranks[k] = g->ranks[k * per + place];
  s->n = n;
  s->per = per;
  s->here = g->rank / per;
  s->inner = (ac_group){.world = g->world,
                        .id = g->id,
                        .slot = -1,
                        .rank = place,
                        .size = per,
                        .ranks = g->ranks + s->here * per};
  /* ids of groups count up from 0: this one is its own, the same on all counterparts, and no other
   * group has both a rank and the id */
  s->between = (ac_group){.world = g->world,
                          .id = g->id | 0x40000000u,
                          .slot = -1,
                          .rank = s->here,
                          .size = n,
                          .ranks = ranks};
  const aci_backend *b = g->world->backend;
  const ac_status st = b->group_open != NULL ? b->group_open(&s->between, e) : AC_OK;
  s->opened = st == AC_OK;
  if (st == AC_OK) return *out = s, AC_OK;
  free(ranks);
  free(s);
  return st;
}

void aci_nccl_nodes_close(struct aci_nccl_nodes *s, ac_device *d) {
  if (s == NULL) return;
  const aci_backend *b = s->between.world->backend;
  if (s->opened && b->group_close != NULL) b->group_close(&s->between);
  for (int i = 0; i < 2; i++)
    if (s->down[i] != NULL) d->vt->event_free(d, s->down[i]);
  if (s->slots != NULL) ac_block_free(s->slots);
  free(s->between.ranks);
  free(s);
}

const ac_group *aci_nccl_inner(const struct aci_nccl_nodes *s) { return &s->inner; }

bool aci_device_serves(const ac_group *g, ac_coll_kind kind) {
  if (g->device == NULL || g->device->nodes == NULL) return true;
  if (kind == AC_COLL_SEND || kind == AC_COLL_RECV) return true; /* ac_world_sends_device decides */
  return kind == AC_COLL_ALL_REDUCE || kind == AC_COLL_REDUCE_SCATTER ||
         kind == AC_COLL_ALL_GATHER || kind == AC_COLL_BROADCAST;
}

/* ---- the data that this rank carries between nodes ---- */

typedef struct trip {
  aci_nccl *n;
  ac_group *g;
  struct aci_nccl_nodes *s;
  const ac_coll *c;
  const aci_desc *d;
  size_t bytes; /* of an element */
} trip;

/* One buffer of a trip: its source (NULL: others have it), and the place for received data (NULL:
 * nowhere). */
typedef struct lane {
  const char *from;
  char *to;
  int64_t count;
} lane;

static int64_t in_piece(const lane *l, int64_t at, int64_t most) {
  const int64_t left = l->count - at;
  return left < 0 ? 0 : left < most ? left : most;
}

/* Elements [at, at + most) of every lane to or from their places in a slot, one after the other. */
static ac_status move(const trip *t, const lane *lanes, int n, char *slot, int64_t at, int64_t most,
                      bool down, ac_err *e) {
  ac_device *dev = t->n->device;
  for (int i = 0; i < n; i++) {
    const lane *l = &lanes[i];
    const size_t off = (size_t)at * t->bytes, bytes = (size_t)in_piece(l, at, most) * t->bytes;
    if (down && l->from != NULL && bytes > 0)
      AC_TRY(dev->vt->copy(dev, t->n->stream, slot, l->from + off, bytes, e));
    if (!down && l->to != NULL && bytes > 0)
      AC_TRY(dev->vt->copy(dev, t->n->stream, l->to + off, slot, bytes, e));
    slot += bytes;
  }
  return AC_OK;
}

/* Waits until the copies into the slot are done. */
static ac_status wait_for(const trip *t, ac_event *ev, ac_err *e) {
  ac_device *dev = t->n->device;
  const int64_t began = aci_now_ns();
  bool done = false;
  for (int turn = 1;; turn++) {
    AC_TRY(dev->vt->event_query(dev, ev, &done, e));
    if (done) break;
    if (turn < 100) continue;
    const struct timespec nap = {0, 50000};
    nanosleep(&nap, NULL);
    /* a member of this node may be gone */
    if (turn % 40 == 0) AC_TRY(aci_wait_check(t->g, t->d, began, -1, e));
  }
  aci_wait_over(t->g->world);
  return AC_OK;
}

/* The backend's part for one piece. root: of a broadcast, a node. */
static ac_status exchange(const trip *t, const lane *lanes, int n, char *slot, int64_t at,
                          int64_t most, int root, ac_err *e) {
  struct aci_nccl_nodes *s = t->s;
  const bool parts = n > 1;
  int64_t *counts = s->counts + s->per, before = 0;
  for (int k = 0; parts && k < n; k++) {
    counts[k] = in_piece(&lanes[k], at, most);
    if (k < s->here) before += counts[k];
  }
  char *own = slot + (size_t)before * t->bytes;
  const bool gathers = t->c->kind == AC_COLL_ALL_GATHER;
  const ac_coll c = {.kind = t->c->kind,
                     .dtype = t->c->dtype,
                     .op = t->c->op,
                     .root = root,
                     .count = parts ? 0 : in_piece(lanes, at, most),
                     .counts = parts ? counts : NULL,
                     .send = gathers ? own : slot,
                     .recv = t->c->kind == AC_COLL_REDUCE_SCATTER ? own : slot,
                     .site = t->c->site};
  aci_desc d;
  aci_desc_fill(&s->between, &c, ++s->between.seq, &d);
  return s->between.world->backend->run(&s->between, &c, &d, e);
}

static ac_status carry(const trip *t, const lane *lanes, int n, int root, ac_err *e) {
  struct aci_nccl_nodes *s = t->s;
  ac_device *dev = t->n->device;
  int64_t longest = 0;
  for (int i = 0; i < n; i++)
    if (lanes[i].count > longest) longest = lanes[i].count;
  if (longest == 0) return AC_OK;
  const int64_t most = (int64_t)((size_t)SLOT / t->bytes / (size_t)n);
  if (most == 0)
    return AC_FAIL(e, UNSUPPORTED, "%d nodes are too many for ACCEL_NCCL_INTER_NODE=host", s->n);
  if (s->slots == NULL)
    AC_TRY(ac_block_alloc(dev, (size_t)2 * SLOT, AC_MEM_PINNED, t->n->stream, &s->slots, e));
  for (int i = 0; i < 2; i++)
    if (s->down[i] == NULL) AC_TRY(dev->vt->event_new(dev, &s->down[i], e));
  char *slot[2] = {ac_block_ptr(s->slots), (char *)ac_block_ptr(s->slots) + SLOT};
  /* the next piece comes down while this one is with the backend */
  for (int64_t at = 0, i = 0; at < longest + most; at += most, i++) {
    if (at < longest) {
      AC_TRY(move(t, lanes, n, slot[i % 2], at, most, true, e));
      AC_TRY(dev->vt->event_record(dev, s->down[i % 2], t->n->stream, e));
    }
    if (i == 0) continue;
    char *last = slot[(i - 1) % 2];
    AC_TRY(wait_for(t, s->down[(i - 1) % 2], e));
    AC_TRY(exchange(t, lanes, n, last, at - most, most, root, e));
    AC_TRY(move(t, lanes, n, last, at - most, most, false, e));
  }
  return AC_OK;
}

/* ---- the collectives ---- */

static ac_status inside(const trip *t, ac_coll c, ac_err *e) {
  return aci_nccl_call(t->n, t->g, &t->s->inner, t->g->device, &c, t->d, e);
}

/* Elements of each place's shard into s->counts. Returns the first one of this rank's. */
static int64_t cut(const trip *t, int64_t *count) {
  struct aci_nccl_nodes *s = t->s;
  const bool alone = (size_t)t->c->count * t->bytes <= ALONE;
  int64_t at = 0;
  for (int i = 0; i < s->per; i++) {
    s->counts[i] =
        alone ? (i == 0 ? t->c->count : 0) : t->c->count / s->per + (i < t->c->count % s->per);
    if (i < s->inner.rank) at += s->counts[i];
  }
  *count = s->counts[s->inner.rank];
  return at;
}

/* A collective inside of the node on shards: even ones by NCCL's own call. */
static ac_coll on_shards(const trip *t, ac_coll_kind kind, const void *send, void *recv) {
  const bool even = t->s->counts[0] == t->s->counts[t->s->per - 1];
  return (ac_coll){.kind = kind,
                   .dtype = t->c->dtype,
                   .op = t->c->op,
                   .count = t->s->counts[0],
                   .counts = even ? NULL : t->s->counts,
                   .send = send,
                   .recv = recv,
                   .site = t->c->site};
}

static ac_status all_reduce(const trip *t, ac_err *e) {
  const ac_coll *c = t->c;
  lane l;
  char *own = (char *)c->recv + (size_t)cut(t, &l.count) * t->bytes;
  l.from = l.to = own;
  AC_TRY(inside(t, on_shards(t, AC_COLL_REDUCE_SCATTER, c->send, own), e));
  AC_TRY(carry(t, &l, 1, 0, e));
  return inside(t, on_shards(t, AC_COLL_ALL_GATHER, own, c->recv), e);
}

static ac_status broadcast(const trip *t, ac_err *e) {
  const ac_coll *c = t->c;
  struct aci_nccl_nodes *s = t->s;
  const int root = c->root / s->per;
  const bool has = s->here == root;
  lane l;
  char *own = (char *)c->recv + (size_t)cut(t, &l.count) * t->bytes;
  l.from = has ? own : NULL;
  l.to = has ? NULL : own;
  if (has) {
    ac_coll whole = *c;
    whole.root = c->root % s->per;
    AC_TRY(inside(t, whole, e));
  }
  AC_TRY(carry(t, &l, 1, root, e));
  return has ? AC_OK : inside(t, on_shards(t, AC_COLL_ALL_GATHER, own, c->recv), e);
}

/* The parts of node k's members, which follow each other. */
static ac_coll of_node(const trip *t, int k, const void *send, void *recv) {
  ac_coll c = *t->c;
  if (c.counts != NULL) c.counts += k * t->s->per;
  c.send = send;
  c.recv = recv;
  return c;
}
static int64_t at_of(const trip *t, int k, int place) {
  return aci_part_at(t->c, k * t->s->per + place) * (int64_t)t->bytes;
}

static ac_status all_gather(const trip *t, lane *lanes, ac_err *e) {
  const ac_coll *c = t->c;
  struct aci_nccl_nodes *s = t->s;
  const int place = s->inner.rank;
  for (int k = 0; k < s->n; k++)
    lanes[k] = (lane){k == s->here ? c->send : NULL,
                      k == s->here ? NULL : (char *)c->recv + at_of(t, k, place),
                      aci_part(c, k * s->per + place)};
  AC_TRY(carry(t, lanes, s->n, 0, e));
  for (int k = 0; k < s->n; k++)
    AC_TRY(inside(
        t, of_node(t, k, k == s->here ? c->send : lanes[k].to, (char *)c->recv + at_of(t, k, 0)),
        e));
  return AC_OK;
}

static ac_status reduce_scatter(const trip *t, lane *lanes, ac_err *e) {
  const ac_coll *c = t->c;
  struct aci_nccl_nodes *s = t->s;
  ac_block *room = NULL;
  int64_t total = 0;
  for (int k = 0; k < s->n; k++) total += aci_part(c, k * s->per + s->inner.rank);
  AC_TRY(ac_block_alloc(t->n->device, (size_t)total * t->bytes, AC_MEM_ACTIVATION, t->n->stream,
                        &room, e));
  char *at = ac_block_ptr(room);
  ac_status st = AC_OK;
  for (int k = 0; k < s->n && st == AC_OK; k++) {
    lanes[k] = (lane){at, k == s->here ? c->recv : NULL, aci_part(c, k * s->per + s->inner.rank)};
    st = inside(t, of_node(t, k, (const char *)c->send + at_of(t, k, 0), at), e);
    at += (size_t)lanes[k].count * t->bytes;
  }
  if (st == AC_OK) st = carry(t, lanes, s->n, 0, e);
  ac_block_free(room); /* in the order of the stream, which was all that used it */
  return st;
}

ac_status aci_nccl_run_nodes(aci_nccl *n, ac_group *g, const ac_coll *c, const aci_desc *d,
                             ac_err *e) {
  struct aci_nccl_nodes *s = g->device->nodes;
  const trip t = {n, g, s, c, d, ac_dtype_bytes(c->dtype)};
  if (aci_total(g, c) == 0) return AC_OK;
  if (c->kind == AC_COLL_ALL_REDUCE) return all_reduce(&t, e);
  if (c->kind == AC_COLL_BROADCAST) return broadcast(&t, e);
  lane *lanes = malloc((size_t)s->n * sizeof *lanes);
  if (lanes == NULL) return AC_FAIL(e, OOM, "no memory for a collective");
  const ac_status st =
      c->kind == AC_COLL_ALL_GATHER ? all_gather(&t, lanes, e) : reduce_scatter(&t, lanes, e);
  free(lanes);
  return st;
}
