/* SentencePiece's own rules, for models that come as its file alone: the normalizer, whose origins give
 * SentencePiece's offsets, and a part of the decoder in decode.c. Its rules for models stand in bpe.c,
 * unigram.c and encode.c (aci_model.sp). Called by config_steps.c, config_model.c, normalize.c, bpe.c
 * and decode.c. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"
#include "text/unicode.h"

enum { VISIBLE_SPACE = 0x2581 };

struct aci_sp_norm {
  aci_charsmap *map; /* NULL: none */
  aci_trie symbols;  /* texts that stay as they are */
  bool has_symbols, prefix, suffix, extra, escape;
};

#define PUT(expr)                         \
  do {                                    \
    if (!(expr)) return aci_no_memory(e); \
  } while (0)

void aci_sp_norm_free(aci_sp_norm *m) {
  if (m == NULL) return;
  aci_charsmap_free(m->map);
  aci_trie_fini(&m->symbols);
  free(m);
}

static ac_status read_symbols(const aci_fields *f, aci_sp_norm *m, ac_err *e) {
  const aci_json *list = aci_member(f->t, f->o, "user_defined_symbols");
  if (list == NULL || list->type == ACI_JSON_NULL) return AC_OK;
  if (list->type != ACI_JSON_ARRAY)
    return AC_FAIL(e, PARSE, "tokenizer: %s: user_defined_symbols must be an array", f->where);
  if (!aci_trie_open(&m->symbols)) return aci_no_memory(e);
  for (const aci_json *v = aci_json_first(list), *end = aci_json_after(list); v != end;
       v = aci_json_after(v)) {
    if (v->type != ACI_JSON_STRING || v->len == 0 || v->len > ACI_TOKEN_BYTES)
      return AC_FAIL(e, PARSE,
                     "tokenizer: %s: user_defined_symbols must be strings of 1 to %d bytes",
                     f->where, ACI_TOKEN_BYTES);
    m->has_symbols = true;
    PUT(aci_trie_add(&m->symbols, v->u.s, v->len, 1));
  }
  return AC_OK;
}

ac_status aci_sp_norm_new(const aci_fields *f, aci_sp_norm **out, ac_err *e) {
  aci_sp_norm *m = *out = calloc(1, sizeof *m); /* its owner frees it after a failure as well */
  ac_text map;
  bool add, as_suffix, remove;
  if (m == NULL) return aci_no_memory(e);
  AC_TRY(aci_field_text(f, "precompiled_charsmap", false, &map, e));
  AC_TRY(aci_field_bool(f, "add_dummy_prefix", true, &add, e));
  AC_TRY(aci_field_bool(f, "treat_whitespace_as_suffix", false, &as_suffix, e));
  AC_TRY(aci_field_bool(f, "remove_extra_whitespaces", true, &remove, e));
  AC_TRY(aci_field_bool(f, "escape_whitespaces", true, &m->escape, e));
  m->prefix = add && !as_suffix;
  m->suffix = add && as_suffix;
  m->extra = !remove;
  AC_TRY(read_symbols(f, m, e));
  if (map.n == 0) return AC_OK;
  ac_err inner;
  const ac_status st = aci_charsmap_new(map.s, map.n, &m->map, &inner);
  return st == AC_OK    ? AC_OK
         : st == AC_OOM ? aci_no_memory(e)
                        : AC_FAIL(e, PARSE, "tokenizer: %s: %.300s", f->where, inner.msg);
}

uint32_t aci_longest(const aci_trie *t, const char *s, uint32_t n, int32_t *value) {
  uint32_t node = 0, found = 0;
  for (uint32_t i = 0; i < n; i++) {
    node = aci_trie_step(t, node, (unsigned char)s[i]);
    if (node == 0) break;
    if (t->value[node] >= 0) found = i + 1, *value = t->value[node];
  }
  return found;
}

/* The text that stands for the beginning of s. *taken: bytes of s. */
static ac_text first_part(const aci_sp_norm *m, const char *s, uint32_t n, uint32_t *taken) {
  int32_t value;
  if (m->has_symbols && (*taken = aci_longest(&m->symbols, s, n, &value)) > 0)
    return (ac_text){s, *taken};
  size_t length;
  const char *with = m->map != NULL ? aci_charsmap_longest(m->map, s, n, &length) : NULL;
  if (with != NULL) return *taken = (uint32_t)length, (ac_text){with, strlen(with)};
  return *taken = (uint32_t)aci_utf8_size((unsigned char)*s), (ac_text){s, *taken};
}

/* The byte of the original at byte i of a text, or at its end. */
static uint32_t place(const aci_text *in, uint32_t i) {
  uint32_t from, to;
  if (i < in->n) return aci_text_span(in, i, i + 1, &from, &to), from;
  if (in->n == 0) return in->origin;
  return aci_text_span(in, in->n - 1, in->n, &from, &to), to;
}

/* The last character of out ends at `to` in the original. */
static void stretch(aci_text *out, uint32_t to) {
  for (uint32_t i = out->n; out->tracked && i-- > 0;) {
    out->to[i] = to;
    if (((unsigned char)out->s[i] & 0xC0) != 0x80) break;
  }
}

static ac_status put_part(const aci_sp_norm *m, ac_text x, aci_text *out, uint32_t from,
                          uint32_t to, ac_err *e) {
  for (const char *s = x.s, *end = x.s + x.n; s < end;) {
    uint32_t c = aci_utf8_next(&s);
    if (c == ' ' && m->escape) c = VISIBLE_SPACE;
    /* a part that begins inside of a replacement has no bytes of the original before its end */
    PUT(aci_text_put(out, c, from, s < end ? from : to));
  }
  return AC_OK;
}

ac_status aci_sp_normalize(const aci_sp_norm *m, const aci_text *in, aci_text *out, ac_err *e) {
  const uint32_t space = m->escape ? VISIBLE_SPACE : ' ';
  uint32_t at = 0, taken;
  while (!m->extra && at < in->n) {
    const ac_text x = first_part(m, in->s + at, in->n - at, &taken);
    if (x.n != 1 || *x.s != ' ') break;
    at += taken;
  }
  if (at == in->n) return AC_OK;
  if (m->prefix) PUT(aci_text_put(out, space, place(in, at), place(in, at)));
  bool after_space = !m->extra;
  while (at < in->n) {
    ac_text x = first_part(m, in->s + at, in->n - at, &taken);
    const uint32_t from = place(in, at), to = place(in, at + taken);
    for (; after_space && x.n > 0 && *x.s == ' '; x.s++) x.n--;
    if (x.n > 0) {
      AC_TRY(put_part(m, x, out, from, to, e));
      after_space = !m->extra && x.s[x.n - 1] == ' ';
    } else {
      stretch(out, to);
    }
    at += taken;
  }
  uint32_t end = place(in, in->n);
  char with[4];
  const uint32_t n = (uint32_t)aci_utf8_put(with, space);
  while (!m->extra && out->n >= n && memcmp(out->s + out->n - n, with, n) == 0) {
    out->n -= n;
    if (out->tracked) end = out->from[out->n];
  }
  if (m->suffix) PUT(aci_text_put(out, space, end, end));
  return AC_OK;
}

/* ---- decoding ---- */
size_t aci_sp_leading(const char *s, size_t n) {
  char with[4];
  const size_t k = (size_t)aci_utf8_put(with, VISIBLE_SPACE);
  return n >= k && memcmp(s, with, k) == 0 ? k : 0;
}
