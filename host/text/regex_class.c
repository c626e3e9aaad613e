/* Regular expressions: escapes and classes of characters, [...] with nesting, intersection and
 * names. Called by regex_parse.c. */
#include <stdlib.h>

#include "text/regex_parse.h"

/* ---- escapes ---- */
static int hex_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if ((c | 32) >= 'a' && (c | 32) <= 'f') return (c | 32) - 'a' + 10;
  return -1;
}

static ac_status hex_char(aci_rx_parser *p, int least, int most, uint32_t *c) {
  int k = 0;
  for (*c = 0; k < most && hex_of(aci_rx_peek(p)) >= 0; k++, p->at++)
    *c = *c << 4 | (uint32_t)hex_of(aci_rx_peek(p));
  if (k < least || *c > ACI_UNI_LAST)
    return BAD(p, "a code point in hexadecimal digits is expected");
  return AC_OK;
}

/* Reads an escape. p->at is after the backslash. One character: *c, and *is_set is false. A class
 * (\s \w \d \h \p{...} and their negations): *is_set is true, and its code points are added to s.
 * inside: between the brackets of a class, which give some names other sets. */
ac_status aci_rx_escape(aci_rx_parser *p, aci_rx_set *s, uint32_t *c, bool *is_set, bool inside) {
  *is_set = true;
  aci_rx_set named = {0};
  bool ok = true, known = true, negated = false;
  const size_t at = p->at;
  const uint32_t e = aci_rx_next_char(p);
  switch (e) {
    case 's':
    case 'S': ok = aci_rx_add_space(&named), negated = e == 'S'; break;
    case 'w':
    case 'W': ok = aci_rx_add_word(&named, !inside), negated = e == 'W'; break;
    case 'd':
    case 'D': ok = aci_rx_property(&named, "nd", 2, &known), negated = e == 'D'; break;
    case 'h':
    case 'H':
      ok = aci_rx_add(&named, '0', '9') && aci_rx_add(&named, 'a', 'f') &&
           aci_rx_add(&named, 'A', 'F');
      negated = e == 'H';
      break;
    case 'p':
    case 'P': {
      if (!aci_rx_take(p, "{")) return BAD(p, "\\p takes a name in braces, \\p{L}");
      negated = aci_rx_take(p, "^") != (e == 'P');
      const char *name = p->s + p->at, *close = memchr(name, '}', p->n - p->at);
      if (close == NULL) return BAD(p, "\\p{ without }");
      ok = aci_rx_property(&named, name, (size_t)(close - name), &known);
      /* \p{word} outside brackets is \w, which has more digits than in a class */
      if (ok && !inside && close - name == 4 && (memcmp(name + 1, "ord", 3) == 0) &&
          (*name | 32) == 'w')
        ok = aci_rx_add_word(&named, true);
      if (known) p->at += (size_t)(close - name) + 1;
      break;
    }
    default: *is_set = false;
  }
  if (*is_set) {
    p->work += named.n + s->n;
    if (ok && known && negated) ok = aci_rx_complement(&named);
    ok = ok && aci_rx_unite(s, &named);
    free(named.r);
    if (!known) return BAD(p, "a property of that name is not known here");
    return ok ? AC_OK : NO_MEMORY(p);
  }
  switch (e) {
    case 'n': *c = '\n'; return AC_OK;
    case 'r': *c = '\r'; return AC_OK;
    case 't': *c = '\t'; return AC_OK;
    case 'f': *c = '\f'; return AC_OK;
    case 'v': *c = '\v'; return AC_OK;
    case 'a': *c = '\a'; return AC_OK;
    case 'e': *c = 27; return AC_OK;
    case '0': *c = 0; return AC_OK;
    case 'x':
      if (!aci_rx_take(p, "{")) return hex_char(p, 1, 2, c);
      AC_TRY(hex_char(p, 1, 8, c));
      return aci_rx_take(p, "}") ? AC_OK : BAD(p, "\\x{ without }");
    case 'u': return hex_char(p, 4, 4, c);
    default: break;
  }
  if ((e >= '1' && e <= '9') || ((e | 32) >= 'a' && (e | 32) <= 'z')) {
    p->at = at;
    return BAD(p, e <= '9' ? "back references are not supported" : "this escape is not supported");
  }
  *c = e;
  return AC_OK;
}

/* ---- classes ---- */
/* [:name:] inside a class. p->at is at "[:". *done false: not one of these. */
static ac_status posix_class(aci_rx_parser *p, aci_rx_set *s, bool *done) {
  const char *name = p->s + p->at + 2, *end = p->s + p->n;
  const char *close = name;
  while (close < end && (*close == '^' || ((*close | 32) >= 'a' && (*close | 32) <= 'z'))) close++;
  *done = end - close >= 2 && close[0] == ':' && close[1] == ']';
  if (!*done) return AC_OK;
  const bool negated = *name == '^';
  name += negated;
  aci_rx_set named = {0};
  bool known;
  p->work += 64 + s->n;
  bool ok = aci_rx_bracket(&named, name, (size_t)(close - name), &known);
  if (ok && known && negated) ok = aci_rx_complement(&named);
  ok = ok && aci_rx_unite(s, &named);
  free(named.r);
  if (!known) return BAD(p, "a class of that name, [:name:], is not known");
  p->at = (size_t)(close + 2 - p->s);
  return ok ? AC_OK : NO_MEMORY(p);
}

/* One element of a class, or a range of two. */
static ac_status class_item(aci_rx_parser *p, aci_rx_set *s) {
  uint32_t first, last;
  bool is_set = false;
  SPEND(p, 1 + s->n / 32);
  if (aci_rx_peek(p) == '[') {
    if (aci_rx_starts(p, "[:")) {
      bool done;
      AC_TRY(posix_class(p, s, &done));
      if (done) return AC_OK;
    }
    aci_rx_set inner = {0};
    ac_status st = aci_rx_class(p, &inner);
    if (st == AC_OK && !aci_rx_unite(s, &inner)) st = NO_MEMORY(p);
    free(inner.r);
    return st;
  }
  if (aci_rx_take(p, "\\")) {
    if (!aci_rx_more(p)) return BAD(p, "a backslash at the end");
    if (aci_rx_take(p, "b")) first = '\b';
    else AC_TRY(aci_rx_escape(p, s, &first, &is_set, true));
    if (is_set) return AC_OK;
  } else {
    first = aci_rx_next_char(p);
  }
  last = first;
  if (aci_rx_peek(p) == '-' && p->at + 1 < p->n && p->s[p->at + 1] != ']' &&
      p->s[p->at + 1] != '[') {
    p->at++;
    if (aci_rx_take(p, "\\")) {
      if (!aci_rx_more(p)) return BAD(p, "a backslash at the end");
      AC_TRY(aci_rx_escape(p, s, &last, &is_set, true));
      if (is_set) return BAD(p, "a range ends with a set");
    } else {
      last = aci_rx_next_char(p);
    }
    if (last < first) return BAD(p, "a range runs backwards");
  }
  ADD(p, aci_rx_add(s, first, last));
  return AC_OK;
}

/* p->at is at "[". */
ac_status aci_rx_class(aci_rx_parser *p, aci_rx_set *out) {
  if (++p->depth > ACI_RX_DEPTH) return BAD(p, "classes nest too deeply");
  p->at++;
  const bool negated = aci_rx_take(p, "^");
  aci_rx_set part = {0}, whole = {0};
  bool meets = false; /* there was a && */
  ac_status st = AC_OK;
  for (bool first = true; st == AC_OK; first = false) {
    if (!aci_rx_more(p)) st = BAD(p, "[ without ]");
    else if (aci_rx_peek(p) == ']' && !first) break;
    else if (aci_rx_take(p, "&&")) {
      if (meets ? !aci_rx_intersect(&whole, &part) : !aci_rx_unite(&whole, &part))
        st = NO_MEMORY(p);
      meets = true;
      part.n = 0;
    } else st = class_item(p, &part);
  }
  if (st == AC_OK && (meets ? !aci_rx_intersect(&whole, &part) : !aci_rx_unite(&whole, &part)))
    st = NO_MEMORY(p);
  free(part.r);
  p->at++;
  p->depth--;
  if (st == AC_OK && negated &&
      ((p->ignore_case && !aci_rx_close_case(&whole)) || !aci_rx_complement(&whole)))
    st = NO_MEMORY(p);
  if (st == AC_OK) *out = whole;
  else free(whole.r);
  return st;
}
