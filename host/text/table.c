/* Tables of text/: growing arrays, strings to numbers, a trie of bytes. Called by all of text/. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

ac_status aci_no_memory(ac_err *e) { return AC_FAIL(e, OOM, "no memory for the tokenizer"); }

bool aci_grow(void **p, size_t *cap, size_t n, size_t size) {
  const size_t want = n + n / 2 + 16;
  void *q = realloc(*p, want * size);
  if (q == NULL) return false;
  *p = q;
  *cap = want;
  return true;
}

/* ---- map ---- */
bool aci_map_reserve(aci_map *m, size_t n) {
  size_t cap = 16;
  while (cap < n + n / 2) cap *= 2;
  if (cap <= m->cap) return true;
  if (m->key == 0) m->key = aci_hash_key() | 1;
  struct aci_map_entry *e = calloc(cap, sizeof *e);
  if (e == NULL) return false;
  for (size_t i = 0; i < m->cap; i++) {
    if (m->e[i].s == NULL) continue;
    size_t k = m->e[i].hash & (cap - 1);
    while (e[k].s != NULL) k = (k + 1) & (cap - 1);
    e[k] = m->e[i];
  }
  free(m->e);
  m->e = e;
  m->cap = cap;
  return true;
}

static struct aci_map_entry *find(const aci_map *m, const char *s, size_t n, uint64_t hash) {
  for (size_t i = hash & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
    struct aci_map_entry *e = &m->e[i];
    if (e->s == NULL || (e->hash == hash && e->n == n && memcmp(e->s, s, n) == 0)) return e;
  }
}

bool aci_map_add(aci_map *m, const char *s, size_t n, uint32_t value, int64_t *was) {
  *was = -1;
  if (!aci_map_reserve(m, m->n + 1)) return false;
  const uint64_t hash = aci_hash_bytes(m->key, s, n);
  struct aci_map_entry *e = find(m, s, n, hash);
  if (e->s != NULL) return *was = e->value, true;
  *e = (struct aci_map_entry){s, (uint32_t)n, value, hash};
  m->n++;
  return true;
}

int64_t aci_map_get(const aci_map *m, const char *s, size_t n) {
  if (m->n == 0) return -1;
  const struct aci_map_entry *e = find(m, s, n, aci_hash_bytes(m->key, s, n));
  return e->s != NULL ? (int64_t)e->value : -1;
}

void aci_map_set(aci_map *m, const char *s, size_t n, uint32_t value) {
  find(m, s, n, aci_hash_bytes(m->key, s, n))->value = value;
}

void aci_map_fini(aci_map *m) {
  free(m->e);
  *m = (aci_map){0};
}

/* ---- trie ---- */
static bool edges_grow(aci_trie *t, size_t cap) {
  struct aci_trie_edge *e = calloc(cap, sizeof *e), *old = t->e;
  if (e == NULL) return false;
  for (size_t i = 0; i < t->cap; i++) {
    if (old[i].from == 0) continue;
    size_t k = (size_t)((uint64_t)old[i].from * t->mix >> 16) & (cap - 1);
    while (e[k].from != 0) k = (k + 1) & (cap - 1);
    e[k] = old[i];
  }
  free(old);
  t->e = e;
  t->cap = cap;
  return true;
}

static bool node_add(aci_trie *t) {
  if (t->n_node == t->cap_node) {
    const uint32_t cap = t->cap_node == 0 ? 64 : t->cap_node * 2;
    int32_t *value = realloc(t->value, cap * sizeof *value);
    if (value == NULL) return false;
    t->value = value;
    t->cap_node = cap;
  }
  t->value[t->n_node++] = -1;
  return true;
}

bool aci_trie_open(aci_trie *t) {
  *t = (aci_trie){.mix = aci_hash_key() | 1};
  return edges_grow(t, 64) && node_add(t);
}

bool aci_trie_add(aci_trie *t, const char *s, size_t n, int32_t value) {
  uint32_t node = 0;
  for (size_t i = 0; i < n; i++) {
    uint32_t to = aci_trie_step(t, node, (unsigned char)s[i]);
    if (to == 0) {
      /* a node's edges are numbered by node * 256 in 32 bits */
      if (t->n_node >= UINT32_MAX / 256 - 1) return false;
      if ((t->n_edge + 1) * 2 > t->cap && !edges_grow(t, t->cap * 2)) return false;
      to = t->n_node;
      if (!node_add(t)) return false;
      const uint32_t from = node * 256 + (unsigned char)s[i] + 1;
      size_t k = aci_trie_slot(t, from);
      while (t->e[k].from != 0) k = (k + 1) & (t->cap - 1);
      t->e[k] = (struct aci_trie_edge){from, to};
      t->n_edge++;
    }
    node = to;
  }
  t->value[node] = value;
  return true;
}

void aci_trie_fini(aci_trie *t) {
  free(t->e);
  free(t->value);
  *t = (aci_trie){0};
}
