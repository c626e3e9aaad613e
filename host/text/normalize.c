/* Normalizers: steps that rewrite the text before it is cut, one piece at a time, and track the
 * origin of each character. The forms of Unicode are in normalize_form.c, SentencePiece's tables in
 * precompiled.c. Called by added.c. */
#include <string.h>

#include "text/tokenizer.h"
#include "text/unicode.h"

#define PUT(expr)                         \
  do {                                    \
    if (!(expr)) return aci_no_memory(e); \
  } while (0)

static uint32_t from_of(const aci_text *t, uint32_t i) { return t->tracked ? t->from[i] : 0; }
static uint32_t to_of(const aci_text *t, uint32_t i) { return t->tracked ? t->to[i] : 0; }

static bool is_ascii(const aci_text *t) {
  uint32_t i = 0;
  uint64_t w;
  for (; i + 8 <= t->n; i += 8)
    if ((memcpy(&w, t->s + i, 8), (w & 0x8080808080808080u) != 0)) return false;
  for (; i < t->n; i++)
    if ((unsigned char)t->s[i] >= 0x80) return false;
  return true;
}

/* Calls fn for each character. fn returns the replacement. A value out of range removes the
 * character. */
enum { GONE = 0x110000 };
static ac_status each(const aci_text *in, aci_text *out, uint32_t (*fn)(uint32_t c), ac_err *e) {
  const char *s = in->s, *end = in->s + in->n;
  while (s < end) {
    const uint32_t i = (uint32_t)(s - in->s), c = fn(aci_utf8_next(&s));
    if (c < GONE) PUT(aci_text_put(out, c, from_of(in, i), to_of(in, i)));
  }
  return AC_OK;
}

static uint32_t not_combining(uint32_t c) { return aci_uni_is_combining(c) ? GONE : c; }
static uint32_t not_nonspacing(uint32_t c) {
  return c >= 0x300 && aci_uni_is(c, ACI_UNI_8, ACI_UNI_BIT(ACI_MN)) ? GONE : c;
}

/* BERT: control characters are removed, and word separators become a blank. */
static uint32_t cleaned(uint32_t c) {
  if (c >= 32 && c < 127) return c;
  if (c == '\t' || c == '\n' || c == '\r') return ' ';
  if (c == 0 || c == 0xFFFD ||
      aci_uni_is(c, ACI_UNI_8,
                 ACI_UNI_BIT(ACI_CC) | ACI_UNI_BIT(ACI_CF) | ACI_UNI_BIT(ACI_CO) |
                     ACI_UNI_BIT(ACI_CS)))
    return GONE;
  return aci_uni_is_space(c) ? ' ' : c;
}

/* SentencePiece's nmt rules. */
static uint32_t nmt(uint32_t c) {
  if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
      c == 0x9F)
    return GONE;
  if (c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
      c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD)
    return ' ';
  return c;
}

static bool is_chinese(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

static ac_status chinese(const aci_text *in, aci_text *out, ac_err *e) {
  aci_rewrite w = {in, out, 0};
  const char *s = in->s, *end = in->s + in->n;
  while (s < end) {
    const uint32_t c = aci_utf8_next(&s);
    if (!is_chinese(c)) PUT(aci_rewrite_put(&w, c, 0));
    else
      PUT(aci_rewrite_put(&w, ' ', 0) && aci_rewrite_put(&w, c, 1) && aci_rewrite_put(&w, ' ', 1));
  }
  return AC_OK;
}

static ac_status lowercase(const aci_text *in, aci_text *out, ac_err *e) {
  const char *s = in->s, *end = in->s + in->n;
  while (s < end) {
    uint32_t more;
    const uint32_t i = (uint32_t)(s - in->s), c = aci_uni_lower(aci_utf8_next(&s), &more);
    PUT(aci_text_put(out, c, from_of(in, i), to_of(in, i)));
    if (more != 0) PUT(aci_text_put(out, more, from_of(in, i), to_of(in, i)));
  }
  return AC_OK;
}

/* BERT's cleaning and lower case in one pass. */
static ac_status bert_ascii(const aci_norm *o, const aci_text *in, aci_text *out, ac_err *e) {
  PUT(aci_text_room(out, in->n));
  uint32_t n = 0;
  for (uint32_t i = 0; i < in->n; i++) {
    unsigned char c = (unsigned char)in->s[i];
    if (o->clean && (c < 32 || c == 127)) {
      if (c != '\t' && c != '\n' && c != '\r') continue;
      c = ' ';
    }
    if (o->lowercase && c >= 'A' && c <= 'Z') c += 32;
    out->s[n] = (char)c;
    if (out->tracked) out->from[n] = from_of(in, i), out->to[n] = to_of(in, i);
    n++;
  }
  out->n = n;
  return AC_OK;
}

static ac_status strip(const aci_norm *o, const aci_text *in, aci_text *out, ac_err *e) {
  const char *first = in->s, *last = in->s + in->n;
  while (o->left && first < last) {
    const char *s = first;
    if (!aci_uni_is_space(aci_utf8_next(&s))) break;
    first = s;
  }
  while (o->right && last > first) {
    const char *s = last;
    if (!aci_uni_is_space(aci_utf8_before(&s))) break;
    last = s;
  }
  PUT(aci_text_copy(out, in, (uint32_t)(first - in->s), (uint32_t)(last - in->s)));
  return AC_OK;
}

static ac_status put_text(aci_text *out, const char *s, uint32_t n, uint32_t from, uint32_t to,
                          ac_err *e) {
  for (const char *end = s + n; s < end;) PUT(aci_text_put(out, aci_utf8_next(&s), from, to));
  return AC_OK;
}

/* The replacement of a match has the origin of the match's last character. */
static ac_status replace(aci_encode_scratch *w, const aci_norm *o, const aci_text *in,
                         aci_text *out, ac_err *e) {
  aci_find f = {0};
  size_t begin, end, at = 0;
  bool found;
  if (in->n == 0) return AC_OK;
  for (aci_pattern_begin(w, &o->pattern, in->n);;) {
    AC_TRY(aci_pattern_next(w, &o->pattern, in->s, in->n, &f, &begin, &end, &found, e));
    if (!found) break;
    PUT(aci_text_copy(out, in, (uint32_t)at, (uint32_t)begin));
    uint32_t from = in->origin, to = in->origin;
    if (end > 0) from = from_of(in, (uint32_t)end - 1), to = to_of(in, (uint32_t)end - 1);
    AC_TRY(put_text(out, o->content, o->n_content, from, to, e));
    at = end;
  }
  PUT(aci_text_copy(out, in, (uint32_t)at, in->n));
  return AC_OK;
}

static ac_status prepend(const aci_norm *o, const aci_text *in, aci_text *out, ac_err *e) {
  if (in->n == 0) return AC_OK;
  AC_TRY(put_text(out, o->content, o->n_content, from_of(in, 0), to_of(in, 0), e));
  PUT(aci_text_copy(out, in, 0, in->n));
  return AC_OK;
}

static ac_status byte_level(const aci_text *in, aci_text *out, ac_err *e) {
  for (uint32_t i = 0; i < in->n; i++)
    PUT(aci_text_put(out, aci_byte_char((unsigned char)in->s[i]), from_of(in, i), to_of(in, i)));
  return AC_OK;
}

/* The text that a pass made is the input of the next. */
typedef struct passes {
  aci_text *in, *out;
} passes;
static void next_pass(passes *p) {
  aci_text *was = p->in;
  p->in = p->out;
  p->out = was;
  aci_text_clear(p->out, p->in->tracked, p->in->origin);
}

static ac_status bert(aci_encode_scratch *w, const aci_norm *o, passes *p, ac_err *e) {
  if (is_ascii(p->in)) {
    AC_TRY(bert_ascii(o, p->in, p->out, e));
    next_pass(p);
    return AC_OK;
  }
  if (o->clean) {
    AC_TRY(each(p->in, p->out, cleaned, e));
    next_pass(p);
  }
  if (o->chinese) {
    AC_TRY(chinese(p->in, p->out, e));
    next_pass(p);
  }
  if (o->accents && !is_ascii(p->in)) {
    AC_TRY(aci_normalize_form(w, p->in, p->out, false, false, e));
    next_pass(p);
    AC_TRY(each(p->in, p->out, not_nonspacing, e));
    next_pass(p);
  }
  if (o->lowercase) {
    AC_TRY(lowercase(p->in, p->out, e));
    next_pass(p);
  }
  return AC_OK;
}

static ac_status one(aci_encode_scratch *w, const aci_norm *o, passes *p, ac_err *e) {
  bool changed = true;
  switch (o->kind) {
    case ACI_NORM_NFC:
    case ACI_NORM_NFD:
    case ACI_NORM_NFKC:
    case ACI_NORM_NFKD:
      if (is_ascii(p->in)) return AC_OK;
      AC_TRY(aci_normalize_form(w, p->in, p->out,
                                o->kind == ACI_NORM_NFKC || o->kind == ACI_NORM_NFKD,
                                o->kind == ACI_NORM_NFC || o->kind == ACI_NORM_NFKC, e));
      break;
    case ACI_NORM_LOWERCASE: AC_TRY(lowercase(p->in, p->out, e)); break;
    case ACI_NORM_STRIP_ACCENTS:
      if (is_ascii(p->in)) return AC_OK;
      AC_TRY(each(p->in, p->out, not_combining, e));
      break;
    case ACI_NORM_STRIP: AC_TRY(strip(o, p->in, p->out, e)); break;
    case ACI_NORM_REPLACE: AC_TRY(replace(w, o, p->in, p->out, e)); break;
    case ACI_NORM_PREPEND: AC_TRY(prepend(o, p->in, p->out, e)); break;
    case ACI_NORM_BERT: return bert(w, o, p, e);
    case ACI_NORM_NMT: AC_TRY(each(p->in, p->out, nmt, e)); break;
    case ACI_NORM_BYTE_LEVEL: AC_TRY(byte_level(p->in, p->out, e)); break;
    case ACI_NORM_SENTENCEPIECE: AC_TRY(aci_sp_normalize(o->sp, p->in, p->out, e)); break;
    case ACI_NORM_PRECOMPILED:
      AC_TRY(aci_charsmap_apply(o->map, p->in, p->out, &changed, e));
      if (!changed) aci_text_clear(p->out, p->in->tracked, p->in->origin);
      break;
  }
  if (changed) next_pass(p);
  return AC_OK;
}

ac_status aci_normalize(aci_encode_scratch *w, const aci_text *src, uint32_t begin, uint32_t end,
                        aci_text **out, ac_err *e) {
  const ac_tokenizer *t = w->t;
  uint32_t from = 0, to;
  if (end > begin) aci_text_span(src, begin, end, &from, &to);
  aci_text_clear(&w->x, w->track, from);
  aci_text_clear(&w->y, w->track, from);
  PUT(aci_text_copy(&w->x, src, begin, end));
  passes p = {&w->x, &w->y};
  for (uint32_t i = 0; i < t->n_norm; i++) AC_TRY(one(w, &t->norm[i], &p, e));
  *out = p.in;
  return AC_OK;
}
