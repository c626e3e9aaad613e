/* Byte-pair encoding: the symbols of a piece (bytes, or characters) are merged, the pair of the
 * lowest rank first and of equal ones the leftmost, until no pair is left that merges. Called for
 * pieces not met before, by encode_scratch.c. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"
#include "text/unicode.h"

enum { SHORT = 48, NONE = -1 };

static const aci_merge *merge_of(const aci_model *m, uint32_t a, uint32_t b) {
  const uint64_t pair = (uint64_t)a << 32 | b;
  for (size_t i = (size_t)(pair * m->merge_mix >> 32) & m->merge_mask;;
       i = (i + 1) & m->merge_mask) {
    if (m->merge[i].pair == pair) return &m->merge[i];
    if (m->merge[i].pair == UINT64_MAX) return NULL;
  }
}

/* ---- symbols of a piece ---- */
static bool symbol_add(aci_encode_scratch *w, uint32_t id, uint32_t len) {
  if (!ACI_GROW(w->symbol, w->cap_symbol, w->n_symbol + 1)) return false;
  const int32_t i = (int32_t)w->n_symbol;
  if (i > 0) w->symbol[i - 1].next = i;
  w->symbol[w->n_symbol++] = (aci_symbol){id, len, i - 1, NONE};
  return true;
}

/* The id of one character with the model's prefix and suffix. */
static int64_t char_id(const aci_model *m, const char *s, uint32_t n, bool first, bool last) {
  const bool before = !first && m->prefix.s != NULL, behind = last && m->suffix.s != NULL;
  char text[4 + 2 * 256];
  size_t k = 0;
  if (!before && !behind)
    return n == 1 ? m->ascii[(unsigned char)*s] : aci_map_get(&m->vocab, s, n);
  if (before) memcpy(text, m->prefix.s, m->prefix.n), k = m->prefix.n;
  memcpy(text + k, s, n);
  k += n;
  if (behind) memcpy(text + k, m->suffix.s, m->suffix.n), k += m->suffix.n;
  return aci_map_get(&m->vocab, text, k);
}

/* Ids of <0x..> for every byte of the character with its prefix and suffix. False: one is
 * missing. */
static bool has_bytes(const aci_model *m, const char *s, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (m->byte_token[(unsigned char)s[i]] < 0) return false;
  return true;
}

static ac_status add_bytes(aci_encode_scratch *w, const char *s, size_t n, ac_err *e) {
  for (size_t i = 0; i < n; i++)
    if (!symbol_add(w, (uint32_t)w->t->model.byte_token[(unsigned char)s[i]], 1))
      return aci_no_memory(e);
  return AC_OK;
}

static ac_status symbols_of_chars(aci_encode_scratch *w, const char *s, uint32_t n, ac_err *e) {
  const aci_model *m = &w->t->model;
  uint32_t unknown = 0; /* bytes of the unknown token that is open */
  for (uint32_t i = 0; i < n;) {
    uint32_t k = (uint32_t)aci_utf8_size((unsigned char)s[i]);
    const bool first = i == 0, last = i + k == n;
    int32_t symbol;
    const uint32_t length = m->symbols ? aci_longest(&m->trie, s + i, n - i, &symbol) : 0;
    if (length > 0) k = length;
    const int64_t id = length > 0 ? symbol : char_id(m, s + i, k, first, last);
    i += k;
    if (id >= 0) {
      if (unknown > 0 && !symbol_add(w, (uint32_t)m->unk, unknown)) return aci_no_memory(e);
      unknown = 0;
      if (!symbol_add(w, (uint32_t)id, k)) return aci_no_memory(e);
      continue;
    }
    const ac_text before = !first ? m->prefix : (ac_text){0},
                  behind = last ? m->suffix : (ac_text){0};
    if (m->byte_fallback && has_bytes(m, before.s, before.n) && has_bytes(m, s + i - k, k) &&
        has_bytes(m, behind.s, behind.n)) {
      AC_TRY(add_bytes(w, before.s, before.n, e));
      AC_TRY(add_bytes(w, s + i - k, k, e));
      AC_TRY(add_bytes(w, behind.s, behind.n, e));
      continue;
    }
    if (!m->has_unk) continue;
    if (m->unk < 0)
      return AC_FAIL(e, INVALID,
                     "tokenizer: unk_token is not in the vocabulary, and the text needs it");
    if (unknown > 0 && !m->fuse_unk) {
      if (!symbol_add(w, (uint32_t)m->unk, unknown)) return aci_no_memory(e);
      unknown = 0;
    }
    unknown += k;
  }
  if (unknown > 0 && !symbol_add(w, (uint32_t)m->unk, unknown)) return aci_no_memory(e);
  return AC_OK;
}

/* ---- merging, few symbols: look for the best pair each time ---- */

/* Rank of the merge and the token it makes, in one number that orders by rank. All ones: they do
 * not merge. */
static uint64_t key_of(const aci_model *m, uint64_t a, uint64_t b) {
  const aci_merge *x = merge_of(m, (uint32_t)(a >> 32), (uint32_t)(b >> 32));
  return x != NULL ? (uint64_t)x->rank << 32 | x->id : UINT64_MAX;
}

static void merge_short(aci_encode_scratch *w) {
  const aci_model *m = &w->t->model;
  uint64_t s[SHORT], key[SHORT]; /* id << 32 | length. key_of(s[i], s[i + 1]) */
  size_t n = w->n_symbol;
  for (size_t i = 0; i < n; i++) s[i] = (uint64_t)w->symbol[i].id << 32 | w->symbol[i].len;
  for (size_t i = 0; i + 1 < n; i++) key[i] = key_of(m, s[i], s[i + 1]);
  while (n > 1) {
    uint64_t least = key[0];
    for (size_t i = 1; i + 1 < n; i++) least = key[i] < least ? key[i] : least;
    if (least == UINT64_MAX) break;
    size_t best = 0;
    while (key[best] != least) best++;
    s[best] = least << 32 | (uint32_t)(s[best] + s[best + 1]);
    n--;
    for (size_t i = best + 1; i < n; i++) s[i] = s[i + 1];
    for (size_t i = best + 1; i + 1 < n; i++) key[i] = key[i + 1];
    if (best > 0) key[best - 1] = key_of(m, s[best - 1], s[best]);
    if (best + 1 < n) key[best] = key_of(m, s[best], s[best + 1]);
  }
  for (size_t i = 0; i < n; i++)
    w->symbol[i].id = (uint32_t)(s[i] >> 32), w->symbol[i].len = (uint32_t)s[i];
  w->n_symbol = n;
}

/* ---- many symbols: a heap of pairs ---- */
static bool before(const aci_queued *a, const aci_queued *b) {
  return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static bool push(aci_encode_scratch *w, aci_queued q) {
  if (!ACI_GROW(w->heap, w->cap_heap, w->n_heap + 1)) return false;
  size_t i = w->n_heap++;
  for (; i > 0 && before(&q, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
    w->heap[i] = w->heap[(i - 1) / 2];
  w->heap[i] = q;
  return true;
}

static aci_queued pop(aci_encode_scratch *w) {
  const aci_queued top = w->heap[0], last = w->heap[--w->n_heap];
  size_t i = 0;
  for (size_t k; (k = 2 * i + 1) < w->n_heap; i = k) {
    if (k + 1 < w->n_heap && before(&w->heap[k + 1], &w->heap[k])) k++;
    if (!before(&w->heap[k], &last)) break;
    w->heap[i] = w->heap[k];
  }
  if (w->n_heap > 0) w->heap[i] = last;
  return top;
}

static bool push_pair(aci_encode_scratch *w, int32_t at) {
  const aci_symbol *s = w->symbol;
  if (at < 0 || s[at].next < 0) return true;
  const aci_merge *m = merge_of(&w->t->model, s[at].id, s[s[at].next].id);
  return m == NULL || push(w, (aci_queued){m->rank, (uint32_t)at, m->id});
}

static float draw(aci_encode_scratch *w) {
  w->random += 0x9E3779B97F4A7C15u;
  uint64_t z = w->random;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return (float)((z ^ z >> 31) >> 40) * 0x1p-24f;
}

static ac_status merge_long(aci_encode_scratch *w, ac_err *e) {
  const aci_model *m = &w->t->model;
  aci_symbol *s = w->symbol;
  w->n_heap = w->n_skip = 0;
  for (size_t i = 0; i + 1 < w->n_symbol; i++)
    if (!push_pair(w, (int32_t)i)) return aci_no_memory(e);
  while (w->n_heap > 0) {
    const aci_queued top = pop(w);
    if (m->dropout > 0 && draw(w) < m->dropout) {
      if (!ACI_GROW(w->skip, w->cap_skip, w->n_skip + 1)) return aci_no_memory(e);
      w->skip[w->n_skip++] = top;
      continue;
    }
    while (w->n_skip > 0)
      if (!push(w, w->skip[--w->n_skip])) return aci_no_memory(e);
    aci_symbol *left = &s[top.at];
    if (left->len == 0 || left->next < 0) continue;
    aci_symbol *right = &s[left->next];
    const aci_merge *x = merge_of(m, left->id, right->id);
    if (x == NULL || x->id != top.id) continue; /* the pair was merged away already */
    left->id = top.id;
    left->len += right->len;
    left->next = right->next;
    right->len = 0;
    if (right->next >= 0) s[right->next].prev = (int32_t)top.at;
    if (!push_pair(w, left->prev) || !push_pair(w, (int32_t)top.at)) return aci_no_memory(e);
  }
  size_t n = 0;
  for (size_t i = 0; i < w->n_symbol; i++)
    if (s[i].len > 0) s[n++] = s[i];
  w->n_symbol = n;
  return AC_OK;
}

/* The model's prefix and suffix of a character have bytes as well if it falls back to bytes, so
 * symbols may be longer than the text from at to end: tokens beyond it are empty. */
static ac_status merge_all(aci_encode_scratch *w, uint32_t at, uint32_t end, ac_err *e) {
  if (w->n_symbol < SHORT && w->t->model.dropout <= 0) merge_short(w);
  else AC_TRY(merge_long(w, e));
  if (!ACI_GROW(w->token, w->cap_token, w->n_token + w->n_symbol)) return aci_no_memory(e);
  for (size_t i = 0; i < w->n_symbol; i++) {
    const uint32_t begin = at;
    at = w->symbol[i].len < end - at ? at + w->symbol[i].len : end;
    w->token[w->n_token++] = (aci_token){w->symbol[i].id, begin, at, 0};
  }
  return AC_OK;
}

static ac_status bpe_of_chars(aci_encode_scratch *w, const char *s, uint32_t n, uint32_t at,
                              ac_err *e) {
  w->n_symbol = 0;
  AC_TRY(symbols_of_chars(w, s, n, e));
  return merge_all(w, at, at + n, e);
}

ac_status aci_bpe(aci_encode_scratch *w, const char *s, uint32_t n, uint32_t at, ac_err *e) {
  const aci_model *m = &w->t->model;
  if (m->ignore_merges) {
    const int64_t id = aci_map_get(m->raw ? &m->raw_vocab : &m->vocab, s, n);
    if (id >= 0 && m->dropout <= 0)
      return aci_token_add(w, (uint32_t)id, at, at + n, false) ? AC_OK : aci_no_memory(e);
  }
  if (m->raw) {
    if (!ACI_GROW(w->symbol, w->cap_symbol, n)) return aci_no_memory(e);
    for (uint32_t i = 0; i < n; i++)
      w->symbol[i] = (aci_symbol){m->byte_id[(unsigned char)s[i]], 1, (int32_t)i - 1,
                                  i + 1 < n ? (int32_t)i + 1 : NONE};
    w->n_symbol = n;
    return merge_all(w, at, at + n, e);
  }
  return bpe_of_chars(w, s, n, at, e);
}
