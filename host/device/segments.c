/* Segments and chunks (segments.h). Called by pool.c.
 *
 * The free chunks of an aci_segments form a treap, ordered by (size, segment age, offset): the
 * first that fits is the smallest, and of equals the one in the oldest segment. No address enters a
 * decision, so a phantom device cuts exactly like a real one.
 *
 * At the limit, free memory may be enough but in pieces that are all too small. Pages of free
 * chunks then go back to the system (mem_release). Such a chunk is *away*. It is in a treap of its
 * own, and its reservation serves a chunk elsewhere. */
#include "device/segments.h"

#include <stdlib.h>
#include <string.h>

#include "device/pool.h"

enum {
  /* a remainder below this serves no later request: it stays with its chunk */
  KEEP_WHOLE = 64 << 10,
  SEGMENT_ALIGN = 2 << 20,
  SEGMENT_MOST = 512 << 20
};

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* ---- the tree of free chunks ---- */
static bool before(const aci_chunk *a, const aci_chunk *b) {
  if (a->size != b->size) return a->size < b->size;
  if (a->owner->id != b->owner->id) return a->owner->id < b->owner->id;
  return a->offset < b->offset;
}

static aci_chunk *merge(aci_chunk *a, aci_chunk *b) { /* every key of a is before every key of b */
  if (a == NULL) return b;
  if (b == NULL) return a;
  if (a->priority > b->priority) {
    a->right = merge(a->right, b);
    return a;
  }
  b->left = merge(a, b->left);
  return b;
}

static void split(aci_chunk *t, const aci_chunk *at, aci_chunk **lo, aci_chunk **hi) {
  if (t == NULL) {
    *lo = *hi = NULL;
  } else if (before(t, at)) {
    *lo = t;
    split(t->right, at, &t->right, hi);
  } else {
    *hi = t;
    split(t->left, at, lo, &t->left);
  }
}

static void tree_add(aci_segments *h, aci_chunk *c) {
  /* any sequence works. This one is the same in every run */
  h->seed = h->seed * 1664525u + 1013904223u;
  c->priority = h->seed;
  c->left = c->right = NULL;
  c->free = true;
  aci_chunk **at = c->away ? &h->away : &h->root;
  while (*at != NULL && (*at)->priority >= c->priority)
    at = before(c, *at) ? &(*at)->left : &(*at)->right;
  split(*at, c, &c->left, &c->right);
  *at = c;
}

static void tree_remove(aci_segments *h, aci_chunk *c) {
  aci_chunk **at = c->away ? &h->away : &h->root;
  while (*at != c) at = before(c, *at) ? &(*at)->left : &(*at)->right;
  *at = merge(c->left, c->right);
  c->free = false;
}

/* ---- chunk structures ---- */
static aci_chunk *chunk_new(aci_segments *h, aci_segment *s, size_t offset, size_t size) {
  aci_chunk *c = h->spare;
  if (c != NULL) h->spare = c->next;
  else if ((c = malloc(sizeof *c)) == NULL) return NULL;
  memset(c, 0, sizeof *c);
  c->owner = s;
  c->offset = offset;
  c->size = size;
  return c;
}

static void chunk_recycle(aci_segments *h, aci_chunk *c) {
  c->next = h->spare;
  h->spare = c;
}

/* ---- segments ---- */
void aci_segments_init(aci_segments *h, aci_budget *b, ac_mem_class class, size_t unit) {
  *h = (aci_segments){.budget = b, .class = class, .unit = unit, .seed = 1, .other = b->all};
  b->all = h;
}

static void source_release(aci_source *s) {
  if (s == NULL || --s->refs != 0) return;
  if (s->own.free != NULL) s->own.free(s->own.user);
  free(s);
}

void aci_budget_set_source(aci_budget *b, ac_mem_class class, aci_source *s) {
  source_release(b->source[class]);
  b->source[class] = s;
}

static ac_status segment_map(aci_segments *h, size_t bytes, void **out, ac_err *e) {
  ac_device *dev = h->budget->dev;
  const aci_source *s = h->budget->source[h->class];
  return s != NULL ? s->own.map(s->own.user, bytes, out, e)
                   : dev->vt->mem_map(dev, h->class, bytes, out, e);
}

static void segment_free(aci_segments *h, aci_segment *s) {
  ac_device *dev = h->budget->dev;
  for (aci_unmap_hook *k = h->budget->unmap_hooks; k != NULL; k = k->next)
    k->fn(k->user, s->base, s->bytes);
  ACI_SHOW(dev, s->base, s->bytes);
  if (s->source != NULL) s->source->own.unmap(s->source->own.user, s->base, s->bytes);
  else dev->vt->mem_unmap(dev, h->class, s->base, s->bytes);
  source_release(s->source);
  for (aci_chunk *c = s->first, *next; c != NULL; c = next) {
    next = c->next;
    if (!c->away) {
      h->budget->reserved -= c->size;
      h->reserved -= c->size;
    }
    chunk_recycle(h, c);
  }
  free(s);
}

void aci_segments_fini(aci_segments *h) {
  aci_segments_trim(h);
  if (!AC_HOLDS(h->segments == NULL)) return; /* somebody may still use them */
  aci_segments **at = &h->budget->all;
  while (*at != h) at = &(*at)->other;
  *at = h->other;
  for (aci_chunk *c = h->spare, *next; c != NULL; c = next) {
    next = c->next;
    free(c);
  }
  h->spare = NULL;
}

static bool wholly_free(const aci_segment *s) {
  for (const aci_chunk *c = s->first; c != NULL; c = c->next)
    if (!c->free) return false;
  return true;
}

size_t aci_segments_trim(aci_segments *h) {
  const size_t before = h->reserved;
  for (aci_segment **at = &h->segments; *at != NULL;) {
    aci_segment *s = *at;
    if (!wholly_free(s)) {
      at = &s->next;
      continue;
    }
    *at = s->next;
    for (aci_chunk *c = s->first; c != NULL; c = c->next) tree_remove(h, c);
    segment_free(h, s);
  }
  return before - h->reserved;
}

const aci_segment *aci_segments_find(const aci_segments *h, const void *p) {
  const aci_segment *s = h->segments;
  while (s != NULL && (uintptr_t)p - (uintptr_t)s->base >= s->bytes) s = s->next;
  return s;
}

size_t aci_segments_largest(const aci_segments *h) {
  const aci_chunk *c = h->root; /* the tree is ordered by size: its rightmost chunk */
  while (c != NULL && c->right != NULL) c = c->right;
  return c != NULL ? c->size : 0;
}

ac_status aci_segments_grow(aci_segments *h, size_t bytes, ac_err *e) {
  aci_budget *b = h->budget;
  ac_device *dev = b->dev;
  size_t least = round_up(bytes, ACI_CHUNK_ALIGN), most = SIZE_MAX;
  if (b->limit != 0)
    most =
        b->limit > b->reserved ? (b->limit - b->reserved) / ACI_CHUNK_ALIGN * ACI_CHUNK_ALIGN : 0;
  if (least > most) /* pool.c makes the message that users see */
    return AC_FAIL(e, OOM, "%s: over the limit", dev->name);
  /* New segments grow with the reserved bytes: few large ones leave more room to join neighbours
   * than many small ones, and untouched pages cost nothing. With a limit they stay small against
   * it. */
  size_t want = h->reserved / 8;
  if (want > SEGMENT_MOST) want = SEGMENT_MOST;
  if (want < h->unit) want = h->unit;
  if (b->limit != 0 && want > b->limit / 16) want = b->limit / 16;
  if (want < least) want = least;
  want = round_up(want, b->limit != 0 && b->limit < (size_t)64 * SEGMENT_ALIGN ? ACI_CHUNK_ALIGN
                                                                               : SEGMENT_ALIGN);
  if (want > most) want = most;

  aci_segment *s = malloc(sizeof *s);
  aci_chunk *c = s == NULL ? NULL : chunk_new(h, s, 0, want);
  if (c == NULL) {
    free(s);
    return AC_FAIL(e, OOM, "%s: out of memory for the pool's own tables", dev->name);
  }
  void *base = NULL;
  ac_status st = segment_map(h, want, &base, e);
  if (st != AC_OK && want > least) {
    want = least;
    st = segment_map(h, want, &base, e);
  }
  if (st != AC_OK) {
    chunk_recycle(h, c);
    free(s);
    return st;
  }
  ACI_HIDE(dev, base, want);
  c->size = want;
  *s = (aci_segment){.kind = ACI_OWNER_SEGMENT,
                     .id = h->next_id++,
                     .segments = h,
                     .base = base,
                     .bytes = want,
                     .first = c};
  if ((s->source = b->source[h->class]) != NULL) s->source->refs++;
  s->next = h->segments;
  h->segments = s;
  h->reserved += want;
  b->reserved += want;
  b->n_maps++;
  tree_add(h, c);
  return AC_OK;
}

/* ---- chunks ---- */
static aci_chunk *smallest_from(aci_chunk *t, size_t size) {
  aci_chunk *c = NULL;
  while (t != NULL) {
    if (t->size >= size) {
      c = t;
      t = t->left;
    } else {
      t = t->right;
    }
  }
  return c;
}

aci_chunk *aci_segments_alloc(aci_segments *h, size_t bytes) {
  const size_t size = round_up(bytes, ACI_CHUNK_ALIGN);
  aci_chunk *c = smallest_from(h->root, size);
  if (__builtin_expect(c == NULL && h->away != NULL, 0)) {
    const aci_budget *b = h->budget;
    c = smallest_from(h->away, size);
    const size_t takes = c == NULL || c->size - size >= KEEP_WHOLE ? size : c->size;
    if (b->limit != 0 && (b->reserved > b->limit || takes > b->limit - b->reserved)) return NULL;
  }
  if (c == NULL) return NULL;
  tree_remove(h, c);
  if (c->size - size >= KEEP_WHOLE) {
    aci_chunk *rest = chunk_new(h, c->owner, c->offset + size, c->size - size);
    if (rest != NULL) { /* without memory for its structure the remainder stays with its chunk */
      rest->prev = c;
      rest->away = c->away;
      rest->next = c->next;
      if (c->next != NULL) c->next->prev = rest;
      c->next = rest;
      c->size = size;
      tree_add(h, rest);
    }
  }
  if (c->away) {
    c->away = false;
    h->reserved += c->size;
    h->budget->reserved += c->size;
  }
  c->head.ptr = c->owner->base == NULL ? NULL : c->owner->base + c->offset;
  return c;
}

/* Joins b into its left neighbour a. b's structure is freed. */
static void join(aci_segments *h, aci_chunk *a, aci_chunk *b) {
  a->size += b->size;
  a->next = b->next;
  if (b->next != NULL) b->next->prev = a;
  chunk_recycle(h, b);
}

/* Into the tree, joined with free neighbours of its kind. */
static void settle(aci_segments *h, aci_chunk *c) {
  if (c->next != NULL && c->next->free && c->next->away == c->away) {
    tree_remove(h, c->next);
    join(h, c, c->next);
  }
  if (c->prev != NULL && c->prev->free && c->prev->away == c->away) {
    aci_chunk *left = c->prev;
    tree_remove(h, left);
    join(h, left, c);
    c = left;
  }
  tree_add(h, c);
}

void aci_segments_free(aci_segments *h, aci_chunk *c) { settle(h, c); }

/* ---- pages that go back ---- */
static void give_up(aci_chunk *c) {
  aci_segment *s = c->owner;
  aci_segments *h = s->segments;
  ac_device *dev = h->budget->dev;
  tree_remove(h, c);
  for (aci_unmap_hook *k = h->budget->unmap_hooks; k != NULL; k = k->next)
    k->fn(k->user, s->base, s->bytes);
  dev->vt->mem_release(dev, h->class, s->base == NULL ? NULL : s->base + c->offset, c->size);
  h->reserved -= c->size;
  h->budget->reserved -= c->size;
  c->away = true;
  settle(h, c);
}

/* The smallest free chunk with pages that has `need` bytes, otherwise the largest. *idle: bytes of
 * all. */
static aci_chunk *best_to_give(const aci_budget *b, size_t need, size_t *idle) {
  aci_chunk *best = NULL;
  *idle = 0;
  for (const aci_segments *h = b->all; h != NULL; h = h->other)
    for (const aci_segment *s = h->segments; s != NULL; s = s->next)
      for (aci_chunk *c = s->source == NULL ? s->first : NULL; c != NULL; c = c->next) {
        /* skip chunks with a source: others map them as well */
        if (!c->free || c->away) continue;
        *idle += c->size;
        if (best == NULL ||
            (best->size < need ? c->size > best->size : c->size >= need && c->size < best->size))
          best = c;
      }
  return best;
}

bool aci_budget_release(aci_budget *b, size_t bytes) {
  const size_t least = round_up(bytes, ACI_CHUNK_ALIGN), before = b->reserved;
  if (b->dev->vt->mem_release == NULL || (b->limit != 0 && least > b->limit)) return false;
  const size_t target = b->limit != 0 ? b->limit - least : before > least ? before - least : 0;
  while (b->reserved > target) {
    size_t idle;
    aci_chunk *c = best_to_give(b, b->reserved - target, &idle);
    if (c == NULL || idle < b->reserved - target) return false;
    give_up(c);
  }
  return b->reserved < before;
}
