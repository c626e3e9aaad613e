/* Added tokens are kept separate from the model's vocabulary. They are found in texts before
 * anything else, the longest at the leftmost place. Called by tokenizer.c. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"
#include "text/unicode.h"

/* The added token at `at`, as an index. *end receives its end. */
static int32_t token_at(const aci_trie *t, const char *s, uint32_t n, uint32_t at, uint32_t *end) {
  int32_t found = -1;
  uint32_t node = 0;
  for (uint32_t i = at; i < n; i++) {
    node = aci_trie_step(t, node, (unsigned char)s[i]);
    if (node == 0) break;
    if (t->value[node] >= 0) found = t->value[node], *end = i + 1;
  }
  return found;
}

/* Whether these tokens count c as part of a word. Joiners of letters do. */
static bool joins_words(uint32_t c) { return aci_uni_is_word(c) || c == 0x200C || c == 0x200D; }

static bool is_single(const char *s, uint32_t n, uint32_t begin, uint32_t end) {
  const char *at = s + begin;
  if (begin > 0 && joins_words(aci_utf8_before(&at))) return false;
  at = s + end;
  return end == n || !joins_words(aci_utf8_next(&at));
}

/* Cuts [begin, end) of a text into w->q. */
static ac_status cut(aci_encode_scratch *w, const aci_text *text, uint32_t begin, uint32_t end,
                     int which, bool split_special, ac_err *e) {
  const ac_tokenizer *t = w->t;
  const char *s = text->s + begin;
  const uint32_t n = end - begin;
  uint32_t at = 0, done = 0, stop = 0;
  while (t->any[which] && at < n) {
    if (!t->finds[which][(unsigned char)s[at]]) {
      at++;
      continue;
    }
    const int32_t i = token_at(&t->find[which], s, n, at, &stop);
    if (i < 0) {
      at++;
      continue;
    }
    const aci_added *a = &t->added[i];
    uint32_t start = at;
    at = stop;
    if ((split_special && a->special) || (a->single_word && !is_single(s, n, start, stop)))
      continue;
    while (a->lstrip && start > done) {
      const char *before = s + start;
      if (!aci_uni_is_space(aci_utf8_before(&before))) break;
      start = (uint32_t)(before - s);
    }
    if (a->lstrip && start < done) start = done;
    while (a->rstrip && stop < n) {
      const char *next = s + stop;
      if (!aci_uni_is_space(aci_utf8_next(&next))) break;
      stop = (uint32_t)(next - s);
    }
    if (done < start && !aci_piece_add(&w->q, begin + done, begin + start, -1))
      return aci_no_memory(e);
    if (start < stop && !aci_piece_add(&w->q, begin + start, begin + stop, i))
      return aci_no_memory(e);
    done = stop;
    /* the search itself continues after the match, without the blanks taken to its right */
  }
  if (done < n && !aci_piece_add(&w->q, begin + done, end, -1)) return aci_no_memory(e);
  return AC_OK;
}

static void swap_pieces(aci_encode_scratch *w) {
  const aci_pieces was = w->p;
  w->p = w->q;
  w->q = was;
  w->q.n = 0;
}

static void swap_text(aci_encode_scratch *w) {
  const aci_text was = w->a;
  w->a = w->b;
  w->b = was;
}

ac_status aci_added_find(aci_encode_scratch *w, bool normalised, bool split_special, ac_err *e) {
  const ac_tokenizer *t = w->t;
  const bool rewrites = normalised && t->n_norm > 0;
  w->q.n = 0;
  if (!rewrites && !t->any[normalised]) return AC_OK;
  if (rewrites) aci_text_clear(&w->b, w->track, 0);
  for (size_t i = 0; i < w->p.n; i++) {
    const aci_piece *p = &w->p.p[i];
    uint32_t begin = p->begin, end = p->end;
    if (rewrites) {
      aci_text *text = &w->a;
      if (p->token < 0) {
        AC_TRY(aci_normalize(w, &w->a, begin, end, &text, e));
        begin = 0;
        end = text->n;
      }
      const uint32_t at = w->b.n;
      if (!aci_text_copy(&w->b, text, begin, end)) return aci_no_memory(e);
      begin = at;
      end = w->b.n;
    }
    if (p->token >= 0) {
      if (!aci_piece_add(&w->q, begin, end, p->token)) return aci_no_memory(e);
    } else {
      AC_TRY(cut(w, rewrites ? &w->b : &w->a, begin, end, normalised, split_special, e));
    }
  }
  if (rewrites) swap_text(w);
  swap_pieces(w);
  return AC_OK;
}

/* ---- changing them ---- */
static int by_id(const void *a, const void *b) {
  const aci_added *x = a, *y = b;
  return x->id < y->id ? -1 : x->id > y->id;
}

/* Makes the tables that find them. */
static ac_status index_tokens(ac_tokenizer *t, ac_err *e) {
  aci_map_fini(&t->added_by_text);
  memset(t->finds, 0, sizeof t->finds);
  for (int k = 0; k < 2; k++) {
    aci_trie_fini(&t->find[k]);
    t->any[k] = false;
    if (!aci_trie_open(&t->find[k])) return aci_no_memory(e);
  }
  if (t->n_added > 0) qsort(t->added, t->n_added, sizeof *t->added, by_id);
  for (size_t i = t->n_added; i-- > 0;) { /* of equal ones the first */
    const aci_added *a = &t->added[i];
    int64_t was;
    if (!aci_map_add(&t->added_by_text, a->content, a->n, (uint32_t)i, &was))
      return aci_no_memory(e);
    const char *s = a->normal != NULL ? a->normal : a->content;
    const uint32_t n = a->normal != NULL ? a->n_normal : a->n;
    if (n == 0) continue;
    if (!aci_trie_add(&t->find[a->normalized], s, n, (int32_t)i)) return aci_no_memory(e);
    t->finds[a->normalized][(unsigned char)s[0]] = true;
    t->any[a->normalized] = true;
  }
  return AC_OK;
}

static ac_status normal_form(const ac_tokenizer *t, aci_added *a, ac_err *e) {
  free(a->normal);
  a->normal = NULL;
  a->n_normal = 0;
  if (!a->normalized || t->n_norm == 0) return AC_OK;
  aci_encode_scratch *w;
  AC_TRY(aci_encode_scratch_get(t, &w, e));
  const aci_text src = {.s = a->content, .n = a->n, .same = true};
  aci_text *out;
  w->track = false;
  ac_status st = aci_normalize(w, &src, 0, a->n, &out, e);
  if (st == AC_OK && (out->n != a->n || memcmp(out->s, a->content, a->n) != 0)) {
    a->normal = malloc((size_t)out->n + 1);
    if (a->normal == NULL) st = aci_no_memory(e);
    else memcpy(a->normal, out->s, out->n), a->n_normal = out->n;
  }
  aci_encode_scratch_put(t, w);
  return st;
}

/* Adds token i, or changes the properties of one of the same text. *changed: whether anything
 * changed. It gets the id of the model's entry of that text, otherwise *next_id. */
static ac_status add_one(ac_tokenizer *t, const ac_added_token *token, size_t i, uint32_t *next_id,
                         bool *changed, ac_err *e) {
  *changed = false;
  if (token->n == 0) return AC_OK;
  if (token->n > ACI_TOKEN_BYTES)
    return AC_FAIL(e, INVALID, "added token %zu: %zu bytes are more than %d", i + 1, token->n,
                   ACI_TOKEN_BYTES);
  if (!aci_utf8_valid(token->content, token->n))
    return AC_FAIL(e, INVALID, "added token %zu is not valid UTF-8", i + 1);
  int64_t at = aci_map_get(&t->added_by_text, token->content, token->n);
  if (at >= 0) {
    aci_added *a = &t->added[at];
    if (a->single_word == token->single_word && a->lstrip == token->lstrip &&
        a->rstrip == token->rstrip && a->normalized == token->normalized &&
        a->special == token->special)
      return AC_OK;
  } else {
    const int64_t known = aci_map_get(&t->model.vocab, token->content, token->n);
    aci_added *list = realloc(t->added, (t->n_added + 1) * sizeof *list);
    if (list == NULL) return aci_no_memory(e);
    t->added = list;
    at = (int64_t)t->n_added;
    aci_added *a = &list[at];
    *a = (aci_added){.n = (uint32_t)token->n};
    a->content = malloc(token->n + 1);
    if (a->content == NULL) return aci_no_memory(e);
    memcpy(a->content, token->content, token->n);
    a->content[token->n] = 0;
    t->n_added++;
    if (known < 0 && *next_id > INT32_MAX)
      return AC_FAIL(e, INVALID, "added token %zu: there are no more ids", i + 1);
    a->id = known >= 0 ? (uint32_t)known : (*next_id)++;
    int64_t was;
    if (!aci_map_add(&t->added_by_text, a->content, a->n, (uint32_t)at, &was))
      return aci_no_memory(e);
  }
  aci_added *a = &t->added[at];
  a->single_word = token->single_word;
  a->lstrip = token->lstrip;
  a->rstrip = token->rstrip;
  a->normalized = token->normalized;
  a->special = a->special || token->special;
  *changed = true;
  return normal_form(t, a, e);
}

ac_status ac_tokenizer_add_tokens(ac_tokenizer *t, const ac_added_token *tokens, size_t n,
                                  size_t *added, ac_err *e) {
  const uint32_t size = (uint32_t)t->model.vocab.n;
  uint32_t next_id = size;
  if (t->model.kind == ACI_UNIGRAM) next_id = t->model.n_id;
  for (size_t i = 0; i < t->n_added; i++)
    if (t->added[i].id >= next_id) next_id = t->added[i].id + 1;
  *added = 0;
  ac_status st = AC_OK;
  for (size_t i = 0; st == AC_OK && i < n; i++) {
    bool changed;
    st = add_one(t, &tokens[i], i, &next_id, &changed, e);
    *added += changed;
  }
  aci_encode_scratch_list_drop(t);
  ac_err later;
  const ac_status indexed = index_tokens(t, st == AC_OK ? e : &later);
  return st == AC_OK ? indexed : st;
}

size_t ac_tokenizer_n_added(const ac_tokenizer *t) { return t->n_added; }

void ac_tokenizer_added(const ac_tokenizer *t, size_t i, ac_added_token *token, int64_t *id) {
  const aci_added *a = &t->added[i];
  *token = (ac_added_token){a->content, a->n,          a->single_word, a->lstrip,
                            a->rstrip,  a->normalized, a->special};
  *id = a->id;
}
