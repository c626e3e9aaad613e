/* WordPiece: of each word the longest piece of the vocabulary, then of the rest, with a prefix that
 * marks continuations. A word that cannot be split so is unknown as a whole. WordLevel, the whole
 * word or nothing, is here as well. Called by encode_scratch.c. */
#include <string.h>

#include "text/tokenizer.h"
#include "text/unicode.h"

static ac_status unknown(aci_encode_scratch *w, uint32_t n, uint32_t at, ac_err *e) {
  const aci_model *m = &w->t->model;
  if (m->unk < 0)
    return AC_FAIL(e, INVALID,
                   "tokenizer: unk_token is not in the vocabulary, and the text needs it");
  return aci_token_add(w, (uint32_t)m->unk, at, at + n, false) ? AC_OK : aci_no_memory(e);
}

/* The longest entry of a trie at s. *end is its end. */
static int32_t longest(const aci_trie *t, const char *s, uint32_t n, uint32_t from, uint32_t *end) {
  int32_t found = -1;
  uint32_t node = 0;
  for (uint32_t i = from; i < n; i++) {
    node = aci_trie_step(t, node, (unsigned char)s[i]);
    if (node == 0) break;
    if (t->value[node] >= 0) found = t->value[node], *end = i + 1;
  }
  return found;
}

ac_status aci_wordpiece(aci_encode_scratch *w, const char *s, uint32_t n, uint32_t at, ac_err *e) {
  const aci_model *m = &w->t->model;
  if (m->kind == ACI_WORDLEVEL) {
    const int64_t id = aci_map_get(&m->vocab, s, n);
    if (id < 0) return unknown(w, n, at, e);
    return aci_token_add(w, (uint32_t)id, at, at + n, false) ? AC_OK : aci_no_memory(e);
  }
  uint32_t chars = 0;
  for (uint32_t i = 0; i < n; i++) chars += ((unsigned char)s[i] & 0xC0) != 0x80;
  if (chars > m->max_chars) return unknown(w, n, at, e);
  const size_t first = w->n_token;
  for (uint32_t i = 0, end = 0; i < n; i = end) {
    const int32_t id = longest(i == 0 ? &m->trie : &m->rest, s, n, i, &end);
    if (id < 0) {
      w->n_token = first;
      return unknown(w, n, at, e);
    }
    if (!aci_token_add(w, (uint32_t)id, at + i, at + end, false)) return aci_no_memory(e);
  }
  return AC_OK;
}
