/* The working state of one encode call: buffers, automata, cached words. The tokenizer keeps them
 * in a free list for the next call, one for each thread that encoded at the same time. Patterns,
 * which need the automata, are here too. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"
#include "text/unicode.h"
#include "text/encode_scratch.h"

static void work_free(aci_encode_scratch *w) {
  if (w == NULL) return;
  aci_text_fini(&w->a);
  aci_text_fini(&w->b);
  aci_text_fini(&w->x);
  aci_text_fini(&w->y);
  for (size_t i = 0; i < ACI_REGEXES; i++) aci_regex_cache_free(w->rx[i]);
  void *const parts[] = {w->p.p,  w->q.p, w->span,   w->point,  w->change, w->class, w->token,
                         w->word, w->key, w->memory, w->symbol, w->heap,   w->skip,  w->reach};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) free(parts[i]);
  free(w);
}

ac_status aci_encode_scratch_list_open(ac_tokenizer *t, ac_err *e) {
  t->scratch_list = calloc(1, sizeof *t->scratch_list);
  if (t->scratch_list == NULL) return aci_no_memory(e);
  pthread_mutex_init(&t->scratch_list->mutex, NULL);
  return AC_OK;
}

void aci_encode_scratch_list_drop(ac_tokenizer *t) {
  for (aci_encode_scratch *w = t->scratch_list->free, *next; w != NULL; w = next) {
    next = w->next;
    work_free(w);
  }
  t->scratch_list->free = NULL;
}

void aci_encode_scratch_list_close(ac_tokenizer *t) {
  if (t->scratch_list == NULL) return;
  aci_encode_scratch_list_drop(t);
  pthread_mutex_destroy(&t->scratch_list->mutex);
  free(t->scratch_list);
  t->scratch_list = NULL;
}

ac_status aci_encode_scratch_get(const ac_tokenizer *t, aci_encode_scratch **out, ac_err *e) {
  pthread_mutex_lock(&t->scratch_list->mutex);
  aci_encode_scratch *w = t->scratch_list->free;
  if (w != NULL) t->scratch_list->free = w->next;
  pthread_mutex_unlock(&t->scratch_list->mutex);
  if (w == NULL) {
    w = calloc(1, sizeof *w);
    if (w == NULL) return aci_no_memory(e);
    w->t = t;
    for (uint32_t i = 0; i < t->n_regex; i++)
      if ((w->rx[i] = aci_regex_cache_new(t->regex[i])) == NULL) {
        work_free(w);
        return aci_no_memory(e);
      }
  }
  *out = w;
  return AC_OK;
}

void aci_encode_scratch_put(const ac_tokenizer *t, aci_encode_scratch *w) {
  /* one long text does not keep its memory for good */
  enum { KEEP = 1 << 22 };
  aci_text *const texts[] = {&w->a, &w->b, &w->x, &w->y};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    if (texts[i]->same || texts[i]->cap > KEEP) aci_text_fini(texts[i]);
  pthread_mutex_lock(&t->scratch_list->mutex);
  w->next = t->scratch_list->free;
  t->scratch_list->free = w;
  pthread_mutex_unlock(&t->scratch_list->mutex);
}

bool aci_token_add(aci_encode_scratch *w, uint32_t id, uint32_t begin, uint32_t end,
                   bool as_written) {
  if (!ACI_GROW(w->token, w->cap_token, w->n_token + 1)) return false;
  w->token[w->n_token++] = (aci_token){id, begin, end, as_written};
  return true;
}

/* ---- the cache of words ----
 * Direct-mapped by hash: a word replaces the one in its slot. When the room for letters or tokens is used up, the cache is emptied. */
enum { WORDS = 1 << 15, LETTERS = 1 << 20, MEMORY = 1 << 17, LONGEST = 255 };

static inline uint64_t load(const char *s, int n) {
  uint64_t v = 0;
  memcpy(&v, s, (size_t)n);
  return v;
}

static inline uint64_t mixed(uint64_t a, uint64_t b) {
  __extension__ const unsigned __int128 p =
      (unsigned __int128)(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD6E8FEB86659FD93u);
  return (uint64_t)p ^ (uint64_t)(p >> 64);
}

static inline uint64_t word_hash(const char *s, uint32_t n) {
  uint64_t h = n;
  for (; n > 16; s += 8, n -= 8) h = mixed(h, load(s, 8));
  if (n >= 8) return mixed(h ^ load(s, 8), load(s + n - 8, 8));
  if (n >= 4) return mixed(h ^ load(s, 4), load(s + n - 4, 4));
  return mixed(h, (uint64_t)(unsigned char)s[0] | (uint64_t)(unsigned char)s[n / 2] << 8 |
                      (uint64_t)(unsigned char)s[n - 1] << 16);
}

/* Appends the tokens of piece s, which begins at byte `at` of the text. They come from the cache,
 * whose offsets count from the piece's start, or from the model. Long pieces and BPE with dropout,
 * which is random, are not cached. */
ac_status aci_tokenize_piece(aci_encode_scratch *w, const char *s, uint32_t n, uint32_t at,
                             ac_err *e) {
  const aci_model *m = &w->t->model;
  ac_status (*const model)(aci_encode_scratch *, const char *, uint32_t, uint32_t, ac_err *) =
      m->kind == ACI_BPE       ? aci_bpe
      : m->kind == ACI_UNIGRAM ? aci_unigram
                               : aci_wordpiece;
  if (n == 0) return AC_OK;
  if (n > LONGEST || (m->kind == ACI_BPE && m->dropout > 0)) return model(w, s, n, at, e);
  if (w->word == NULL) {
    w->word = calloc(WORDS, sizeof *w->word);
    w->key = malloc(LETTERS);
    w->memory = malloc(MEMORY * sizeof *w->memory);
    if (w->word == NULL || w->key == NULL || w->memory == NULL) {
      free(w->word);
      free(w->key);
      free(w->memory);
      w->word = NULL;
      w->key = NULL;
      w->memory = NULL;
      return aci_no_memory(e);
    }
    w->n_key = w->n_memory = 0;
  }
  const uint64_t hash = word_hash(s, n);
  aci_word *slot = &w->word[hash >> 32 & (WORDS - 1)];
  if (slot->hash == hash && slot->n_key == n && memcmp(w->key + slot->key, s, n) == 0) {
    if (!ACI_GROW(w->token, w->cap_token, w->n_token + slot->n_token)) return aci_no_memory(e);
    aci_token *to = w->token + w->n_token;
    const aci_token *from = w->memory + slot->token;
    for (uint32_t i = 0; i < slot->n_token; i++)
      to[i] = (aci_token){from[i].id, from[i].begin + at, from[i].end + at, from[i].as_written};
    w->n_token += slot->n_token;
    return AC_OK;
  }
  const size_t first = w->n_token;
  AC_TRY(model(w, s, n, at, e));
  const size_t k = w->n_token - first;
  if (k > UINT16_MAX) return AC_OK;
  if (w->n_key + n > LETTERS || w->n_memory + k > MEMORY) {
    memset(w->word, 0, WORDS * sizeof *w->word);
    w->n_key = w->n_memory = 0;
  }
  *slot = (aci_word){hash, w->n_key, w->n_memory, (uint16_t)n, (uint16_t)k};
  memcpy(w->key + w->n_key, s, n);
  w->n_key += n;
  for (size_t i = 0; i < k; i++) {
    const aci_token *x = &w->token[first + i];
    w->memory[w->n_memory++] = (aci_token){x->id, x->begin - at, x->end - at, x->as_written};
  }
  return AC_OK;
}

/* ---- patterns ---- */
void aci_pattern_begin(aci_encode_scratch *w, const aci_pattern *p, size_t n) {
  if (p->literal == NULL) aci_regex_begin(w->rx[p->regex], n);
}

ac_status aci_pattern_next(aci_encode_scratch *w, const aci_pattern *p, const char *s, size_t n,
                           aci_find *f, size_t *begin, size_t *end, bool *found, ac_err *e) {
  if (p->literal != NULL) {
    const char *hit = f->at < n ? memmem(s + f->at, n - f->at, p->literal, p->n) : NULL;
    *found = hit != NULL;
    if (hit != NULL) *begin = (size_t)(hit - s), f->at = *end = *begin + p->n;
    return AC_OK;
  }
  for (*found = false; f->at <= n;) {
    AC_TRY(aci_regex_find(w->rx[p->regex], s, n, f->at, begin, end, found, e));
    if (!*found) return AC_OK;
    if (*begin != *end || !f->any || f->last_end != *end) {
      f->at = f->last_end = *end;
      f->any = true;
      return AC_OK;
    }
    /* an empty match right after the last one does not count */
    *found = false;
    f->at += f->at < n ? (size_t)aci_utf8_size((unsigned char)s[f->at]) : 1;
  }
  return AC_OK;
}
