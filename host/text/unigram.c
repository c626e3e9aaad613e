/* Unigram: the pieces with the highest sum of scores (Viterbi's algorithm). Among equal sums the
 * path found first. Called by encode_scratch.c. */
#include <string.h>

#include "text/tokenizer.h"
#include "text/unicode.h"

/* Fills reach[i]: the best way to the first i bytes. */
static ac_status find_best(aci_encode_scratch *w, const char *s, uint32_t n, ac_err *e) {
  const aci_model *m = &w->t->model;
  if (!ACI_GROW(w->reach, w->cap_reach, (size_t)n + 1)) return aci_no_memory(e);
  aci_reach *r = w->reach;
  for (uint32_t i = 0; i <= n; i++) r[i] = (aci_reach){0, -1, 0};
  for (uint32_t i = 0, k; i < n; i += k) {
    const double here = r[i].score;
    uint32_t node = 0;
    bool single = false; /* the character itself is a piece */
    k = (uint32_t)aci_utf8_size((unsigned char)s[i]);
    for (uint32_t end = i; end < n;) {
      node = aci_trie_step(&m->trie, node, (unsigned char)s[end]);
      if (node == 0) break;
      end++;
      const int32_t id = m->trie.value[node];
      if (id < 0) continue;
      double score = m->score[id] + here;
      if (m->sp) score = (float)score;
      if (r[end].from < 0 || score > r[end].score)
        r[end] = (aci_reach){score, (int32_t)i, (uint32_t)id};
      single = single || end == i + k;
    }
    if (single) continue;
    double score = m->unk_score + here;
    if (m->sp) score = (float)score;
    if (r[i + k].from >= 0 && score <= r[i + k].score) continue;
    if (m->unk < 0)
      return AC_FAIL(e, INVALID,
                     "tokenizer: a text needs the unknown token, and unk_id names none");
    r[i + k] = (aci_reach){score, (int32_t)i, (uint32_t)m->unk};
  }
  return AC_OK;
}

static ac_status add_unknown(aci_encode_scratch *w, const char *s, uint32_t begin, uint32_t end,
                             uint32_t at, ac_err *e) {
  const aci_model *m = &w->t->model;
  /* unknown characters that are joined may spell a piece */
  const int64_t known = m->sp ? -1 : aci_map_get(&m->vocab, s + begin, end - begin);
  if (known >= 0)
    return aci_token_add(w, (uint32_t)known, at + begin, at + end, false) ? AC_OK
                                                                          : aci_no_memory(e);
  bool bytes = m->byte_fallback;
  for (uint32_t i = begin; bytes && i < end; i++) bytes = m->byte_token[(unsigned char)s[i]] >= 0;
  if (!bytes)
    return aci_token_add(w, (uint32_t)m->unk, at + begin, at + end, true) ? AC_OK
                                                                          : aci_no_memory(e);
  for (uint32_t i = begin; i < end; i++)
    if (!aci_token_add(w, (uint32_t)m->byte_token[(unsigned char)s[i]], at + (m->sp ? i : begin),
                       at + (m->sp ? i + 1 : end), false))
      return aci_no_memory(e);
  return AC_OK;
}

ac_status aci_unigram(aci_encode_scratch *w, const char *s, uint32_t n, uint32_t at, ac_err *e) {
  const aci_model *m = &w->t->model;
  AC_TRY(find_best(w, s, n, e));
  aci_reach *r = w->reach;
  /* the way back, turned around: from[] of each stop leads to the next */
  uint32_t end = n, next = 0;
  while (end > 0) {
    const uint32_t from = (uint32_t)r[end].from;
    r[end].from = (int32_t)next; /* end of the piece after this one */
    next = end;
    end = from;
  }
  uint32_t begin = 0, unknown = 0; /* unknown: start of the run of unknown pieces, if any */
  bool open = false;
  for (uint32_t stop = next; stop != 0; begin = stop, stop = (uint32_t)r[stop].from) {
    if (m->unk >= 0 && r[stop].id == (uint32_t)m->unk) {
      if (!open) unknown = begin;
      open = true;
      continue;
    }
    if (open) AC_TRY(add_unknown(w, s, unknown, begin, at, e));
    open = false;
    if (!aci_token_add(w, r[stop].id, at + begin, at + stop, false)) return aci_no_memory(e);
  }
  if (open) AC_TRY(add_unknown(w, s, unknown, n, at, e));
  return AC_OK;
}
