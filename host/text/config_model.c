/* Reads the model of a tokenizer file: vocabulary, merges, scores. Called by tokenizer.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

/* Room for the texts of ids below n. */
static ac_status texts_open(aci_model *m, uint32_t n, ac_err *e) {
  m->n_id = n;
  m->text = calloc((size_t)n + 1, sizeof *m->text);
  m->text_n = calloc((size_t)n + 1, sizeof *m->text_n);
  return m->text != NULL && m->text_n != NULL ? AC_OK : aci_no_memory(e);
}

/* "vocab": {"token": id}. */
static ac_status read_vocab(ac_tokenizer *t, const aci_json *o, ac_err *e) {
  aci_model *m = &t->model;
  const aci_json *vocab = aci_member(t, o, "vocab");
  if (vocab == NULL || vocab->type != ACI_JSON_OBJECT)
    return AC_FAIL(e, PARSE, "tokenizer: model: vocab must be an object");
  int64_t most = -1;
  for (const aci_json *k = aci_json_first(vocab), *end = aci_json_after(vocab); k != end;
       k = aci_json_after(k + 1)) {
    const aci_json *v = k + 1;
    if (v->type != ACI_JSON_INT || v->u.i < 0 || v->u.i > INT32_MAX)
      return AC_FAIL(e, PARSE,
                     "tokenizer: model: the id of '%.40s' must be an integer from 0 to 2147483647",
                     k->u.s);
    if (v->u.i > most) most = v->u.i;
  }
  if (most >= 4 * (int64_t)vocab->len)
    return AC_FAIL(e, PARSE, "tokenizer: model: id %lld is too large for a vocabulary of %u",
                   (long long)most, vocab->len);
  AC_TRY(texts_open(m, (uint32_t)(most + 1), e));
  if (!aci_map_reserve(&m->vocab, vocab->len)) return aci_no_memory(e);
  for (const aci_json *k = aci_json_first(vocab), *end = aci_json_after(vocab); k != end;
       k = aci_json_after(k + 1)) {
    const int64_t id = k[1].u.i;
    int64_t was;
    if (m->text[id] != NULL)
      return AC_FAIL(e, PARSE, "tokenizer: model: '%.40s' and '%.40s' have the same id %lld",
                     m->text[id], k->u.s, (long long)id);
    m->text[id] = k->u.s;
    m->text_n[id] = k->len;
    if (!aci_map_add(&m->vocab, k->u.s, k->len, (uint32_t)id, &was)) return aci_no_memory(e);
  }
  return AC_OK;
}

static void read_byte_tokens(aci_model *m) {
  for (int b = 0; b < 256; b++) {
    char text[8];
    const int n = snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
    m->byte_token[b] = aci_map_get(&m->vocab, text, (size_t)n);
  }
}

static ac_status read_unk(ac_tokenizer *t, const aci_fields *f, bool needed, ac_err *e) {
  ac_text unk;
  AC_TRY(aci_field_text(f, "unk_token", needed, &unk, e));
  t->model.has_unk = unk.s != NULL;
  t->model.unk = unk.s != NULL ? aci_map_get(&t->model.vocab, unk.s, unk.n) : -1;
  return AC_OK;
}

/* "sentencepiece": {"control": [ids], "user_defined": [ids]}: the model follows SentencePiece's own
 * rules. */
static ac_status read_sentencepiece(const aci_fields *f, aci_model *m, ac_err *e) {
  static const char *const names[] = {"control", "user_defined"};
  const aci_json *o = aci_member(f->t, f->o, "sentencepiece");
  if (o == NULL || o->type == ACI_JSON_NULL) return AC_OK;
  if (o->type != ACI_JSON_OBJECT)
    return AC_FAIL(e, PARSE, "tokenizer: model: sentencepiece must be an object");
  m->sp = true;
  m->sp_kind = calloc((size_t)m->n_id + 1, 1);
  if (m->sp_kind == NULL) return aci_no_memory(e);
  for (int k = 0; k < 2; k++) {
    const aci_json *list = aci_member(f->t, o, names[k]);
    if (list == NULL || list->type != ACI_JSON_ARRAY)
      return AC_FAIL(e, PARSE, "tokenizer: model: sentencepiece: %s must be an array", names[k]);
    for (const aci_json *v = aci_json_first(list), *end = aci_json_after(list); v != end;
         v = aci_json_after(v)) {
      if (v->type != ACI_JSON_INT || v->u.i < 0 || v->u.i >= m->n_id || m->text[v->u.i] == NULL)
        return AC_FAIL(e, PARSE,
                       "tokenizer: model: sentencepiece: %s must hold ids of the vocabulary",
                       names[k]);
      m->sp_kind[v->u.i] = k == 0 ? ACI_SP_CONTROL : ACI_SP_USER_DEFINED;
      if (k == 0 || m->kind != ACI_BPE) continue; /* other models find them in their vocabulary */
      const uint32_t n = m->text_n[v->u.i];
      if (n == 0 || n > ACI_TOKEN_BYTES)
        return AC_FAIL(e, PARSE, "tokenizer: model: sentencepiece: a symbol of %u bytes", n);
      if (!m->symbols && !aci_trie_open(&m->trie)) return aci_no_memory(e);
      m->symbols = true;
      if (!aci_trie_add(&m->trie, m->text[v->u.i], n, (int32_t)v->u.i)) return aci_no_memory(e);
    }
  }
  return AC_OK;
}

/* ---- bpe ---- */

/* Both parts of one merge. */
static ac_status merge_parts(const aci_json *v, size_t rank, ac_text part[2], ac_err *e) {
  if (v->type == ACI_JSON_STRING) {
    const char *blank = memchr(v->u.s, ' ', v->len);
    if (blank != NULL && memchr(blank + 1, ' ', v->len - (size_t)(blank + 1 - v->u.s)) == NULL) {
      part[0] = (ac_text){v->u.s, (size_t)(blank - v->u.s)};
      part[1] = (ac_text){blank + 1, v->len - part[0].n - 1};
      return AC_OK;
    }
  } else if (v->type == ACI_JSON_ARRAY && v->len == 2) {
    const aci_json *a = aci_json_first(v), *b = aci_json_after(a);
    if (a->type == ACI_JSON_STRING && b->type == ACI_JSON_STRING) {
      part[0] = (ac_text){a->u.s, a->len};
      part[1] = (ac_text){b->u.s, b->len};
      return AC_OK;
    }
  }
  return AC_FAIL(e, PARSE, "tokenizer: model: merge %zu must be \"a b\" or [\"a\", \"b\"]",
                 rank + 1);
}

/* Marks the pairs of characters inside a token. */
static void mark_joined(aci_model *m, const char *s, size_t n) {
  const char *end = s + n;
  for (uint32_t a = n > 0 ? aci_utf8_next(&s) : 0, b; s < end; a = b) {
    b = aci_utf8_next(&s);
    const uint32_t bit = aci_joined_bit(a, b);
    m->joined[bit / 32] |= 1u << (bit & 31);
  }
}

/* A piece can be cut between two neighbours that no token joins: nothing would have been merged
 * there. This does not hold if characters without a token just vanish, which makes others
 * neighbours. */
static ac_status open_joined(aci_model *m, ac_err *e) {
  bool all_bytes = m->byte_fallback;
  for (int b = 0; b < 256; b++) all_bytes = all_bytes && m->byte_token[b] >= 0;
  if (m->prefix.s != NULL || m->suffix.s != NULL || m->ignore_merges || m->dropout > 0 ||
      (m->unk < 0 && !all_bytes))
    return AC_OK;
  m->joined = calloc(ACI_JOINED_BITS / 32, sizeof *m->joined);
  return m->joined != NULL ? AC_OK : aci_no_memory(e);
}

/* Fills m->merge, a hash table with open addressing: pair of ids -> (rank, id of the product). The
 * vocabulary is read already. A pair's second part loses the prefix of continuations in the
 * product. */
static ac_status read_merges(ac_tokenizer *t, const aci_json *o, ac_err *e) {
  aci_model *m = &t->model;
  const aci_json *merges = aci_member(t, o, "merges");
  if (merges == NULL || merges->type != ACI_JSON_ARRAY)
    return AC_FAIL(e, PARSE, "tokenizer: model: merges must be an array");
  size_t cap = 16, rank = 0, cap_text = 0;
  char *text = NULL;
  while (cap < 2 * (size_t)merges->len) cap *= 2;
  m->merge = malloc(cap * sizeof *m->merge);
  if (m->merge == NULL) return aci_no_memory(e);
  memset(m->merge, 0xFF, cap * sizeof *m->merge);
  m->merge_mask = cap - 1;
  m->merge_mix = aci_hash_key() | 1;
  AC_TRY(open_joined(m, e));
  for (uint32_t i = 0; m->joined != NULL && m->symbols && i < m->n_id; i++) {
    int32_t id;
    if (m->text[i] != NULL && m->text_n[i] > 0 &&
        aci_longest(&m->trie, m->text[i], m->text_n[i], &id) == m->text_n[i])
      mark_joined(m, m->text[i], m->text_n[i]);
  }
  ac_status st = AC_OK;
  for (const aci_json *v = aci_json_first(merges), *end = aci_json_after(merges);
       st == AC_OK && v != end; v = aci_json_after(v)) {
    ac_text part[2];
    int64_t id[3];
    if (v->type == ACI_JSON_STRING && strncmp(v->u.s, "#version", 8) == 0) continue;
    if ((st = merge_parts(v, rank, part, e)) != AC_OK) break;
    const size_t skip = m->prefix.n, n = part[0].n + part[1].n;
    if (!ACI_GROW(text, cap_text, n + 1)) {
      st = aci_no_memory(e);
      break;
    }
    for (int k = 0; k < 2; k++) id[k] = aci_map_get(&m->vocab, part[k].s, part[k].n);
    memcpy(text, part[0].s, part[0].n);
    if (part[1].n >= skip) memcpy(text + part[0].n, part[1].s + skip, part[1].n - skip);
    id[2] = part[1].n >= skip ? aci_map_get(&m->vocab, text, n - skip) : -1;
    for (int k = 0; k < 3; k++)
      if (id[k] < 0) {
        text[part[1].n >= skip ? n - skip : part[0].n] = 0;
        st = AC_FAIL(e, PARSE, "tokenizer: model: merge %zu: '%.40s' is not in the vocabulary",
                     rank + 1, k < 2 ? part[k].s : text);
        break;
      }
    if (st != AC_OK) break;
    if (m->joined != NULL) mark_joined(m, text, n);
    const uint64_t pair = (uint64_t)id[0] << 32 | (uint64_t)id[1];
    size_t i = (size_t)(pair * m->merge_mix >> 32) & m->merge_mask;
    while (m->merge[i].pair != UINT64_MAX && m->merge[i].pair != pair) i = (i + 1) & m->merge_mask;
    /* of repeated ones the last */
    m->merge[i] = (aci_merge){pair, (uint32_t)rank++, (uint32_t)id[2]};
  }
  free(text);
  return st;
}

/* Pieces may stay bytes when ByteLevel is the last step before the model and every byte has its
 * token. */
static ac_status open_raw(ac_tokenizer *t, ac_err *e) {
  aci_model *m = &t->model;
  if (t->n_pre == 0 || t->pre[t->n_pre - 1].kind != ACI_PRE_BYTE_LEVEL || m->prefix.s != NULL ||
      m->suffix.s != NULL)
    return AC_OK;
  for (int b = 0; b < 256; b++) {
    char s[4];
    const int64_t id =
        aci_map_get(&m->vocab, s, (size_t)aci_utf8_put(s, aci_byte_char((unsigned char)b)));
    if (id < 0) return AC_OK;
    m->byte_id[b] = (uint32_t)id;
  }
  if (m->ignore_merges) {
    size_t all = 0;
    for (uint32_t i = 0; i < m->n_id; i++) all += m->text_n[i];
    if (!aci_map_reserve(&m->raw_vocab, m->vocab.n) || (m->raw_text = malloc(all + 1)) == NULL)
      return aci_no_memory(e);
    char *to = m->raw_text;
    for (uint32_t i = 0; i < m->n_id; i++) {
      char *const begin = to;
      int b = 0;
      for (const char *s = m->text[i], *end = s + m->text_n[i]; s != NULL && s < end && b >= 0;)
        if ((b = aci_char_byte(aci_utf8_next(&s))) >= 0) *to++ = (char)b;
      int64_t was;
      if (b < 0 || to == begin) to = begin;
      else if (!aci_map_add(&m->raw_vocab, begin, (size_t)(to - begin), i, &was))
        return aci_no_memory(e);
    }
  }
  m->raw = true;
  return AC_OK;
}

static ac_status read_bpe(ac_tokenizer *t, const aci_fields *f, ac_err *e) {
  aci_model *m = &t->model;
  AC_TRY(read_vocab(t, f->o, e));
  AC_TRY(read_unk(t, f, false, e));
  AC_TRY(aci_field_text(f, "continuing_subword_prefix", false, &m->prefix, e));
  AC_TRY(aci_field_text(f, "end_of_word_suffix", false, &m->suffix, e));
  if (m->prefix.n > 256 || m->suffix.n > 256)
    return AC_FAIL(e, PARSE, "tokenizer: model: a prefix or suffix of more than 256 bytes");
  if (m->prefix.n == 0) m->prefix.s = NULL;
  if (m->suffix.n == 0) m->suffix.s = NULL;
  AC_TRY(aci_field_bool(f, "fuse_unk", false, &m->fuse_unk, e));
  AC_TRY(aci_field_bool(f, "byte_fallback", false, &m->byte_fallback, e));
  AC_TRY(aci_field_bool(f, "ignore_merges", false, &m->ignore_merges, e));
  const aci_json *dropout = aci_member(t, f->o, "dropout");
  if (dropout != NULL && dropout->type != ACI_JSON_NULL) {
    const double d = dropout->type == ACI_JSON_DOUBLE ? dropout->u.f
                     : dropout->type == ACI_JSON_INT  ? (double)dropout->u.i
                                                      : -1;
    if (!(d >= 0 && d <= 1))
      return AC_FAIL(e, PARSE, "tokenizer: model: dropout must lie in 0 .. 1");
    m->dropout = (float)d;
  }
  if (m->byte_fallback) read_byte_tokens(m);
  AC_TRY(read_sentencepiece(f, m, e));
  for (int c = 0; c < 128; c++) m->ascii[c] = aci_map_get(&m->vocab, &(char){(char)c}, 1);
  AC_TRY(read_merges(t, f->o, e));
  return open_raw(t, e);
}

/* ---- the others ---- */
static ac_status piece_fits(uint32_t n, const char *s, ac_err *e) {
  return n <= ACI_TOKEN_BYTES
             ? AC_OK
             : AC_FAIL(e, PARSE, "tokenizer: model: '%.40s...' has more than %d bytes", s,
                       ACI_TOKEN_BYTES);
}

static ac_status read_wordpiece(ac_tokenizer *t, const aci_fields *f, ac_err *e) {
  aci_model *m = &t->model;
  int64_t most;
  AC_TRY(read_vocab(t, f->o, e));
  AC_TRY(read_unk(t, f, true, e));
  if (m->kind == ACI_WORDLEVEL) return read_sentencepiece(f, m, e);
  AC_TRY(aci_field_text(f, "continuing_subword_prefix", true, &m->prefix, e));
  AC_TRY(aci_field_count(f, "max_input_chars_per_word", -1, INT32_MAX, &most, e));
  m->max_chars = (uint32_t)most;
  if (!aci_trie_open(&m->trie) || !aci_trie_open(&m->rest)) return aci_no_memory(e);
  for (uint32_t i = 0; i < m->n_id; i++) {
    const char *s = m->text[i];
    const uint32_t n = m->text_n[i];
    if (s == NULL || n == 0) continue;
    AC_TRY(piece_fits(n, s, e));
    if (!aci_trie_add(&m->trie, s, n, (int32_t)i)) return aci_no_memory(e);
    if (n > m->prefix.n && memcmp(s, m->prefix.s, m->prefix.n) == 0 &&
        !aci_trie_add(&m->rest, s + m->prefix.n, n - m->prefix.n, (int32_t)i))
      return aci_no_memory(e);
  }
  return AC_OK;
}

/* Ten to the power of k, 0 to 308. */
static double power(int k) {
  static const double exact[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10,
                                 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21};
  if (k < (int)(sizeof exact / sizeof exact[0])) return exact[k];
  char text[16];
  snprintf(text, sizeof text, "1e%d", k);
  return aci_strtod(text, NULL);
}

/* A number as the package's own reader has it: its digits, as many as fit 64 bits, divided by a
 * power of ten. The result may be one bit off the nearest double. If the sums of two paths are
 * equal except for rounding, that bit decides. */
static double decimal(const char *s, const char *end) {
  const bool negative = s < end && *s == '-';
  bool point = false, full = false;
  uint64_t digits = 0;
  int exponent = 0;
  for (s += negative; s < end && (*s == '.' || (*s >= '0' && *s <= '9')); s++) {
    const unsigned digit = (unsigned)(*s - '0');
    if (*s == '.') {
      point = true;
    } else if (full || digits > (UINT64_MAX - digit) / 10) {
      full = true;
      if (!point) exponent++;
    } else {
      digits = digits * 10 + digit;
      if (point) exponent--;
    }
  }
  if (s < end && (*s | 32) == 'e') {
    const bool down = ++s < end && *s == '-';
    int k = 0;
    for (s += s < end && (*s == '-' || *s == '+'); s < end && *s >= '0' && *s <= '9'; s++)
      if (k < 100000) k = k * 10 + (*s - '0');
    exponent += down ? -k : k;
  }
  double v = (double)digits;
  for (; exponent < -308 && v != 0; exponent += 308) v /= power(308);
  if (v != 0 && exponent > 0) v *= power(exponent < 308 ? exponent : 308);
  if (v != 0 && exponent < 0) v /= power(-exponent);
  return negative ? -v : v;
}

/* Whether no text is this piece, by SentencePiece's rules: it is unknown, control or byte. */
static bool is_hidden(const aci_model *m, uint32_t id) {
  return m->sp && (id == (uint32_t)m->unk || m->sp_kind[id] == ACI_SP_CONTROL ||
                   m->sp_kind[id] == ACI_SP_BYTE);
}

static ac_status read_unigram(ac_tokenizer *t, const aci_fields *f, const char *json, size_t n,
                              ac_err *e) {
  aci_model *m = &t->model;
  const aci_json *vocab = aci_member(t, f->o, "vocab");
  const bool own = aci_member(t, f->o, "sentencepiece") != NULL;
  int64_t unk;
  if (vocab == NULL || vocab->type != ACI_JSON_ARRAY)
    return AC_FAIL(e, PARSE, "tokenizer: model: vocab must be an array");
  AC_TRY(aci_field_bool(f, "byte_fallback", false, &m->byte_fallback, e));
  AC_TRY(aci_field_count(f, "unk_id", INT64_MAX, INT32_MAX, &unk, e));
  if (unk != INT64_MAX && unk >= (int64_t)vocab->len)
    return AC_FAIL(e, PARSE, "tokenizer: model: unk_id %lld is outside of the vocabulary of %u",
                   (long long)unk, vocab->len);
  m->unk = unk != INT64_MAX ? unk : -1;
  m->has_unk = m->unk >= 0;
  AC_TRY(texts_open(m, vocab->len, e));
  m->score = malloc(((size_t)vocab->len + 1) * sizeof *m->score);
  if (m->score == NULL || !aci_trie_open(&m->trie) || !aci_map_reserve(&m->vocab, vocab->len))
    return aci_no_memory(e);
  uint32_t i = 0;
  for (const aci_json *v = aci_json_first(vocab), *end = aci_json_after(vocab); v != end;
       v = aci_json_after(v), i++) {
    const aci_json *s = v + 1,
                   *score = v->type == ACI_JSON_ARRAY && v->len == 2 ? aci_json_after(s) : NULL;
    if (score == NULL || s->type != ACI_JSON_STRING ||
        (score->type != ACI_JSON_DOUBLE && score->type != ACI_JSON_INT))
      return AC_FAIL(e, PARSE, "tokenizer: model: entry %u of vocab must be [\"piece\", score]",
                     i + 1);
    AC_TRY(piece_fits(s->len, s->u.s, e));
    m->text[i] = s->u.s;
    m->text_n[i] = s->len;
    m->score[i] = score->type == ACI_JSON_INT ? (double)score->u.i
                  : own                       ? score->u.f
                                              : decimal(json + score->len, json + n);
    int64_t was;
    if (!aci_map_add(&m->vocab, s->u.s, s->len, i, &was)) return aci_no_memory(e);
    if (was >= 0) aci_map_set(&m->vocab, s->u.s, s->len, i); /* of repeated ones the last */
  }
  if (m->byte_fallback) read_byte_tokens(m);
  AC_TRY(read_sentencepiece(f, m, e));
  for (int b = 0; m->sp && m->byte_fallback && b < 256; b++)
    if (m->byte_token[b] >= 0) m->sp_kind[m->byte_token[b]] = ACI_SP_BYTE;
  double least = INFINITY;
  for (i = 0; i < m->n_id; i++) {
    const bool hidden = is_hidden(m, i);
    if (!hidden && m->score[i] < least && !(m->sp && m->sp_kind[i] == ACI_SP_USER_DEFINED))
      least = m->score[i];
    if (!hidden && m->text_n[i] > 0 &&
        !aci_trie_add(&m->trie, m->text[i], m->text_n[i], (int32_t)i))
      return aci_no_memory(e);
  }
  m->unk_score = least - 10;
  return AC_OK;
}

ac_status aci_read_model(ac_tokenizer *t, const aci_json *root, const char *json, size_t n,
                         ac_err *e) {
  static const char *const names[] = {"BPE", "WordPiece", "Unigram", "WordLevel"};
  const aci_json *o = aci_member(t, root, "model");
  if (o == NULL || o->type != ACI_JSON_OBJECT)
    return AC_FAIL(e, PARSE, "tokenizer: there is no model");
  const aci_fields f = {t, o, "model"};
  ac_text type;
  AC_TRY(aci_field_text(&f, "type", false, &type, e));
  int kind = -1;
  if (type.s == NULL) { /* files of old */
    const aci_json *vocab = aci_member(t, o, "vocab");
    kind = aci_member(t, o, "merges") != NULL                     ? ACI_BPE
           : vocab != NULL && vocab->type == ACI_JSON_ARRAY       ? ACI_UNIGRAM
           : aci_member(t, o, "max_input_chars_per_word") != NULL ? ACI_WORDPIECE
                                                                  : ACI_WORDLEVEL;
  } else {
    for (int i = 0; i < 4; i++)
      if (strcmp(type.s, names[i]) == 0) kind = i;
  }
  if (kind < 0)
    return AC_FAIL(
        e, UNSUPPORTED,
        "tokenizer: a model of type '%.40s' is not known (BPE, WordPiece, Unigram, WordLevel)",
        type.s);
  t->model.kind = (aci_model_kind)kind;
  if (kind == ACI_BPE) return read_bpe(t, &f, e);
  return kind == ACI_UNIGRAM ? read_unigram(t, &f, json, n, e) : read_wordpiece(t, &f, e);
}

void aci_model_fini(aci_model *m) {
  aci_map_fini(&m->vocab);
  aci_map_fini(&m->raw_vocab);
  aci_trie_fini(&m->trie);
  aci_trie_fini(&m->rest);
  free(m->text);
  free(m->text_n);
  free(m->merge);
  free(m->joined);
  free(m->raw_text);
  free(m->score);
  free(m->sp_kind);
}
