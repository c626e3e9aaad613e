/* Learning of merges: the most frequent pair is merged everywhere, again and again. Ties go to the
 * pair of the smaller ids, and pairs that come into being later wait in entries of their own, as in
 * the package `tokenizers`, whose merges these are. Called by train.c. */
#include <stdlib.h>
#include <string.h>

#include "text/train.h"
#include "text/unicode.h"

/* ---- vocabulary ---- */

/* The id of a text, new or known. -1: out of memory. */
static int64_t token_id(ac_bpe_trainer *b, const char *s, size_t n, uint32_t chars) {
  const int64_t known = aci_map_get(&b->ids, s, n);
  if (known >= 0) return known;
  int64_t was;
  if (!ACI_GROW(b->token, b->cap_token, b->n_token + 1) ||
      !ACI_GROW(b->kept, b->cap_kept, b->n_token + 1))
    return -1;
  char *own = malloc(n + 1);
  if (own == NULL) return -1;
  memcpy(own, s, n);
  own[n] = 0;
  b->kept[b->n_token] = own;
  b->token[b->n_token].n = (uint32_t)n;
  b->token[b->n_token].chars = chars;
  b->n_token++;
  return aci_map_add(&b->ids, own, n, (uint32_t)(b->n_token - 1), &was) ? (int64_t)b->n_token - 1
                                                                        : -1;
}

static ac_status first_tokens(ac_bpe_trainer *b, uint32_t byte_id[256], ac_err *e) {
  uint32_t c = 0;
  for (size_t i = 0; i < b->o.n_special; i++)
    if (token_id(b, b->special[i].s, b->special[i].n, 1) < 0) return aci_no_memory(e);
  for (int found = 0; found < 256; c++) { /* the alphabet in the order of its characters */
    const int byte = aci_char_byte(c);
    if (byte < 0) continue;
    char s[4];
    const int64_t id = token_id(b, s, (size_t)aci_utf8_put(s, c), 1);
    if (id < 0) return aci_no_memory(e);
    byte_id[byte] = (uint32_t)id;
    found++;
  }
  return AC_OK;
}

static ac_status words_of_bytes(ac_bpe_trainer *b, const uint32_t byte_id[256], ac_err *e) {
  uint64_t all = 0;
  for (size_t i = 0; i < b->map.cap; i++) all += b->map.e[i].s != NULL ? b->map.e[i].n : 0;
  b->word = malloc((b->map.n + 1) * sizeof *b->word);
  b->symbol = malloc((all + 1) * sizeof *b->symbol);
  if (b->word == NULL || b->symbol == NULL) return aci_no_memory(e);
  all = 0;
  for (size_t i = 0; i < b->map.cap; i++) {
    const struct aci_map_entry *x = &b->map.e[i];
    if (x->s == NULL) continue;
    b->word[x->value] = (aci_train_word){all, x->n, b->count[x->value]};
    for (uint32_t k = 0; k < x->n; k++) b->symbol[all++] = byte_id[(unsigned char)x->s[k]];
  }
  return AC_OK;
}

/* ---- pairs ---- */
static int64_t *count_of(ac_bpe_trainer *b, uint64_t pair) {
  if (b->n_pairs * 2 >= b->cap_pairs) {
    const size_t cap = b->cap_pairs == 0 ? 1 << 16 : b->cap_pairs * 2;
    aci_pair_count *p = malloc(cap * sizeof *p);
    if (p == NULL) return NULL;
    memset(p, 0xFF, cap * sizeof *p);
    for (size_t i = 0; i < b->cap_pairs; i++) {
      if (b->pairs[i].pair == UINT64_MAX) continue;
      size_t k = (size_t)(b->pairs[i].pair * 0x9E3779B97F4A7C15u >> 20) & (cap - 1);
      while (p[k].pair != UINT64_MAX) k = (k + 1) & (cap - 1);
      p[k] = b->pairs[i];
    }
    free(b->pairs);
    b->pairs = p;
    b->cap_pairs = cap;
  }
  size_t k = (size_t)(pair * 0x9E3779B97F4A7C15u >> 20) & (b->cap_pairs - 1);
  while (b->pairs[k].pair != UINT64_MAX && b->pairs[k].pair != pair)
    k = (k + 1) & (b->cap_pairs - 1);
  if (b->pairs[k].pair == UINT64_MAX) {
    b->pairs[k] = (aci_pair_count){pair, 0};
    b->n_pairs++;
  }
  return &b->pairs[k].count;
}

static bool before(const aci_pair_entry *a, const aci_pair_entry *b) {
  return a->count != b->count ? a->count > b->count : a->pair < b->pair;
}

static bool push(ac_bpe_trainer *b, aci_pair_entry x) {
  if (!ACI_GROW(b->heap, b->cap_heap, b->n_heap + 1)) return false;
  size_t i = b->n_heap++;
  for (; i > 0 && before(&x, &b->heap[(i - 1) / 2]); i = (i - 1) / 2)
    b->heap[i] = b->heap[(i - 1) / 2];
  b->heap[i] = x;
  return true;
}

static aci_pair_entry pop(ac_bpe_trainer *b) {
  const aci_pair_entry top = b->heap[0], last = b->heap[--b->n_heap];
  size_t i = 0;
  for (size_t k; (k = 2 * i + 1) < b->n_heap; i = k) {
    if (k + 1 < b->n_heap && before(&b->heap[k + 1], &b->heap[k])) k++;
    if (!before(&b->heap[k], &last)) break;
    b->heap[i] = b->heap[k];
  }
  if (b->n_heap > 0) b->heap[i] = last;
  return top;
}

static bool add(ac_bpe_trainer *b, uint32_t left, uint32_t right, int sign, uint32_t w) {
  const uint64_t pair = (uint64_t)left << 32 | right;
  int64_t *count = count_of(b, pair);
  if (count == NULL) return false;
  *count += sign * b->word[w].count;
  if (sign < 0) return true;
  if (!ACI_GROW(b->change, b->cap_change, b->n_change + 1)) return false;
  b->change[b->n_change++] = (aci_pair_change){pair, w};
  return true;
}

static int by_pair(const void *x, const void *y) {
  const aci_pair_change *a = x, *b = y;
  if (a->pair != b->pair) return a->pair < b->pair ? -1 : 1;
  return a->word < b->word ? -1 : a->word > b->word;
}

/* An entry for each pair that came into being, with its words. */
static ac_status queue_changes(ac_bpe_trainer *b, ac_err *e) {
  if (b->n_change > 1) qsort(b->change, b->n_change, sizeof *b->change, by_pair);
  for (size_t i = 0, end; i < b->n_change; i = end) {
    const uint64_t pair = b->change[i].pair;
    for (end = i; end < b->n_change && b->change[end].pair == pair;) end++;
    const int64_t *count = count_of(b, pair);
    if (count == NULL) return aci_no_memory(e);
    if (*count <= 0) continue;
    aci_pair_entry x = {pair, *count, malloc((end - i) * sizeof *x.words), 0};
    if (x.words == NULL) return aci_no_memory(e);
    for (size_t k = i; k < end; k++)
      if (k == i || b->change[k].word != b->change[k - 1].word) x.words[x.n++] = b->change[k].word;
    if (!push(b, x)) {
      free(x.words);
      return aci_no_memory(e);
    }
  }
  b->n_change = 0;
  return AC_OK;
}

/* Merges a pair everywhere in one word. */
static bool merge_word(ac_bpe_trainer *b, uint32_t w, uint32_t left, uint32_t right, uint32_t id,
                       size_t longest) {
  aci_train_word *x = &b->word[w];
  uint32_t *s = b->symbol + x->at, n = 0; /* n: symbols of the new word so far */
  const size_t chars = b->token[id].chars;
  for (uint32_t i = 0; i < x->n; i++) {
    if (s[i] != left || i + 1 == x->n || s[i + 1] != right) {
      s[n++] = s[i];
      continue;
    }
    if (n > 0) {
      if (!add(b, s[n - 1], left, -1, w)) return false;
      if (b->token[s[n - 1]].chars + chars < longest && !add(b, s[n - 1], id, 1, w)) return false;
    }
    if (i + 2 < x->n) {
      if (!add(b, right, s[i + 2], -1, w)) return false;
      if (b->token[s[i + 2]].chars + chars < longest && !add(b, id, s[i + 2], 1, w)) return false;
    }
    s[n++] = id;
    i++;
  }
  x->n = n;
  return true;
}

static ac_status learn(ac_bpe_trainer *b, ac_err *e) {
  const size_t longest = b->o.max_token_length > 0 ? b->o.max_token_length : SIZE_MAX;
  aci_strbuf text = {0};
  ac_status st = AC_OK;
  for (uint32_t w = 0; w < b->map.n; w++)
    for (uint32_t i = 0; i + 1 < b->word[w].n; i++)
      if (!add(b, b->symbol[b->word[w].at + i], b->symbol[b->word[w].at + i + 1], 1, w))
        return aci_no_memory(e);
  AC_TRY(queue_changes(b, e));
  while (st == AC_OK && b->n_token < b->o.vocab_size && b->n_heap > 0) {
    aci_pair_entry top = pop(b);
    const int64_t *now = count_of(b, top.pair);
    if (now == NULL) st = aci_no_memory(e);
    else if (*now != top.count) {
      top.count = *now;
      if (push(b, top)) continue;
      st = aci_no_memory(e);
    }
    if (st == AC_OK && (top.count < 1 || top.count < b->o.min_frequency)) {
      free(top.words);
      break;
    }
    const uint32_t left = (uint32_t)(top.pair >> 32), right = (uint32_t)top.pair;
    text.len = 0;
    aci_strbuf_add(&text, b->kept[left], b->token[left].n);
    aci_strbuf_add(&text, b->kept[right], b->token[right].n);
    const int64_t id =
        text.failed ? -1
                    : token_id(b, text.s, text.len, b->token[left].chars + b->token[right].chars);
    if (id < 0 || !ACI_GROW(b->merge, b->cap_merge, b->n_merge + 1)) st = aci_no_memory(e);
    else b->merge[b->n_merge++] = top.pair;
    for (uint32_t i = 0; st == AC_OK && i < top.n; i++)
      if (!merge_word(b, top.words[i], left, right, (uint32_t)id, longest)) st = aci_no_memory(e);
    free(top.words);
    if (st == AC_OK) st = queue_changes(b, e);
    if (st == AC_OK && b->progress != NULL && b->n_merge % 256 == 0)
      st = b->progress(b->user, b->n_token, b->o.vocab_size, e);
  }
  aci_strbuf_fini(&text);
  return st;
}

/* A pair that was merged in several rounds has the rank of the last. */
static ac_status last_merges(ac_bpe_trainer *b, ac_err *e) {
  for (size_t i = 0; i < b->cap_pairs; i++) b->pairs[i].count = 0;
  for (size_t i = b->n_merge; i-- > 0;) {
    int64_t *seen = count_of(b, b->merge[i]);
    if (seen == NULL) return aci_no_memory(e);
    if ((*seen)++ > 0) b->merge[i] = UINT64_MAX;
  }
  return AC_OK;
}

ac_status aci_bpe_learn(ac_bpe_trainer *b, ac_err *e) {
  uint32_t byte_id[256];
  AC_TRY(first_tokens(b, byte_id, e));
  AC_TRY(words_of_bytes(b, byte_id, e));
  AC_TRY(learn(b, e));
  return last_merges(b, e);
}
