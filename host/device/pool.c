/* The caching pool (pool.h) and the public ac_block_* functions. Called by tensors and ops on every
 * allocation. Settings and queries of a pool are in pool_control.c.
 *
 * Blocks up to 64 KiB are cells of slabs, one size each: 64..1024 bytes by 64, then four sizes per
 * doubling. A cell's structure stays with its place for the life of the slab, so that taking one is
 * a pop from a list. Larger blocks and the slabs themselves are chunks of segments (segments.h), of
 * separate ones, so that no long-lived small block keeps neighbouring large ones from being joined.
 * Free memory is reused only by its own class and stream: reuse on the stream that freed it is in
 * order by itself.
 *
 * One lock guards all of it, biased to the thread that allocates. The system is called under it,
 * but only when the pool grows or is trimmed. */
#include "device/pool_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/base_impl.h"

enum { QUANTUM = ACI_POOL_QUANTUM, SMALL_MOST = 64 << 10, SLAB_LEAST = 64 << 10 };
static const size_t SMALL_UNIT = (size_t)4 << 20, LARGE_UNIT = (size_t)32 << 20;
static const size_t FREED = SIZE_MAX; /* head.bytes of a cell or chunk that is not handed out */

/* ---- sizes ---- */
static uint32_t size_index(size_t bytes) { /* a multiple of 64, at most SMALL_MOST */
  uint32_t u = (uint32_t)(bytes / QUANTUM);
  if (u <= 16) return u - 1;
  uint32_t k = 31 - (uint32_t)__builtin_clz(u - 1);
  return 16 + (k - 4) * 4 + ((u - 1) >> (k - 2) & 3);
}

static size_t size_of_index(uint32_t i) {
  if (i < 16) return (size_t)(i + 1) * QUANTUM;
  uint32_t k = 4 + (i - 16) / 4, quarter = (i - 16) % 4;
  return (size_t)((5 + quarter) << (k - 2)) * QUANTUM;
}

/* ---- slabs ---- */
static void circle_add(slab **head, slab *s, bool first) {
  if (*head == NULL) {
    s->prev = s->next = s;
    *head = s;
    return;
  }
  s->next = *head;
  s->prev = (*head)->prev;
  s->prev->next = s->next->prev = s;
  if (first) *head = s;
}

static void circle_remove(slab **head, slab *s) {
  if (s->next == s) {
    *head = NULL;
  } else {
    s->prev->next = s->next;
    s->next->prev = s->prev;
    if (*head == s) *head = s->next;
  }
}

void aci_pool_reclaim(stream_cache *h) {
  for (int i = 0; i < ACI_POOL_SIZES && h->n_empty > 0; i++) {
    slab *s = h->with_room[i];
    if (s == NULL) continue;
    slab *last = s->prev;
    for (bool more = true; more;) {
      slab *next = s->next;
      more = s != last;
      if (s->n_used == 0) {
        circle_remove(&h->with_room[i], s);
        aci_segments_free(&h->small, s->chunk);
        h->n_empty--;
        free(s);
      }
      s = next;
    }
  }
}

size_t aci_pool_give_back(ac_pool *p) {
  size_t given = 0;
  for (int c = 0; c < AC_MEM_CLASSES; c++) {
    for (stream_cache *h = p->stream_caches[c]; h != NULL; h = h->next) {
      if (h->kept) continue;
      aci_pool_reclaim(h);
      given += aci_segments_trim(&h->small) + aci_segments_trim(&h->large);
    }
  }
  return given;
}

/* A chunk: from free ones, then from empty slabs, then from the system, then from the system after
 * all free segments went back, and then after pages inside of segments did. */
static ac_status chunk_take(ac_pool *p, stream_cache *h, aci_segments *segments, size_t bytes,
                            aci_chunk **out, ac_err *e) {
  if ((*out = aci_segments_alloc(segments, bytes)) != NULL) return AC_OK;
  if (segments == &h->small && h->n_empty > 0) {
    aci_pool_reclaim(h);
    if ((*out = aci_segments_alloc(segments, bytes)) != NULL) return AC_OK;
  }
  ac_status st = aci_segments_grow(segments, bytes, e);
  if (st == AC_OOM && aci_pool_give_back(p) > 0) st = aci_segments_grow(segments, bytes, e);
  if (st == AC_OOM && aci_budget_release(&p->budget, bytes)) {
    if ((*out = aci_segments_alloc(segments, bytes)) != NULL) return AC_OK;
    st = aci_segments_grow(segments, bytes, e);
  }
  if (st == AC_OK) *out = aci_segments_alloc(segments, bytes);
  return st;
}

static ac_status slab_new(ac_pool *p, stream_cache *h, uint32_t index, ac_err *e) {
  size_t size = size_of_index(index), bytes = size * 8 < SLAB_LEAST ? SLAB_LEAST : size * 8;
  uint32_t n = (uint32_t)(bytes / size);
  /* cells are filled in when they are first taken */
  slab *s = malloc(sizeof *s + n * sizeof s->cells[0]);
  if (s == NULL)
    return AC_FAIL(e, OOM, "%s: out of memory for the pool's own tables", p->budget.dev->name);
  *s = (slab){.kind = ACI_OWNER_SLAB, .size_index = index, .n_cells = n, .home = h};
  ac_status st = chunk_take(p, h, &h->small, bytes, &s->chunk, e);
  if (st != AC_OK) {
    free(s);
    return st;
  }
  circle_add(&h->with_room[index], s, true);
  h->n_empty++;
  return AC_OK;
}

static inline cell *cell_take(ac_pool *p, slab *s) {
  cell *c = s->free;
  if (c != NULL) {
    s->free = c->next_free;
  } else {
    uint32_t i = s->n_carved++;
    unsigned char *base = s->chunk->head.ptr;
    c = &s->cells[i];
    c->head.ptr = base == NULL ? NULL : base + i * size_of_index(s->size_index);
    c->head.pool = p;
    c->owner = s;
  }
  if (s->n_used++ == 0) s->home->n_empty--;
  if (s->n_used == s->n_cells) circle_remove(&s->home->with_room[s->size_index], s);
  return c;
}

static inline void cell_give(cell *c) {
  slab *s = c->owner;
  slab **head = &s->home->with_room[s->size_index];
  c->next_free = s->free;
  s->free = c;
  if (s->n_used-- == s->n_cells) circle_add(head, s, true);
  if (s->n_used == 0) {
    s->home->n_empty++;
    if (s->next != s) { /* empty slabs are used last, so that they can go */
      circle_remove(head, s);
      circle_add(head, s, false);
    }
  }
}

/* ---- the pool ---- */
static stream_cache *stream_cache_new(ac_pool *p, ac_mem_class class, ac_stream *stream) {
  stream_cache *h = calloc(1, sizeof *h);
  if (h == NULL) return NULL;
  h->class = class;
  h->stream = stream;
  aci_segments_init(&h->small, &p->budget, class, SMALL_UNIT);
  aci_segments_init(&h->large, &p->budget, class, LARGE_UNIT);
  return h;
}

static stream_cache *stream_cache_get(ac_pool *p, ac_mem_class class, ac_stream *stream) {
  stream_cache **at = &p->stream_caches[class];
  while (*at != NULL && (*at)->stream != stream) at = &(*at)->next;
  if (*at == NULL) *at = stream_cache_new(p, class, stream);
  if (*at != NULL && stream != NULL && stream == p->divert) (*at)->kept = true;
  return *at;
}

ac_status aci_pool_new(ac_device *dev, size_t limit_bytes, ac_pool **out, ac_err *e) {
  ac_pool *p = calloc(1, sizeof *p);
  if (p == NULL) return AC_FAIL(e, OOM, "%s: out of memory for the pool's own tables", dev->name);
  p->budget = (aci_budget){.dev = dev, .limit = limit_bytes};
  *out = p;
  return AC_OK;
}

static void destroy(ac_pool *p) {
  for (int c = 0; c < AC_MEM_CLASSES; c++) {
    for (stream_cache *h = p->stream_caches[c], *next; h != NULL; h = next) {
      next = h->next;
      aci_pool_reclaim(h);
      aci_segments_fini(&h->small);
      aci_segments_fini(&h->large);
      free(h);
    }
  }
  for (int c = 0; c < AC_MEM_CLASSES; c++) aci_budget_set_source(&p->budget, (ac_mem_class)c, NULL);
  ac_device *dev = p->budget.dev;
  if (dev->vt->close != NULL) dev->vt->close(dev);
  free(dev);
  free(p);
}

void aci_pool_close(ac_pool *p) {
  const bool own = aci_biased_lock(&p->lock);
  p->closed = true;
  bool last = p->live_blocks == 0;
  if (!last) aci_pool_give_back(p);
  aci_biased_unlock(&p->lock, own);
  if (last) destroy(p);
}

ac_status ac_device_set_source(ac_device *d, ac_mem_class c, const ac_mem_source *s, ac_err *e) {
  if (d->kind == AC_DEV_META)
    return AC_FAIL(e, DEVICE, "%s has no memory that could come from elsewhere", d->name);
  if (s != NULL && s->struct_size != sizeof *s)
    return AC_FAIL(e, INVALID, "a source of memory was built for another version of accel");
  if ((unsigned)c >= AC_MEM_CLASSES)
    return AC_FAIL(e, INVALID, "%d is not a class of memory", (int)c);
  aci_source *copy = NULL;
  if (s != NULL) {
    if ((copy = malloc(sizeof *copy)) == NULL)
      return AC_FAIL(e, OOM, "%s: out of memory for the pool's own tables", d->name);
    *copy = (aci_source){.own = *s, .refs = 1};
  }
  const bool own = aci_biased_lock(&d->pool->lock);
  aci_pool_give_back(d->pool); /* free memory would be handed out before anything new is mapped */
  aci_budget_set_source(&d->pool->budget, c, copy);
  aci_biased_unlock(&d->pool->lock, own);
  return AC_OK;
}

/* The present source of a class. NULL: the device. */
static void *source_user(ac_device *d, ac_mem_class c, bool *any) {
  const bool own = aci_biased_lock(&d->pool->lock);
  const aci_source *s = d->pool->budget.source[c];
  *any = s != NULL;
  void *user = s != NULL ? s->own.user : NULL;
  aci_biased_unlock(&d->pool->lock, own);
  return user;
}

bool aci_pool_offer_source(ac_device *d, ac_mem_class c, const ac_mem_source *s) {
  bool any;
  (void)source_user(d, c, &any);
  return !any && ac_device_set_source(d, c, s, NULL) == AC_OK;
}

void aci_pool_withdraw_source(ac_device *d, ac_mem_class c, const void *user) {
  bool any;
  if (source_user(d, c, &any) == user && any) (void)ac_device_set_source(d, c, NULL, NULL);
}

/* ---- blocks ---- */
bool aci_pool_told_to_fail(ac_pool *p) {
  if (p->fail_at > 0) return --p->fail_at == 0;
  if (p->fail_at == -1) return true;
  p->fail_at++;
  return false;
}

ac_status aci_pool_out_of_memory(ac_pool *p, size_t bytes, const char *cause, ac_err *e) {
  char asked[24], live[24], reserved[24], limit[24];
  const ac_device *dev = p->budget.dev;
  ac_status st = AC_FAIL(
      e, OOM, "%s: out of memory: asked for %s, %s live in %zu blocks, %s reserved, limit %s%s%s",
      dev->name, aci_bytes_text(asked, sizeof asked, bytes),
      aci_bytes_text(live, sizeof live, p->live_bytes), p->live_blocks,
      aci_bytes_text(reserved, sizeof reserved, p->budget.reserved),
      p->budget.limit == 0 ? "none" : aci_bytes_text(limit, sizeof limit, p->budget.limit),
      cause[0] == '\0' ? "" : "; ", cause);
  if (e != NULL) memcpy(e->device, dev->name, sizeof e->device);
  return st;
}

/* A cell that is ready for use: most allocations find one. Under the lock. NULL: call take. */
static inline any_block *take_ready(ac_pool *p, size_t bytes, ac_mem_class class,
                                    const ac_stream *s) {
  stream_cache *h = p->stream_caches[class];
  if (bytes - 1 >= SMALL_MOST || h == NULL || h->stream != s) return NULL;
  slab *room = h->with_room[size_index(bytes)];
  return room != NULL ? (any_block *)cell_take(p, room) : NULL;
}

/* Under the lock. *out has ptr and pool. The caller sets bytes. */
static ac_status take(ac_pool *p, size_t bytes, ac_mem_class class, ac_stream *s, any_block **out,
                      ac_err *e) {
  if (bytes == 0) {
    any_block *b = calloc(1, sizeof *b);
    if (b == NULL) return AC_FAIL(e, OOM, "out of memory for the pool's own tables");
    b->head.pool = p;
    *out = b;
    return AC_OK;
  }
  stream_cache *h = p->stream_caches[class];
  if (h == NULL || h->stream != s) h = stream_cache_get(p, class, s);
  if (h == NULL) return AC_FAIL(e, OOM, "out of memory for the pool's own tables");
  if (bytes <= SMALL_MOST) {
    uint32_t i = size_index(bytes);
    if (h->with_room[i] == NULL) AC_TRY(slab_new(p, h, i, e));
    *out = (any_block *)cell_take(p, h->with_room[i]);
    return AC_OK;
  }
  aci_chunk *c;
  AC_TRY(chunk_take(p, h, &h->large, bytes, &c, e));
  c->head.pool = p;
  *out = (any_block *)c;
  return AC_OK;
}

/* take, with the message for people. Not inlined: it keeps a message on the stack. */
static __attribute__((noinline)) ac_status take_or_say(ac_pool *p, size_t bytes, ac_mem_class c,
                                                       ac_stream *s, any_block **out, ac_err *e) {
  ac_err why;
  why.msg[0] = '\0';
  ac_status st = bytes > SIZE_MAX / 4 ? AC_OOM : take(p, bytes, c, s, out, &why);
  if (st == AC_OK) return AC_OK;
  bool limited = p->budget.limit != 0 &&
                 (bytes > p->budget.limit || p->budget.reserved > p->budget.limit - bytes);
  return aci_pool_out_of_memory(p, bytes, limited ? "" : why.msg, e);
}

ac_status ac_block_alloc(ac_device *d, size_t bytes, ac_mem_class c, ac_stream *s, ac_block **out,
                         ac_err *e) {
  ac_pool *p = d->pool;
  *out = NULL;
  if (__builtin_expect((unsigned)c >= AC_MEM_CLASSES, 0))
    return AC_FAIL(e, INVALID, "%d is not a class of memory", (int)c);
  const bool own = aci_biased_lock(&p->lock);
  p->n_allocs++;
  if (__builtin_expect(p->fail_at != 0, 0) && aci_pool_told_to_fail(p)) {
    aci_pool_out_of_memory(p, bytes, "failed by ACCEL_ALLOC_FAIL", e);
    aci_biased_unlock(&p->lock, own);
    return AC_OOM;
  }
  /* no overflow below this */
  if (bytes <= SIZE_MAX / 4) bytes = (bytes + QUANTUM - 1) & ~(size_t)(QUANTUM - 1);
  ac_stream *from = s; /* the key of free memory, if it is diverted */
  if (__builtin_expect(p->divert != NULL, 0) && s == NULL && c != AC_MEM_PINNED &&
      pthread_equal(p->diverter, pthread_self()))
    from = (ac_stream *)(uintptr_t)p->divert;
  any_block *b = take_ready(p, bytes, c, from);
  if (__builtin_expect(b == NULL, 0)) {
    ac_status st = take_or_say(p, bytes, c, from, &b, e);
    if (st != AC_OK) {
      aci_biased_unlock(&p->lock, own);
      return st;
    }
  }
  b->head.bytes = bytes;
  p->live_blocks++;
  p->live_bytes += bytes;
  p->born_bytes += bytes;
  if (p->live_bytes > p->peak_bytes) p->peak_bytes = p->live_bytes;
  if (__builtin_expect(p->watch != NULL, 0) && bytes > 0)
    p->watch->fn(p->watch->user, &b->head, bytes, c, true, p->live_bytes);
  bool poison = p->poison;
  aci_biased_unlock(&p->lock, own);
  ACI_SHOW(d, b->head.ptr, bytes);
  if (__builtin_expect(poison, 0) && bytes > 0)
    d->vt->fill(d, s, b->head.ptr, ACI_POISON_FRESH, bytes, NULL);
  *out = &b->head;
  return AC_OK;
}

void ac_block_free(ac_block *block) {
  if (block == NULL) return;
  any_block *b = (any_block *)block;
  ac_pool *p = block->pool;
  ac_device *dev = p->budget.dev;
  size_t bytes = block->bytes;
  const bool once = bytes != FREED;
  if (!AC_HOLDS(once)) return; /* freed twice */
  const bool foreign = b->owner != NULL && *b->owner == ACI_OWNER_FOREIGN;
  if (__builtin_expect(p->poison, 0) && bytes > 0 && !foreign)
    dev->vt->fill(dev, NULL, block->ptr, ACI_POISON_FREED, bytes, NULL);
  if (!foreign) ACI_HIDE(dev, block->ptr, bytes);
  (void)dev;
  block->bytes = FREED;
  const bool own = aci_biased_lock(&p->lock);
  if (__builtin_expect(p->watch != NULL, 0) && bytes > 0)
    p->watch->fn(p->watch->user, block, bytes, AC_MEM_CLASSES, false, p->live_bytes - bytes);
  if (b->owner == NULL) {
    free(b);
  } else if (foreign) {
    p->budget.reserved -= bytes;
    free(b);
  } else if (*b->owner == ACI_OWNER_SLAB) {
    cell_give((cell *)b);
  } else {
    aci_chunk *c = (aci_chunk *)b;
    aci_segments_free(c->owner->segments, c);
  }
  p->live_blocks--;
  p->live_bytes -= bytes;
  bool last = p->closed && p->live_blocks == 0;
  aci_biased_unlock(&p->lock, own);
  if (last) destroy(p);
}

void *ac_block_ptr(const ac_block *b) { return b->ptr; }

size_t ac_block_bytes(const ac_block *b) { return b->bytes; }
