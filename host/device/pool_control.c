/* Settings and queries of a pool other than its blocks (pool.h, ac_mem_*): debugging, watchers,
 * hooks, memory of recorded steps, statistics. */
#include "device/pool_impl.h"

/* ---- debugging, watches, hooks ---- */
void aci_pool_debug_set(ac_device *d, bool poison, int64_t fail_at) {
  const bool own = aci_biased_lock(&d->pool->lock);
  d->pool->poison = poison && d->kind != AC_DEV_META;
  d->pool->fail_at = fail_at;
  aci_biased_unlock(&d->pool->lock, own);
}

ac_status aci_pool_set_watch(ac_device *d, const aci_pool_watch *w, size_t *live, ac_err *e) {
  ac_pool *p = d->pool;
  const bool own = aci_biased_lock(&p->lock);
  const bool taken = w != NULL && p->watch != NULL;
  if (!taken) p->watch = w;
  if (live != NULL) *live = p->live_bytes;
  aci_biased_unlock(&p->lock, own);
  return taken ? AC_FAIL(e, STATE, "%s: its memory is being recorded already", d->name) : AC_OK;
}

void aci_pool_add_unmap_hook(ac_device *d, aci_unmap_hook *h) {
  const bool own = aci_biased_lock(&d->pool->lock);
  h->next = d->pool->budget.unmap_hooks;
  d->pool->budget.unmap_hooks = h;
  aci_biased_unlock(&d->pool->lock, own);
}

void aci_pool_remove_unmap_hook(ac_device *d, aci_unmap_hook *h) {
  const bool own = aci_biased_lock(&d->pool->lock);
  for (aci_unmap_hook **at = &d->pool->budget.unmap_hooks; *at != NULL; at = &(*at)->next)
    if (*at == h) {
      *at = h->next;
      break;
    }
  aci_biased_unlock(&d->pool->lock, own);
}

bool aci_pool_segment(ac_device *d, const void *p, void **base, size_t *bytes) {
  const aci_segment *s = NULL;
  const bool own = aci_biased_lock(&d->pool->lock);
  for (int c = 0; c < AC_MEM_CLASSES && s == NULL; c++)
    for (const stream_cache *h = d->pool->stream_caches[c]; h != NULL && s == NULL; h = h->next)
      if ((s = aci_segments_find(&h->large, p)) == NULL) s = aci_segments_find(&h->small, p);
  if (s != NULL) {
    *base = s->base;
    *bytes = s->bytes;
  }
  aci_biased_unlock(&d->pool->lock, own);
  return s != NULL;
}

/* ---- memory of recorded steps ---- */
void aci_pool_divert(ac_device *d, const void *key) {
  const bool own = aci_biased_lock(&d->pool->lock);
  d->pool->divert = key;
  d->pool->diverter = pthread_self();
  aci_biased_unlock(&d->pool->lock, own);
}

bool aci_pool_is_diverted(ac_device *d, const ac_block *block) {
  const any_block *b = (const any_block *)block;
  const stream_cache *home = NULL;
  if (b->owner == NULL || *b->owner == ACI_OWNER_FOREIGN) return false;
  const bool own = aci_biased_lock(&d->pool->lock);
  if (*b->owner == ACI_OWNER_SLAB) {
    home = ((const cell *)b)->owner->home;
  } else {
    const aci_segments *in = ((const aci_chunk *)b)->owner->segments;
    for (int c = 0; c < AC_MEM_CLASSES && home == NULL; c++)
      for (const stream_cache *h = d->pool->stream_caches[c]; h != NULL && home == NULL;
           h = h->next)
        if (in == &h->large || in == &h->small) home = h;
  }
  const bool is = home != NULL && home->stream != NULL && home->stream == d->pool->divert;
  aci_biased_unlock(&d->pool->lock, own);
  return is;
}

void aci_pool_undivert(ac_device *d, const void *key) {
  const bool own = aci_biased_lock(&d->pool->lock);
  for (int c = 0; c < AC_MEM_CLASSES; c++)
    for (stream_cache *h = d->pool->stream_caches[c]; h != NULL; h = h->next) {
      if (h->stream != key) continue;
      h->kept = false;
      aci_pool_reclaim(h);
      aci_segments_trim(&h->small);
      aci_segments_trim(&h->large);
    }
  aci_biased_unlock(&d->pool->lock, own);
}

/* ---- statistics ---- */
void ac_mem_stats_get(const ac_device *d, ac_mem_stats *out) {
  ac_pool *p = d->pool;
  const bool own = aci_biased_lock(&p->lock);
  size_t largest = 0;
  for (int c = 0; c < AC_MEM_CLASSES; c++)
    for (const stream_cache *h = p->stream_caches[c]; h != NULL; h = h->next)
      if (aci_segments_largest(&h->large) > largest) largest = aci_segments_largest(&h->large);
  *out = (ac_mem_stats){
      .largest_free_bytes = largest,
      .live_bytes = p->live_bytes,
      .live_blocks = p->live_blocks,
      .peak_bytes = p->peak_bytes,
      .reserved_bytes = p->budget.reserved,
      .born_bytes = p->born_bytes,
      .limit_bytes = p->budget.limit,
      .n_allocs = p->n_allocs,
      .n_maps = p->budget.n_maps,
  };
  aci_biased_unlock(&p->lock, own);
}

void ac_mem_peak_reset(ac_device *d) {
  const bool own = aci_biased_lock(&d->pool->lock);
  d->pool->peak_bytes = d->pool->live_bytes;
  aci_biased_unlock(&d->pool->lock, own);
}

void ac_pool_trim(ac_device *d) {
  const bool own = aci_biased_lock(&d->pool->lock);
  aci_pool_give_back(d->pool);
  aci_biased_unlock(&d->pool->lock, own);
}
