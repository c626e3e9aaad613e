/* Training of a byte-level BPE: counts words, then merges the most frequent pair again and again. Ties go to the pair of the
 * smaller ids, and pairs that come into being later wait in entries of their own, as in the package `tokenizers`, whose
 * merges these are. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"
#include "text/unicode.h"

typedef struct pair_count {
  uint64_t pair; /* all ones: free */
  int64_t count;
} pair_count;
/* One set of words in which a pair is to be merged. */
typedef struct entry {
  uint64_t pair;
  int64_t count;
  uint32_t *words, n;
} entry;
typedef struct change {
  uint64_t pair;
  uint32_t word;
} change;
typedef struct word {
  uint64_t at; /* of its first symbol */
  uint32_t n;
  int64_t count;
} word;

struct ac_bpe_trainer {
  ac_bpe_options o;
  ac_bpe_progress_fn progress;
  void *user;
  ac_text *special;
  char *special_text;
  aci_regex *regex;
  aci_regex_cache *cache;
  /* words: text in pieces that do not move, numbers in the map */
  char **block;
  size_t n_block, cap_block, left;
  aci_map map;
  int64_t *count;
  size_t cap_count;
  aci_strbuf prefixed;
  /* learning */
  word *word;
  uint32_t *symbol;
  pair_count *pairs;
  size_t n_pairs, cap_pairs;
  entry *heap;
  size_t n_heap, cap_heap;
  change *change;
  size_t n_change, cap_change;
  /* vocabulary: texts in ByteLevel's characters */
  struct {
    uint32_t n, chars;
  } *token;
  size_t n_token, cap_token;
  aci_map ids;
  char **kept; /* texts of ids, which the map borrows */
  size_t cap_kept;
  uint64_t *merge;
  size_t n_merge, cap_merge;
};

enum { BLOCK = 1 << 20 };
static const char GPT2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

ac_status ac_bpe_trainer_new(const ac_bpe_options *o, ac_bpe_trainer **out, ac_err *e) {
  *out = NULL;
  AC_TRY(aci_uni_open(e));
  if (o->vocab_size > INT32_MAX / 2) return AC_FAIL(e, INVALID, "train_bpe: a vocabulary of more than %d", INT32_MAX / 2);
  ac_bpe_trainer *b = calloc(1, sizeof *b);
  size_t n = 0;
  for (size_t i = 0; i < o->n_special; i++) n += o->special[i].n;
  if (b == NULL) return aci_no_memory(e);
  b->o = *o;
  b->special = calloc(o->n_special + 1, sizeof *b->special);
  b->special_text = malloc(n + 1);
  ac_status st = b->special == NULL || b->special_text == NULL ? aci_no_memory(e) : AC_OK;
  for (size_t i = 0, at = 0; st == AC_OK && i < o->n_special; at += o->special[i++].n) {
    if (o->special[i].n == 0 || o->special[i].n > ACI_TOKEN_BYTES || !aci_utf8_valid(o->special[i].s, o->special[i].n))
      st = AC_FAIL(e, INVALID, "train_bpe: special token %zu is empty, too long or not UTF-8", i + 1);
    memcpy(b->special_text + at, o->special[i].s, o->special[i].n);
    b->special[i] = (ac_text){b->special_text + at, o->special[i].n};
  }
  b->o.special = b->special;
  if (st == AC_OK) st = aci_regex_new(GPT2, sizeof GPT2 - 1, &b->regex, e);
  if (st == AC_OK && (b->cache = aci_regex_cache_new(b->regex)) == NULL) st = aci_no_memory(e);
  if (st == AC_OK) *out = b;
  else ac_bpe_trainer_free(b);
  return st;
}

void ac_bpe_trainer_free(ac_bpe_trainer *b) {
  if (b == NULL) return;
  for (size_t i = 0; i < b->n_block; i++) free(b->block[i]);
  for (size_t i = 0; i < b->n_token && b->kept != NULL; i++) free(b->kept[i]);
  for (size_t i = 0; i < b->n_heap; i++) free(b->heap[i].words);
  aci_regex_cache_free(b->cache);
  aci_regex_free(b->regex);
  aci_map_fini(&b->map);
  aci_map_fini(&b->ids);
  aci_strbuf_fini(&b->prefixed);
  void *const parts[] = {b->special, b->special_text, b->block, b->count, b->word, b->symbol, b->pairs, b->heap,
                         b->change, b->token, b->kept, b->merge};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) free(parts[i]);
  free(b);
}

/* ---- counting words ---- */
static bool count_word(ac_bpe_trainer *b, const char *s, size_t n) {
  const int64_t i = aci_map_get(&b->map, s, n);
  if (i >= 0) return b->count[i]++, true;
  if (b->n_block == 0 || n > b->left) {
    const size_t size = n > BLOCK ? n : BLOCK;
    if (!ACI_GROW(b->block, b->cap_block, b->n_block + 1)) return false;
    if ((b->block[b->n_block] = malloc(size)) == NULL) return false;
    b->n_block++;
    b->left = size;
  }
  char *to = b->block[b->n_block - 1] + (n > BLOCK ? 0 : BLOCK - b->left);
  memcpy(to, s, n);
  b->left = n > BLOCK ? 0 : b->left - n;
  int64_t was;
  const size_t number = b->map.n;
  if (!ACI_GROW(b->count, b->cap_count, number + 1) || !aci_map_add(&b->map, to, n, (uint32_t)number, &was)) return false;
  b->count[number] = 1;
  return true;
}

ac_status ac_bpe_trainer_feed(ac_bpe_trainer *b, const char *text, size_t n, ac_err *e) {
  if (!aci_utf8_valid(text, n)) return AC_FAIL(e, INVALID, "train_bpe: a text is not valid UTF-8");
  if (b->o.add_prefix_space && n > 0 && text[0] != ' ') {
    b->prefixed.len = 0;
    aci_strbuf_putc(&b->prefixed, ' ');
    aci_strbuf_add(&b->prefixed, text, n);
    if (b->prefixed.failed) return aci_no_memory(e);
    text = b->prefixed.s;
    n++;
  }
  size_t begin, end;
  bool found;
  aci_regex_begin(b->cache, n);
  for (size_t at = 0; at < n; at = end) {
    AC_TRY(aci_regex_find(b->cache, text, n, at, &begin, &end, &found, e));
    if (!found) break;
    if (!count_word(b, text + begin, end - begin)) return aci_no_memory(e);
  }
  return AC_OK;
}

void ac_bpe_trainer_watch(ac_bpe_trainer *b, ac_bpe_progress_fn fn, void *user) {
  b->progress = fn;
  b->user = user;
}

size_t ac_bpe_trainer_words(const ac_bpe_trainer *b) { return b->map.n; }

/* ---- vocabulary ---- */

/* The id of a text, new or known; -1: no memory. */
static int64_t token_id(ac_bpe_trainer *b, const char *s, size_t n, uint32_t chars) {
  const int64_t known = aci_map_get(&b->ids, s, n);
  if (known >= 0) return known;
  int64_t was;
  if (!ACI_GROW(b->token, b->cap_token, b->n_token + 1) || !ACI_GROW(b->kept, b->cap_kept, b->n_token + 1)) return -1;
  char *own = malloc(n + 1);
  if (own == NULL) return -1;
  memcpy(own, s, n);
  own[n] = 0;
  b->kept[b->n_token] = own;
  b->token[b->n_token].n = (uint32_t)n;
  b->token[b->n_token].chars = chars;
  b->n_token++;
  return aci_map_add(&b->ids, own, n, (uint32_t)(b->n_token - 1), &was) ? (int64_t)b->n_token - 1 : -1;
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
    b->word[x->value] = (word){all, x->n, b->count[x->value]};
    for (uint32_t k = 0; k < x->n; k++) b->symbol[all++] = byte_id[(unsigned char)x->s[k]];
  }
  return AC_OK;
}

/* ---- pairs ---- */
static int64_t *count_of(ac_bpe_trainer *b, uint64_t pair) {
  if (b->n_pairs * 2 >= b->cap_pairs) {
    const size_t cap = b->cap_pairs == 0 ? 1 << 16 : b->cap_pairs * 2;
    pair_count *p = malloc(cap * sizeof *p);
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
  while (b->pairs[k].pair != UINT64_MAX && b->pairs[k].pair != pair) k = (k + 1) & (b->cap_pairs - 1);
  if (b->pairs[k].pair == UINT64_MAX) {
    b->pairs[k] = (pair_count){pair, 0};
    b->n_pairs++;
  }
  return &b->pairs[k].count;
}

static bool before(const entry *a, const entry *b) { return a->count != b->count ? a->count > b->count : a->pair < b->pair; }

static bool push(ac_bpe_trainer *b, entry x) {
  if (!ACI_GROW(b->heap, b->cap_heap, b->n_heap + 1)) return false;
  size_t i = b->n_heap++;
  for (; i > 0 && before(&x, &b->heap[(i - 1) / 2]); i = (i - 1) / 2) b->heap[i] = b->heap[(i - 1) / 2];
  b->heap[i] = x;
  return true;
}

static entry pop(ac_bpe_trainer *b) {
  const entry top = b->heap[0], last = b->heap[--b->n_heap];
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
  b->change[b->n_change++] = (change){pair, w};
  return true;
}

static int by_pair(const void *x, const void *y) {
  const change *a = x, *b = y;
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
    entry x = {pair, *count, malloc((end - i) * sizeof *x.words), 0};
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
static bool merge_word(ac_bpe_trainer *b, uint32_t w, uint32_t left, uint32_t right, uint32_t id, size_t longest) {
  word *x = &b->word[w];
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
      if (!add(b, b->symbol[b->word[w].at + i], b->symbol[b->word[w].at + i + 1], 1, w)) return aci_no_memory(e);
  AC_TRY(queue_changes(b, e));
  while (st == AC_OK && b->n_token < b->o.vocab_size && b->n_heap > 0) {
    entry top = pop(b);
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
    const int64_t id = text.failed ? -1 : token_id(b, text.s, text.len, b->token[left].chars + b->token[right].chars);
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

/* ---- the file ---- */
static void put_string(aci_json_writer *w, const char *s) { aci_json_string(w, s, strlen(s)); }

static void put_model(ac_bpe_trainer *b, aci_json_writer *w) {
  aci_json_begin(w, true);
  aci_json_key(w, "type", 4);
  put_string(w, "BPE");
  for (const char *const *k = (const char *const[]){"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", NULL};
       *k != NULL; k++) {
    aci_json_key(w, *k, strlen(*k));
    aci_json_null(w);
  }
  for (const char *const *k = (const char *const[]){"fuse_unk", "byte_fallback", "ignore_merges", NULL}; *k != NULL; k++) {
    aci_json_key(w, *k, strlen(*k));
    aci_json_bool(w, false);
  }
  aci_json_key(w, "vocab", 5);
  aci_json_begin(w, true);
  for (size_t i = 0; i < b->n_token; i++) {
    aci_json_key(w, b->kept[i], b->token[i].n);
    aci_json_int(w, (int64_t)i);
  }
  aci_json_end(w);
  aci_json_key(w, "merges", 6);
  aci_json_begin(w, false);
  for (size_t i = 0; i < b->n_merge; i++) {
    if (b->merge[i] == UINT64_MAX) continue;
    const uint32_t pair[2] = {(uint32_t)(b->merge[i] >> 32), (uint32_t)b->merge[i]};
    aci_json_begin(w, false);
    for (int k = 0; k < 2; k++) aci_json_string(w, b->kept[pair[k]], b->token[pair[k]].n);
    aci_json_end(w);
  }
  aci_json_end(w);
  aci_json_end(w);
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

ac_status ac_bpe_trainer_finish(ac_bpe_trainer *b, ac_tokenizer **out, ac_err *e) {
  static const char level[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"trim_offsets\":true,\"use_regex\":true}";
  uint32_t byte_id[256];
  *out = NULL;
  if (b->word != NULL) return AC_FAIL(e, STATE, "train_bpe: this trainer has finished");
  AC_TRY(first_tokens(b, byte_id, e));
  AC_TRY(words_of_bytes(b, byte_id, e));
  AC_TRY(learn(b, e));
  AC_TRY(last_merges(b, e));
  if (b->progress != NULL) AC_TRY(b->progress(b->user, b->o.vocab_size, b->o.vocab_size, e));
  aci_strbuf s = {0};
  aci_strbuf_puts(&s, "{\"version\":\"1.0\",\"added_tokens\":[");
  for (size_t i = 0; i < b->o.n_special; i++) {
    aci_json_writer w = {.out = &s};
    if (i > 0) aci_strbuf_putc(&s, ',');
    aci_json_begin(&w, true);
    aci_json_key(&w, "content", 7);
    aci_json_string(&w, b->special[i].s, b->special[i].n);
    aci_json_key(&w, "special", 7);
    aci_json_bool(&w, true);
    aci_json_key(&w, "normalized", 10);
    aci_json_bool(&w, false);
    aci_json_end(&w);
    const ac_status st = aci_json_finish(&w, e);
    if (st != AC_OK) {
      aci_strbuf_fini(&s);
      return st;
    }
  }
  for (int k = 0; k < 3; k++) {
    aci_strbuf_puts(&s, k == 0 ? "],\"pre_tokenizer\":" : k == 1 ? ",\"post_processor\":" : ",\"decoder\":");
    aci_strbuf_printf(&s, level, k == 0 && !b->o.add_prefix_space ? "false" : "true");
  }
  aci_strbuf_puts(&s, ",\"model\":");
  aci_json_writer w = {.out = &s};
  put_model(b, &w);
  ac_status st = aci_json_finish(&w, e);
  aci_strbuf_putc(&s, '}');
  if (st == AC_OK && s.failed) st = aci_no_memory(e);
  if (st == AC_OK) st = ac_tokenizer_parse(s.s, s.len, out, e);
  aci_strbuf_fini(&s);
  return st;
}
