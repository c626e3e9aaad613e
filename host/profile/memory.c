/* The memory of a stretch: every block that pools made and freed, its category, and the sums over
 * time.
 *
 * A log per device, filled by the pool's watch. The category of a block is known late, a gradient's
 * only once it is at its leaf. So the log keeps lives and events, and the timeline is made of them
 * after the end. */
#include <stdlib.h>
#include <string.h>

#include "profile/profile_impl.h"

const char *ac_memory_category_name(ac_memory_category c) {
  static const char *const names[] = {
#define AC_X(name, text) text,
      AC_MEMORY_LIST(AC_X)
#undef AC_X
  };
  return c >= 0 && c < AC_MEMORY_CATEGORIES ? names[c] : "unknown";
}

/* ---- living blocks ---- */
static uint32_t home_of(const aci_memory_log *g, const ac_block *b) {
  return (uint32_t)(((uintptr_t)b >> 4) * 0x9E3779B97F4A7C15ull >> 32) & g->mask;
}

/* The slot of b, or the slot for it. */
static uint32_t place_of(const aci_memory_log *g, const ac_block *b) {
  uint32_t at = home_of(g, b);
  while (g->slots[at].block != NULL && g->slots[at].block != b) at = (at + 1) & g->mask;
  return at;
}

static bool room(aci_memory_log *g) {
  if (g->n_lives == g->cap_lives) {
    const uint32_t cap = g->cap_lives == 0 ? 1024 : g->cap_lives * 2;
    aci_block_life *lives = realloc(g->lives, cap * sizeof *lives);
    if (lives == NULL) return false;
    g->lives = lives;
    g->cap_lives = cap;
  }
  if (g->n_events == g->cap_events) {
    const uint32_t cap = g->cap_events == 0 ? 2048 : g->cap_events * 2;
    aci_memory_event *events = realloc(g->events, cap * sizeof *events);
    if (events == NULL) return false;
    g->events = events;
    g->cap_events = cap;
  }
  if (g->slots != NULL && g->n_slots * 2 <= g->mask) return true;
  const uint32_t size = g->slots == NULL ? 1024 : (g->mask + 1) * 2,
                 old = g->slots == NULL ? 0 : g->mask + 1;
  struct aci_block_slot *was = g->slots, *now = calloc(size, sizeof *now);
  if (now == NULL) return false;
  g->slots = now;
  g->mask = size - 1;
  for (uint32_t i = 0; i < old; i++)
    if (was[i].block != NULL) now[place_of(g, was[i].block)] = was[i];
  free(was);
  return true;
}

/* The slots after a hole move up if they may, so that a search can stop at a free one. */
static void forget(aci_memory_log *g, uint32_t hole) {
  g->n_slots--;
  for (uint32_t at = (hole + 1) & g->mask; g->slots[at].block != NULL; at = (at + 1) & g->mask) {
    const uint32_t from = home_of(g, g->slots[at].block);
    /* it may not go before its home */
    if (((at - from) & g->mask) < ((at - hole) & g->mask)) continue;
    g->slots[hole] = g->slots[at];
    hole = at;
  }
  g->slots[hole].block = NULL;
}

/* A life for a block. Under the lock, after room. */
static aci_block_life *new_life(aci_memory_log *g, const ac_block *b, size_t bytes,
                                bool keep_slot) {
  aci_block_life *l = &g->lives[g->n_lives++];
  *l = (aci_block_life){.bytes = bytes, .category = AC_MEMORY_CATEGORIES};
  if (keep_slot) {
    g->slots[place_of(g, b)] = (struct aci_block_slot){b, g->n_lives - 1};
    g->n_slots++;
  }
  return l;
}

static void on_block(void *user, const ac_block *b, size_t bytes, ac_mem_class class, bool born,
                     size_t live) {
  aci_memory_log *g = user;
  ac_profile *p = g->p;
  (void)live;
  const int64_t now = aci_now_ns();
  const bool mine = pthread_equal(pthread_self(), p->owner);
  if (mine && p->current >= 0)
    aci_span_at(p, p->current)->memory += born ? (int64_t)bytes : -(int64_t)bytes;
  pthread_mutex_lock(&g->lock);
  if (g->failed || !room(g)) {
    g->failed = true;
    pthread_mutex_unlock(&g->lock);
    return;
  }
  uint32_t life;
  if (born) {
    aci_block_life *l = new_life(g, b, bytes, true);
    l->backwards = p->backwards;
    l->in_backward = mine && p->ctx->in_backward > 0;
    l->lasting = class == AC_MEM_PARAMETER;
    life = g->n_lives - 1;
  } else {
    const uint32_t at = place_of(g, b);
    if (g->slots[at].block == b) {
      life = g->slots[at].life;
      g->lives[life].used = p->backwards - g->lives[life].backwards;
      g->lives[life].lasting = false;
      forget(g, at);
    } else { /* it was there at the start */
      new_life(g, b, bytes, false)->earlier = true;
      life = g->n_lives - 1;
    }
  }
  g->events[g->n_events++] = (aci_memory_event){now, life, born};
  pthread_mutex_unlock(&g->lock);
}

void ac_profile_mark(ac_profile *p, const ac_tensor *t, ac_memory_category c) {
  const ac_block *b = t->storage != NULL ? t->storage->block : NULL;
  if (b == NULL || b->bytes == 0 || !p->running) return;
  for (int i = 0; i < p->n_memory; i++) {
    aci_memory_log *g = p->memory[i];
    if (g->device->pool != b->pool) continue;
    pthread_mutex_lock(&g->lock);
    if (!g->failed && room(g)) {
      const uint32_t at = place_of(g, b);
      if (g->slots[at].block != b) new_life(g, b, b->bytes, true)->earlier = true;
      g->lives[g->slots[place_of(g, b)].life].category = (uint8_t)c;
    }
    pthread_mutex_unlock(&g->lock);
    return;
  }
}

/* ---- life ---- */
static void log_free(aci_memory_log *g) {
  ac_device_release(g->device);
  pthread_mutex_destroy(&g->lock);
  free(g->lives);
  free(g->events);
  free(g->slots);
  free(g);
}

ac_status aci_memory_start(ac_profile *p, ac_err *e) {
  const ac_ctx *c = p->ctx;
  for (int i = 0; i < c->n_devices; i++) {
    aci_memory_log *g = calloc(1, sizeof *g);
    ac_status st = AC_OK;
    if (g == NULL) {
      st = AC_FAIL(e, OOM, "no memory for a profile");
    } else {
      g->p = p;
      ac_device_retain(g->device = c->device[i]);
      pthread_mutex_init(&g->lock, NULL);
      g->watch = (aci_pool_watch){on_block, g};
      st = aci_pool_set_watch(g->device, &g->watch, &g->base, e);
      if (st != AC_OK) log_free(g);
    }
    if (st != AC_OK) {
      aci_memory_stop(p);
      aci_memory_free(p);
      return st;
    }
    p->memory[p->n_memory++] = g;
  }
  return AC_OK;
}

/* A block that lives on at the end. */
static void keep(aci_block_life *l, uint32_t backwards) {
  l->used = backwards - l->backwards;
  l->kept = true;
}

void aci_memory_stop(ac_profile *p) {
  for (int i = 0; i < p->n_memory; i++) {
    aci_memory_log *g = p->memory[i];
    (void)aci_pool_set_watch(g->device, NULL, NULL, NULL);
    for (uint32_t k = 0; g->slots != NULL && k <= g->mask; k++)
      if (g->slots[k].block != NULL) keep(&g->lives[g->slots[k].life], p->backwards);
  }
}

void aci_memory_free(ac_profile *p) {
  for (int i = 0; i < p->n_memory; i++) log_free(p->memory[i]);
  p->n_memory = 0;
}

/* ---- the timeline ---- */
static ac_memory_category category_of(const aci_block_life *l) {
  if (l->category != AC_MEMORY_CATEGORIES) return (ac_memory_category)l->category;
  if (l->earlier) return AC_MEMORY_OTHER;
  /* of that class, and it never went: a frozen one, or a buffer of one */
  if (l->lasting) return AC_MEMORY_PARAMETER;
  if (l->used == 0 || l->in_backward) return AC_MEMORY_TEMPORARY;
  /* a graph may be walked twice, and garbage may wait for its collector */
  return l->used >= (l->kept ? 2 : 3) ? AC_MEMORY_OTHER : AC_MEMORY_ACTIVATION;
}

int ac_profile_n_devices(const ac_profile *p) { return p->n_memory; }
const char *ac_profile_device(const ac_profile *p, int i) { return p->memory[i]->device->name; }

int64_t ac_profile_memory(const ac_profile *p, int device, ac_memory_point *out, int64_t max,
                          ac_memory_point *peak) {
  if (p->running || device < 0 || device >= p->n_memory) return 0;
  const aci_memory_log *g = p->memory[device];
  ac_memory_point now = {.ns = p->started, .total = g->base};
  uint64_t known = 0;
  for (uint32_t i = 0; i < g->n_lives; i++)
    if (g->lives[i].earlier) {
      now.bytes[category_of(&g->lives[i])] += g->lives[i].bytes;
      known += g->lives[i].bytes;
    }
  now.bytes[AC_MEMORY_OTHER] += g->base - known;
  ac_memory_point most = now;
  const int64_t n = (int64_t)g->n_events + 1, stride = max > 0 && n > max ? (n + max - 1) / max : 1;
  int64_t written = 0, at_peak = 0;
  for (int64_t i = 0; i < n; i++) {
    if (i > 0) {
      const aci_memory_event *ev = &g->events[i - 1];
      const aci_block_life *l = &g->lives[ev->life];
      const uint64_t change = ev->born ? l->bytes : (uint64_t)0 - l->bytes;
      now.ns = ev->ns;
      now.bytes[category_of(l)] += change;
      now.total += change;
    }
    if (now.total > most.total) {
      most = now;
      at_peak = written; /* the point that is written next, or replaced by it below */
    }
    if (i % stride == 0 && written < max) out[written++] = now;
  }
  /* the point written after the peak gives way to it, so that a thinned timeline still shows it */
  if (stride > 1 && written > 0) out[at_peak < written ? at_peak : written - 1] = most;
  if (peak != NULL) *peak = most;
  return n;
}
