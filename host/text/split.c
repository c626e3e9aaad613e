/* Pre-tokenizers: steps that cut text into the pieces that the model sees one by one. Called by
 * tokenizer.c. */
#include <string.h>

#include "text/tokenizer.h"
#include "text/unicode.h"

#define PUT(expr)                         \
  do {                                    \
    if (!(expr)) return aci_no_memory(e); \
  } while (0)

static bool span_add(aci_encode_scratch *w, size_t begin, size_t end, bool match) {
  if (!ACI_GROW(w->span, w->cap_span, w->n_span + 1)) return false;
  w->span[w->n_span++] = (aci_span){(uint32_t)begin, (uint32_t)end, match};
  return true;
}

static bool keep(aci_encode_scratch *w, uint32_t base, const aci_span *s) {
  return s->begin == s->end || aci_piece_add(&w->q, base + s->begin, base + s->end, -1);
}

/* Pieces of spans that cover a text. A match is dropped, kept, or joined to a neighbour. */
static ac_status pieces_of(aci_encode_scratch *w, uint32_t base, aci_behavior behavior, ac_err *e) {
  aci_span *s = w->span;
  size_t n = 0; /* spans that stay: moved to the front, or for MERGED_WITH_NEXT to the back */
  bool was = false;
  switch (behavior) {
    case ACI_REMOVED:
      for (size_t i = 0; i < w->n_span; i++)
        if (!s[i].match) PUT(keep(w, base, &s[i]));
      return AC_OK;
    case ACI_ISOLATED: n = w->n_span; break;
    case ACI_CONTIGUOUS:
    case ACI_MERGED_WITH_PREVIOUS:
      for (size_t i = 0; i < w->n_span; i++) {
        const bool match = s[i].match,
                   joins = behavior == ACI_CONTIGUOUS ? match == was : match && !was;
        if (joins && n > 0) s[n - 1].end = s[i].end;
        else s[n++] = s[i];
        was = match;
      }
      break;
    case ACI_MERGED_WITH_NEXT: {
      size_t first = w->n_span;
      for (size_t i = w->n_span; i-- > 0;) {
        const bool match = s[i].match;
        if (match && !was && first < w->n_span) s[first].begin = s[i].begin;
        else s[--first] = s[i];
        was = match;
      }
      for (size_t i = first; i < w->n_span; i++) PUT(keep(w, base, &s[i]));
      return AC_OK;
    }
  }
  for (size_t i = 0; i < n; i++) PUT(keep(w, base, &s[i]));
  return AC_OK;
}

static ac_status split_pattern(aci_encode_scratch *w, const aci_pattern *p, aci_behavior behavior,
                               bool invert, uint32_t base, uint32_t n, ac_err *e) {
  const char *s = w->a.s + base;
  aci_find f = {0};
  size_t begin, end, at = 0;
  bool found;
  w->n_span = 0;
  aci_pattern_begin(w, p, n);
  for (;;) {
    AC_TRY(aci_pattern_next(w, p, s, n, &f, &begin, &end, &found, e));
    if (!found) break;
    if (behavior == ACI_ISOLATED) {
      if (at < begin) PUT(aci_piece_add(&w->q, base + (uint32_t)at, base + (uint32_t)begin, -1));
      if (begin < end) PUT(aci_piece_add(&w->q, base + (uint32_t)begin, base + (uint32_t)end, -1));
    } else {
      if (at < begin) PUT(span_add(w, at, begin, invert));
      PUT(span_add(w, begin, end, !invert));
    }
    at = end;
  }
  if (behavior == ACI_ISOLATED)
    return at == n || aci_piece_add(&w->q, base + (uint32_t)at, base + n, -1) ? AC_OK
                                                                              : aci_no_memory(e);
  if (at < n) PUT(span_add(w, at, n, invert));
  return pieces_of(w, base, behavior, e);
}

/* Every character that is(c) matches alone. */
static ac_status split_chars(aci_encode_scratch *w, bool (*is)(uint32_t c), aci_behavior behavior,
                             uint32_t base, uint32_t n, ac_err *e) {
  const char *s = w->a.s + base, *at = s, *end = s + n;
  size_t done = 0;
  w->n_span = 0;
  while (at < end) {
    const size_t i = (size_t)(at - s);
    if (!is(aci_utf8_next(&at))) continue;
    if (done < i) PUT(span_add(w, done, i, false));
    done = (size_t)(at - s);
    PUT(span_add(w, i, done, true));
  }
  if (done < n) PUT(span_add(w, done, n, false));
  return pieces_of(w, base, behavior, e);
}

static bool is_number(uint32_t c) {
  return c < 0x80 ? c >= '0' && c <= '9' : aci_uni_is(c, ACI_UNI_17, ACI_UNI_N);
}

/* Runs of one kind, without the blanks between. kind_of gives 0 for blanks, a negative number for
 * characters that stand alone. */
static ac_status split_runs(aci_encode_scratch *w, int (*kind_of)(uint32_t c), uint32_t base,
                            uint32_t n, ac_err *e) {
  const char *s = w->a.s + base, *at = s, *end = s + n;
  size_t begin = 0;
  int run = 0;
  while (at < end) {
    const size_t i = (size_t)(at - s);
    const int kind = kind_of(aci_utf8_next(&at));
    if (kind == run && kind >= 0) continue;
    if (run != 0) PUT(aci_piece_add(&w->q, base + (uint32_t)begin, base + (uint32_t)i, -1));
    begin = i;
    run = kind;
  }
  if (run != 0) PUT(aci_piece_add(&w->q, base + (uint32_t)begin, base + n, -1));
  return AC_OK;
}

static bool is_alnum(uint32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
static int by_space(uint32_t c) { return !aci_uni_is_space(c); }
static int by_word(uint32_t c) {
  if (is_alnum(c) || c == '_') return 1;
  if (c >= 0x80 && (aci_uni_is_word(c) || c == 0x200C || c == 0x200D)) return 1;
  return aci_uni_is_space(c) ? 0 : 2;
}
static int by_bert(uint32_t c) {
  if (is_alnum(c)) return 1;
  return aci_uni_is_space(c) ? 0 : aci_uni_is_punctuation(c) ? -1 : 1;
}

static ac_status split_length(aci_encode_scratch *w, uint32_t length, uint32_t base, uint32_t n,
                              ac_err *e) {
  const char *s = w->a.s + base;
  for (uint32_t at = 0; at < n;) {
    const uint32_t begin = at;
    for (uint32_t k = 0; k < length && at < n; k++)
      at += (uint32_t)aci_utf8_size((unsigned char)s[at]);
    PUT(aci_piece_add(&w->q, base + begin, base + at, -1));
  }
  return AC_OK;
}

static ac_status split_char(aci_encode_scratch *w, uint32_t c, aci_behavior behavior, uint32_t base,
                            uint32_t n, ac_err *e) {
  char literal[4];
  const aci_pattern p = {.literal = literal, .n = (uint32_t)aci_utf8_put(literal, c)};
  return split_pattern(w, &p, behavior, false, base, n, e);
}

/* Runs of one script. Blanks, and characters without a script, belong to the run before them. Those at
 * the beginning belong to none. */
static ac_status split_scripts(aci_encode_scratch *w, uint32_t base, uint32_t n, ac_err *e) {
  const char *s = w->a.s + base, *at = s, *end = s + n;
  size_t begin = 0;
  int run = 0;
  while (at < end) {
    const size_t i = (size_t)(at - s);
    const uint32_t c = aci_utf8_next(&at);
    const int script = c == ' ' ? 0 : aci_uni_joint_script(c);
    if (script == 0 || script == run) continue;
    if (run != 0) PUT(aci_piece_add(&w->q, base + (uint32_t)begin, base + (uint32_t)i, -1));
    begin = i;
    run = script;
  }
  if (run != 0) PUT(aci_piece_add(&w->q, base + (uint32_t)begin, base + n, -1));
  return AC_OK;
}

/* ---- steps that also rewrite: into w->b, which then is the text ---- */
static void swap_text(aci_encode_scratch *w) {
  const aci_text was = w->a;
  w->a = w->b;
  w->b = was;
}

static uint32_t from_of(const aci_text *t, uint32_t i) {
  uint32_t from, to;
  aci_text_span(t, i, i + 1, &from, &to);
  return from;
}

/* Copies a piece after a character that has the same origin as the piece's first one. */
static bool copy_behind(aci_encode_scratch *w, uint32_t c, const aci_piece *p) {
  uint32_t from, to;
  aci_text_span(&w->a, p->begin, p->begin + 1, &from, &to);
  return aci_text_put(&w->b, c, from, to) && aci_text_copy(&w->b, &w->a, p->begin, p->end);
}

static ac_status prefix_space(aci_encode_scratch *w, ac_err *e) {
  bool any = false;
  for (size_t i = 0; i < w->p.n; i++)
    any = any || (w->p.p[i].token < 0 && w->a.s[w->p.p[i].begin] != ' ');
  if (!any) return AC_OK;
  aci_text_clear(&w->b, w->track, 0);
  for (size_t i = 0; i < w->p.n; i++) {
    aci_piece *p = &w->p.p[i];
    const uint32_t at = w->b.n;
    if (p->token < 0 && w->a.s[p->begin] != ' ') PUT(copy_behind(w, ' ', p));
    else PUT(aci_text_copy(&w->b, &w->a, p->begin, p->end));
    p->begin = at;
    p->end = w->b.n;
  }
  swap_text(w);
  return AC_OK;
}

static ac_status bytes_to_chars(aci_encode_scratch *w, ac_err *e) {
  aci_text_clear(&w->b, w->track, 0);
  for (size_t i = 0; i < w->p.n; i++) {
    aci_piece *p = &w->p.p[i];
    const uint32_t at = w->b.n;
    if (p->token >= 0) {
      PUT(aci_text_copy(&w->b, &w->a, p->begin, p->end));
    } else {
      for (uint32_t k = p->begin; k < p->end; k++) {
        uint32_t from, to;
        aci_text_span(&w->a, k, k + 1, &from, &to);
        PUT(aci_text_put(&w->b, aci_byte_char((unsigned char)w->a.s[k]), from, to));
      }
    }
    p->begin = at;
    p->end = w->b.n;
  }
  swap_text(w);
  return AC_OK;
}

static ac_status metaspace(aci_encode_scratch *w, const aci_pre *o, ac_err *e) {
  char with[4];
  const size_t n_with = (size_t)aci_utf8_put(with, o->c);
  aci_text_clear(&w->b, w->track, 0);
  for (size_t i = 0; i < w->p.n; i++) {
    aci_piece *p = &w->p.p[i];
    const uint32_t begin = w->b.n;
    if (p->token < 0) {
      const char *s = w->a.s + p->begin;
      const bool has = *s == ' ' || (p->end - p->begin >= n_with && memcmp(s, with, n_with) == 0);
      if (!has && (o->prepend == ACI_PREPEND_ALWAYS ||
                   (o->prepend == ACI_PREPEND_FIRST && from_of(&w->a, p->begin) == 0))) {
        uint32_t from, to;
        aci_text_span(&w->a, p->begin, p->begin + 1, &from, &to);
        PUT(aci_text_put(&w->b, o->c, from, to));
      }
      for (uint32_t at = p->begin; at < p->end;) {
        const char *blank = memchr(w->a.s + at, ' ', p->end - at);
        const uint32_t stop = blank != NULL ? (uint32_t)(blank - w->a.s) : p->end;
        PUT(aci_text_copy(&w->b, &w->a, at, stop));
        at = stop;
        if (blank == NULL) break;
        uint32_t from, to;
        aci_text_span(&w->a, at, at + 1, &from, &to);
        PUT(aci_text_put(&w->b, o->c, from, to));
        at++;
      }
    } else {
      PUT(aci_text_copy(&w->b, &w->a, p->begin, p->end));
    }
    p->begin = begin;
    p->end = w->b.n;
  }
  swap_text(w);
  return AC_OK;
}

/* ---- all ---- */
static ac_status split_one(aci_encode_scratch *w, const aci_pre *o, uint32_t begin, uint32_t n,
                           ac_err *e) {
  switch (o->kind) {
    case ACI_PRE_BYTE_LEVEL: return split_pattern(w, &o->pattern, ACI_ISOLATED, false, begin, n, e);
    case ACI_PRE_WHITESPACE: return split_runs(w, by_word, begin, n, e);
    case ACI_PRE_WHITESPACE_SPLIT: return split_runs(w, by_space, begin, n, e);
    case ACI_PRE_BERT: return split_runs(w, by_bert, begin, n, e);
    case ACI_PRE_METASPACE: return split_char(w, o->c, ACI_MERGED_WITH_NEXT, begin, n, e);
    case ACI_PRE_SPLIT: return split_pattern(w, &o->pattern, o->behavior, o->invert, begin, n, e);
    case ACI_PRE_PUNCTUATION:
      return split_chars(w, aci_uni_is_punctuation, o->behavior, begin, n, e);
    case ACI_PRE_DIGITS:
      return split_chars(w, is_number, o->split ? ACI_ISOLATED : ACI_CONTIGUOUS, begin, n, e);
    case ACI_PRE_DELIMITER: return split_char(w, o->c, ACI_REMOVED, begin, n, e);
    case ACI_PRE_FIXED_LENGTH: return split_length(w, o->c, begin, n, e);
    case ACI_PRE_SCRIPTS: return split_scripts(w, begin, n, e);
  }
  return AC_OK;
}

ac_status aci_pre_tokenize(aci_encode_scratch *w, bool keep_raw, ac_err *e) {
  const ac_tokenizer *t = w->t;
  for (uint32_t i = 0; i < t->n_pre; i++) {
    const aci_pre *o = &t->pre[i];
    if (o->kind == ACI_PRE_BYTE_LEVEL && o->add_prefix_space) AC_TRY(prefix_space(w, e));
    if (o->kind == ACI_PRE_METASPACE) AC_TRY(metaspace(w, o, e));
    if ((o->kind != ACI_PRE_BYTE_LEVEL && o->kind != ACI_PRE_METASPACE) || o->split) {
      w->q.n = 0;
      for (size_t k = 0; k < w->p.n; k++) {
        const aci_piece *p = &w->p.p[k];
        if (p->token >= 0) PUT(aci_piece_add(&w->q, p->begin, p->end, p->token));
        else AC_TRY(split_one(w, o, p->begin, p->end - p->begin, e));
      }
      const aci_pieces was = w->p;
      w->p = w->q;
      w->q = was;
    }
    if (o->kind == ACI_PRE_BYTE_LEVEL && !(keep_raw && i + 1 == t->n_pre))
      AC_TRY(bytes_to_chars(w, e));
  }
  return AC_OK;
}
