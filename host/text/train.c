/* Training of a byte-level BPE: counts words, has train_merge.c learn from them, and writes the
 * result as the text of a tokenizer.json, from which the tokenizer is made. */
#include <stdlib.h>
#include <string.h>

#include "text/train.h"
#include "text/unicode.h"

enum { BLOCK = 1 << 20 };
static const char GPT2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

ac_status ac_bpe_trainer_new(const ac_bpe_options *o, ac_bpe_trainer **out, ac_err *e) {
  *out = NULL;
  AC_TRY(aci_uni_open(e));
  if (o->vocab_size > INT32_MAX / 2)
    return AC_FAIL(e, INVALID, "train_bpe: a vocabulary of more than %d", INT32_MAX / 2);
  ac_bpe_trainer *b = calloc(1, sizeof *b);
  size_t n = 0;
  for (size_t i = 0; i < o->n_special; i++) n += o->special[i].n;
  if (b == NULL) return aci_no_memory(e);
  b->o = *o;
  b->special = calloc(o->n_special + 1, sizeof *b->special);
  b->special_text = malloc(n + 1);
  ac_status st = b->special == NULL || b->special_text == NULL ? aci_no_memory(e) : AC_OK;
  for (size_t i = 0, at = 0; st == AC_OK && i < o->n_special; at += o->special[i++].n) {
    if (o->special[i].n == 0 || o->special[i].n > ACI_TOKEN_BYTES ||
        !aci_utf8_valid(o->special[i].s, o->special[i].n))
      st = AC_FAIL(e, INVALID, "train_bpe: special token %zu is empty, too long or not UTF-8",
                   i + 1);
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
  void *const parts[] = {b->special, b->special_text, b->block,  b->count, b->word, b->symbol,
                         b->pairs,   b->heap,         b->change, b->token, b->kept, b->merge};
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
  if (!ACI_GROW(b->count, b->cap_count, number + 1) ||
      !aci_map_add(&b->map, to, n, (uint32_t)number, &was))
    return false;
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

/* ---- the file ---- */
static void put_string(aci_json_writer *w, const char *s) { aci_json_string(w, s, strlen(s)); }

static void put_model(ac_bpe_trainer *b, aci_json_writer *w) {
  aci_json_begin(w, true);
  aci_json_key(w, "type", 4);
  put_string(w, "BPE");
  for (const char *const *k =
           (const char *const[]){"dropout", "unk_token", "continuing_subword_prefix",
                                 "end_of_word_suffix", NULL};
       *k != NULL; k++) {
    aci_json_key(w, *k, strlen(*k));
    aci_json_null(w);
  }
  for (const char *const *k =
           (const char *const[]){"fuse_unk", "byte_fallback", "ignore_merges", NULL};
       *k != NULL; k++) {
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

ac_status ac_bpe_trainer_finish(ac_bpe_trainer *b, ac_tokenizer **out, ac_err *e) {
  static const char level[] =
      "{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"trim_offsets\":true,\"use_regex\":true}";
  *out = NULL;
  if (b->word != NULL) return AC_FAIL(e, STATE, "train_bpe: this trainer has finished");
  AC_TRY(aci_bpe_learn(b, e));
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
    aci_strbuf_puts(&s, k == 0   ? "],\"pre_tokenizer\":"
                        : k == 1 ? ",\"post_processor\":"
                                 : ",\"decoder\":");
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
