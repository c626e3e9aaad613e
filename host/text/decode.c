/* Decoding: tokens pass the decoders as a list of strings, which are joined at the end. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"
#include "text/unicode.h"

/* Strings stored one after the other. */
typedef struct strings {
  aci_strbuf s;
  size_t *end;
  size_t n, cap;
} strings;

static void strings_fini(strings *l) {
  aci_strbuf_fini(&l->s);
  free(l->end);
}
static void strings_clear(strings *l) { l->s.len = l->n = 0; }
static bool strings_end(strings *l) {
  if (l->s.failed || !ACI_GROW(l->end, l->cap, l->n + 1)) return false;
  l->end[l->n++] = l->s.len;
  return true;
}
static bool strings_add(strings *l, const char *s, size_t n) {
  aci_strbuf_add(&l->s, s, n);
  return strings_end(l);
}
static ac_text string_at(const strings *l, size_t i) {
  const size_t begin = i == 0 ? 0 : l->end[i - 1];
  return (ac_text){l->s.s == NULL ? "" : l->s.s + begin, l->end[i] - begin};
}

static void put(strings *l, uint32_t c) {
  char s[4];
  aci_strbuf_add(&l->s, s, (size_t)aci_utf8_put(s, c));
}

/* Appends bytes as text. Invalid UTF-8 becomes U+FFFD, one for each longest beginning of a
 * character. */
static void put_lossy(strings *l, const unsigned char *s, size_t n) {
  for (size_t i = 0; i < n;) {
    const int k = s[i] < 0x80 ? 1 : aci_utf8_length(s + i, n - i);
    if (k > 0) {
      aci_strbuf_add(&l->s, (const char *)s + i, (size_t)k);
      i += (size_t)k;
      continue;
    }
    const unsigned char lead = s[i++];
    int more = lead >= 0xC2 && lead <= 0xDF   ? 1
               : lead >= 0xE0 && lead <= 0xEF ? 2
               : lead >= 0xF0 && lead <= 0xF4 ? 3
                                              : 0;
    unsigned char low = lead == 0xE0   ? 0xA0
                        : lead == 0xF0 ? 0x90
                                       : 0x80,
                  high = lead == 0xED   ? 0x9F
                         : lead == 0xF4 ? 0x8F
                                        : 0xBF;
    for (; more > 0 && i < n && s[i] >= low && s[i] <= high; more--, i++) low = 0x80, high = 0xBF;
    put(l, 0xFFFD);
  }
}

static bool replace_all(strings *out, ac_text x, const char *what, size_t n, const char *with,
                        size_t k) {
  const char *at = x.s, *end = x.s + x.n;
  if (n == 0) return strings_add(out, x.s, x.n);
  for (const char *hit; (hit = memmem(at, (size_t)(end - at), what, n)) != NULL; at = hit + n) {
    aci_strbuf_add(&out->s, at, (size_t)(hit - at));
    aci_strbuf_add(&out->s, with, k);
  }
  aci_strbuf_add(&out->s, at, (size_t)(end - at));
  return strings_end(out);
}

/* Removes blanks that English tokens leave in wrong places of one string. Uses x, which it
 * empties. */
static bool clean_up(strings *x, strings *y, ac_text text, ac_text *out) {
  static const char *const rules[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                         {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                         {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                         {" 've", "'ve"}, {" 're", "'re"}};
  strings_clear(x);
  if (!strings_add(x, text.s, text.n)) return false;
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
    const ac_text now = string_at(x, 0);
    if (memmem(now.s, now.n, rules[i][0], strlen(rules[i][0])) == NULL) continue;
    strings_clear(y);
    if (!replace_all(y, now, rules[i][0], strlen(rules[i][0]), rules[i][1], strlen(rules[i][1])))
      return false;
    const strings was = *x;
    *x = *y;
    *y = was;
  }
  *out = string_at(x, 0);
  return true;
}

/* <0x61> */
static int byte_token(ac_text x) {
  int v = 0;
  if (x.n != 6 || memcmp(x.s, "<0x", 3) != 0 || x.s[5] != '>') return -1;
  for (int i = 3; i < 5; i++) {
    const char c = x.s[i];
    const int d = c >= '0' && c <= '9'                 ? c - '0'
                  : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                       : -1;
    if (d < 0) return -1;
    v = v << 4 | d;
  }
  return v;
}

static bool flush_bytes(strings *out, strings *bytes) {
  const size_t n = bytes->s.len;
  bool ok = true;
  if (n == 0) return true;
  if (aci_utf8_valid(bytes->s.s, n)) ok = strings_add(out, bytes->s.s, n);
  else
    for (size_t i = 0; ok && i < n; i++) ok = strings_add(out, "\xEF\xBF\xBD", 3);
  strings_clear(bytes);
  return ok;
}

static bool byte_level(const strings *in, strings *out, strings *bytes) {
  strings_clear(bytes);
  for (size_t i = 0; i < in->n; i++) {
    const ac_text x = string_at(in, i);
    const size_t before = bytes->s.len;
    for (const char *s = x.s, *end = x.s + x.n; s < end;) {
      const int b = aci_char_byte(aci_utf8_next(&s));
      if (b >= 0) {
        aci_strbuf_putc(&bytes->s, (char)b);
        continue;
      }
      bytes->s.len = before; /* of another alphabet: as it is */
      aci_strbuf_add(&bytes->s, x.s, x.n);
      break;
    }
  }
  if (bytes->s.failed) return false;
  put_lossy(out, (const unsigned char *)bytes->s.s, bytes->s.len);
  return strings_end(out);
}

static void strip(const aci_dec *o, ac_text *x) {
  const char *first = x->s, *last = x->s + x->n;
  for (uint32_t i = 0; i < o->start && first < last; i++) {
    const char *s = first;
    if (aci_utf8_next(&s) != o->c) break;
    first = s;
  }
  for (uint32_t i = 0; i < o->stop && last > first; i++) {
    const char *s = last;
    if (aci_utf8_before(&s) != o->c) break;
    last = s;
  }
  *x = (ac_text){first, (size_t)(last - first)};
}

static ac_status replace(aci_encode_scratch *w, const aci_dec *o, ac_text x, strings *out,
                         ac_err *e) {
  aci_find f = {0};
  size_t begin, end, at = 0;
  bool found = false;
  if (x.n > 0) aci_pattern_begin(w, &o->pattern, x.n);
  while (x.n > 0) {
    AC_TRY(aci_pattern_next(w, &o->pattern, x.s, x.n, &f, &begin, &end, &found, e));
    if (!found) break;
    aci_strbuf_add(&out->s, x.s + at, begin - at);
    aci_strbuf_add(&out->s, o->content.s, o->content.n);
    at = end;
  }
  aci_strbuf_add(&out->s, x.s + at, x.n - at);
  return strings_end(out) ? AC_OK : aci_no_memory(e);
}

typedef struct decoding {
  aci_encode_scratch *w;
  strings in, out, x, y;
} decoding;

/* Applies one decoder to string i of d->in and appends the results (nothing, one string or more) to
 * d->out. d->x and d->y are scratch. Exception: byte fallback collects bytes over several strings
 * in d->x until flush_bytes turns them into text. */
static ac_status one_string(decoding *d, const aci_dec *o, size_t i, ac_err *e) {
  ac_text x = string_at(&d->in, i);
  strings *out = &d->out;
  bool ok = true;
  switch (o->kind) {
    case ACI_DEC_BPE:
      ok = replace_all(out, x, o->content.s, o->content.n, " ", i + 1 < d->in.n);
      break;
    case ACI_DEC_WORDPIECE: {
      ac_text text = x;
      strings_clear(&d->y);
      if (i > 0 && x.n >= o->content.n && memcmp(x.s, o->content.s, o->content.n) == 0) {
        text = (ac_text){x.s + o->content.n, x.n - o->content.n};
      } else if (i > 0) {
        aci_strbuf_putc(&d->y.s, ' ');
        ok = strings_add(&d->y, x.s, x.n);
        if (ok) text = string_at(&d->y, 0);
      }
      if (ok && o->cleanup) {
        /* clean_up works in x and y, so the text moves out of y first */
        strings_clear(&d->x);
        ok = strings_add(&d->x, text.s, text.n);
        strings from = d->x;
        d->x = (strings){0};
        if (ok)
          ok = clean_up(&d->x, &d->y, string_at(&from, 0), &text) &&
               strings_add(out, text.s, text.n);
        strings_fini(&from);
      } else {
        ok = ok && strings_add(out, text.s, text.n);
      }
      break;
    }
    case ACI_DEC_METASPACE:
      for (const char *s = x.s, *end = x.s + x.n; s < end;) {
        const uint32_t c = aci_utf8_next(&s);
        if (c != o->c) put(out, c);
        else if (i > 0 || o->prepend == ACI_PREPEND_NEVER) put(out, ' ');
      }
      ok = strings_end(out);
      break;
    case ACI_DEC_CTC: {
      if (i > 0) { /* a token that repeats the one before is dropped */
        const ac_text before = string_at(&d->in, i - 1);
        if (before.n == x.n && memcmp(before.s, x.s, x.n) == 0) break;
      }
      strings a = {0}, b = {0};
      ok = replace_all(&a, x, o->content.s, o->content.n, "", 0);
      ac_text text = ok ? string_at(&a, 0) : x;
      if (ok && o->cleanup) {
        ok = clean_up(&d->x, &d->y, text, &text) &&
             replace_all(&b, text, o->delimiter.s, o->delimiter.n, " ", 1);
        if (ok) text = string_at(&b, 0);
      }
      if (ok && text.n > 0) ok = strings_add(out, text.s, text.n);
      strings_fini(&a);
      strings_fini(&b);
      break;
    }
    case ACI_DEC_REPLACE: return replace(d->w, o, x, out, e);
    case ACI_DEC_STRIP:
      strip(o, &x);
      ok = strings_add(out, x.s, x.n);
      break;
    case ACI_DEC_BYTE_FALLBACK: {
      const int b = byte_token(x);
      if (b >= 0) aci_strbuf_putc(&d->x.s, (char)b), ok = !d->x.s.failed;
      else ok = flush_bytes(out, &d->x) && strings_add(out, x.s, x.n);
      break;
    }
    default: break;
  }
  return ok ? AC_OK : aci_no_memory(e);
}

/* Appends the collected bytes as text. Bytes that are not UTF-8 become U+FFFD each. */
static bool flush_sentencepiece(strings *out, strings *bytes) {
  const unsigned char *s = (const unsigned char *)bytes->s.s;
  for (size_t i = 0, n = bytes->s.len; i < n;) {
    const int k = s[i] < 0x80 ? 1 : aci_utf8_length(s + i, n - i);
    if (k > 0) aci_strbuf_add(&out->s, (const char *)s + i, (size_t)k);
    else put(out, 0xFFFD);
    i += k > 0 ? (size_t)k : 1;
  }
  strings_clear(bytes);
  return !out->s.failed;
}

/* SentencePiece: spaces become visible again, but for the first one, or those of all tokens before
 * the first text. */
static bool sentencepiece(const aci_dec *o, const strings *in, strings *out, strings *bytes) {
  bool seen = false; /* the first space was left out */
  for (size_t i = 0; i < in->n; i++) {
    ac_text x = string_at(in, i);
    const int b = byte_token(x);
    if (b >= 0) {
      aci_strbuf_putc(&bytes->s, (char)b);
      continue;
    }
    if (!flush_sentencepiece(out, bytes)) return false;
    if (x.n == o->content.n && memcmp(x.s, o->content.s, x.n) == 0) {
      aci_strbuf_add(&out->s, o->delimiter.s, o->delimiter.n);
      continue;
    }
    size_t skip = 0;
    if (o->strip_first && !seen && out->s.len == 0) skip = aci_sp_leading(x.s, x.n);
    seen = seen || (skip > 0 && !o->strip_all);
    for (const char *s = x.s + skip, *end = x.s + x.n; s < end;) {
      const uint32_t c = aci_utf8_next(&s);
      put(out, c == 0x2581 ? ' ' : c);
    }
  }
  return flush_sentencepiece(out, bytes) && strings_end(out);
}

static ac_status one_step(decoding *d, const aci_dec *o, ac_err *e) {
  strings_clear(&d->out);
  strings_clear(&d->x);
  if (o->kind == ACI_DEC_BYTE_LEVEL) {
    if (!byte_level(&d->in, &d->out, &d->x)) return aci_no_memory(e);
  } else if (o->kind == ACI_DEC_SENTENCEPIECE) {
    if (!sentencepiece(o, &d->in, &d->out, &d->x)) return aci_no_memory(e);
  } else if (o->kind == ACI_DEC_FUSE) {
    if (!strings_add(&d->out, d->in.s.s, d->in.s.len)) return aci_no_memory(e);
  } else {
    for (size_t i = 0; i < d->in.n; i++) AC_TRY(one_string(d, o, i, e));
    if (o->kind == ACI_DEC_BYTE_FALLBACK && !flush_bytes(&d->out, &d->x)) return aci_no_memory(e);
  }
  const strings was = d->in;
  d->in = d->out;
  d->out = was;
  return AC_OK;
}

static bool is_special(const ac_tokenizer *t, ac_text x) {
  const int64_t i = aci_map_get(&t->added_by_text, x.s, x.n);
  return i >= 0 && t->added[i].special;
}

ac_status ac_tokenizer_decode(const ac_tokenizer *t, const int64_t *ids, size_t n,
                              bool skip_special_tokens, char **text, size_t *length, ac_err *e) {
  decoding d = {0};
  ac_status st = aci_encode_scratch_get(t, &d.w, e);
  *text = NULL;
  if (st != AC_OK) return st;
  for (size_t i = 0; st == AC_OK && i < n; i++) {
    ac_text x;
    x.s = ac_tokenizer_id_to_token(t, ids[i], &x.n);
    if (x.s == NULL || (skip_special_tokens && is_special(t, x))) continue;
    if (t->model.sp && ids[i] < (int64_t)t->model.n_id &&
        t->model.sp_kind[ids[i]] == ACI_SP_CONTROL)
      continue;
    if (!t->has_decoder && d.in.n > 0) aci_strbuf_putc(&d.in.s, ' ');
    if (!strings_add(&d.in, x.s, x.n)) st = aci_no_memory(e);
  }
  for (uint32_t i = 0; st == AC_OK && i < t->n_dec && d.in.n > 0; i++)
    st = one_step(&d, &t->dec[i], e);
  if (st == AC_OK) {
    *text = aci_strbuf_take(&d.in.s, length);
    if (*text == NULL) st = aci_no_memory(e);
  }
  aci_encode_scratch_put(t, d.w);
  strings_fini(&d.in);
  strings_fini(&d.out);
  strings_fini(&d.x);
  strings_fini(&d.y);
  return st;
}
