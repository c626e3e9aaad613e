/* Regular expressions: from text to a tree. Recursion goes as deep as the pattern nests, at most ACI_RX_DEPTH; long
 * sequences and long alternatives are lists. Called by aci_regex_new. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/regex_impl.h"
#include "text/unicode.h"

typedef struct parser {
  const char *s;
  size_t n, at;
  aci_rx_tree *t;
  bool ignore_case, dot_all;
  int depth;
  ac_err *e;
} parser;

#define BAD(p, ...) bad((p), __LINE__, __VA_ARGS__)
static ac_status bad(parser *p, int line, const char *what) {
  return ac_err_set(p->e, AC_PARSE, __FILE__, line, "regular expression, byte %zu: %s", p->at, what);
}
static ac_status no_memory(ac_err *e) { return AC_FAIL(e, OOM, "no memory for a regular expression"); }
#define ADD(p, expr)                            \
  do {                                          \
    if (!(expr)) return no_memory((p)->e);      \
  } while (0)

static bool more(const parser *p) { return p->at < p->n; }
static char peek(const parser *p) { return p->at < p->n ? p->s[p->at] : 0; }
static bool starts(const parser *p, const char *with) {
  const size_t k = strlen(with);
  return p->n - p->at >= k && memcmp(p->s + p->at, with, k) == 0;
}
static bool take(parser *p, const char *with) {
  if (!starts(p, with)) return false;
  p->at += strlen(with);
  return true;
}
static uint32_t next_char(parser *p) {
  const char *s = p->s + p->at;
  const uint32_t c = aci_utf8_next(&s);
  p->at = (size_t)(s - p->s);
  return c;
}

/* ---- nodes and sets ---- */
static ac_status node_new(parser *p, aci_rx_kind kind, uint32_t child, uint32_t *out) {
  aci_rx_tree *t = p->t;
  if (t->n == t->cap) {
    if (t->n >= ACI_RX_NODES) return BAD(p, "the pattern is too large");
    const uint32_t cap = t->cap == 0 ? 64 : t->cap * 2;
    aci_rx_node *node = realloc(t->node, cap * sizeof *node);
    if (node == NULL) return no_memory(p->e);
    if (t->n == 0) memset(node, 0, sizeof *node), t->n = 1; /* number 0 is none */
    t->node = node;
    t->cap = cap;
  }
  t->node[t->n] = (aci_rx_node){.kind = (uint8_t)kind, .child = child, .at = (uint32_t)p->at};
  *out = t->n++;
  return AC_OK;
}

/* The number of a set with these contents, which it takes. */
static ac_status intern(parser *p, aci_rx_set *s, uint16_t *out) {
  aci_rx_tree *t = p->t;
  for (uint32_t i = 0; i < t->n_set; i++)
    if (t->set[i].n == s->n && t->set[i].edge == s->edge && (s->n == 0 || memcmp(t->set[i].r, s->r, s->n * sizeof *s->r) == 0)) {
      free(s->r);
      *out = (uint16_t)i;
      return AC_OK;
    }
  if (t->n_set == t->cap_set) {
    const uint32_t cap = t->cap_set == 0 ? 16 : t->cap_set * 2;
    aci_rx_set *set = t->n_set >= ACI_RX_SETS ? NULL : realloc(t->set, cap * sizeof *set);
    if (set == NULL) {
      free(s->r);
      return t->n_set >= ACI_RX_SETS ? BAD(p, "too many different sets of characters") : no_memory(p->e);
    }
    t->set = set;
    t->cap_set = cap;
  }
  t->set[t->n_set] = *s;
  *out = (uint16_t)t->n_set++;
  return AC_OK;
}

static ac_status set_node(parser *p, aci_rx_kind kind, aci_rx_set *s, uint32_t *out) {
  if (p->ignore_case && !aci_rx_close_case(s)) {
    free(s->r);
    return no_memory(p->e);
  }
  uint16_t number;
  AC_TRY(intern(p, s, &number));
  AC_TRY(node_new(p, kind, 0, out));
  p->t->node[*out].set = number;
  return AC_OK;
}

/* ---- escapes ---- */
static int hex_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if ((c | 32) >= 'a' && (c | 32) <= 'f') return (c | 32) - 'a' + 10;
  return -1;
}

static ac_status hex_char(parser *p, int least, int most, uint32_t *c) {
  int k = 0;
  for (*c = 0; k < most && hex_of(peek(p)) >= 0; k++, p->at++) *c = *c << 4 | (uint32_t)hex_of(peek(p));
  if (k < least || *c > ACI_UNI_LAST) return BAD(p, "a code point in hexadecimal digits is expected");
  return AC_OK;
}

/* What an escape that stands for one character means; p->at is behind the backslash. *is_set: it added to s instead. */
static ac_status escape(parser *p, aci_rx_set *s, uint32_t *c, bool *is_set) {
  *is_set = true;
  aci_rx_set named = {0};
  bool ok = true, known = true, negated = false;
  const size_t at = p->at;
  const uint32_t e = next_char(p);
  switch (e) {
    case 's': case 'S': ok = aci_rx_add_space(&named), negated = e == 'S'; break;
    case 'w': case 'W': ok = aci_rx_add_word(&named), negated = e == 'W'; break;
    case 'd': case 'D': ok = aci_rx_property(&named, "nd", 2, &known), negated = e == 'D'; break;
    case 'h': case 'H':
      ok = aci_rx_add(&named, '0', '9') && aci_rx_add(&named, 'a', 'f') && aci_rx_add(&named, 'A', 'F');
      negated = e == 'H';
      break;
    case 'p': case 'P': {
      if (!take(p, "{")) return BAD(p, "\\p takes a name in braces, \\p{L}");
      negated = take(p, "^") != (e == 'P');
      const char *name = p->s + p->at, *close = memchr(name, '}', p->n - p->at);
      if (close == NULL) return BAD(p, "\\p{ without }");
      ok = aci_rx_property(&named, name, (size_t)(close - name), &known);
      if (known) p->at += (size_t)(close - name) + 1;
      break;
    }
    default: *is_set = false;
  }
  if (*is_set) {
    if (ok && known && negated) ok = aci_rx_complement(&named);
    ok = ok && aci_rx_unite(s, &named);
    free(named.r);
    if (!known) return BAD(p, "a property of that name is not known here");
    return ok ? AC_OK : no_memory(p->e);
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
      if (!take(p, "{")) return hex_char(p, 1, 2, c);
      AC_TRY(hex_char(p, 1, 8, c));
      return take(p, "}") ? AC_OK : BAD(p, "\\x{ without }");
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
static ac_status class_of(parser *p, aci_rx_set *out);

/* [:name:] inside a class; p->at is at "[:". *done false: it is none. */
static ac_status posix_class(parser *p, aci_rx_set *s, bool *done) {
  const char *name = p->s + p->at + 2, *end = p->s + p->n;
  const char *close = name;
  while (close < end && (*close == '^' || ((*close | 32) >= 'a' && (*close | 32) <= 'z'))) close++;
  *done = end - close >= 2 && close[0] == ':' && close[1] == ']';
  if (!*done) return AC_OK;
  const bool negated = *name == '^';
  name += negated;
  aci_rx_set named = {0};
  bool known = true, ok;
  const size_t n = (size_t)(close - name);
  if (n == 6 && memcmp(name, "xdigit", 6) == 0)
    ok = aci_rx_add(&named, '0', '9') && aci_rx_add(&named, 'a', 'f') && aci_rx_add(&named, 'A', 'F');
  else if (n == 5 && (memcmp(name, "space", 5) == 0 || memcmp(name, "digit", 5) == 0 || memcmp(name, "cntrl", 5) == 0))
    ok = aci_rx_property(&named, name, n, &known);
  else if (n == 4 && memcmp(name, "word", 4) == 0) ok = aci_rx_add_word(&named);
  else ok = true, known = false;
  if (ok && known && negated) ok = aci_rx_complement(&named);
  ok = ok && aci_rx_unite(s, &named);
  free(named.r);
  if (!known) return BAD(p, "of [:names:] only space, digit, word, cntrl and xdigit are supported");
  p->at = (size_t)(close + 2 - p->s);
  return ok ? AC_OK : no_memory(p->e);
}

/* One element of a class, or a range of two. */
static ac_status class_item(parser *p, aci_rx_set *s) {
  uint32_t first, last;
  bool is_set = false;
  if (peek(p) == '[') {
    if (starts(p, "[:")) {
      bool done;
      AC_TRY(posix_class(p, s, &done));
      if (done) return AC_OK;
    }
    aci_rx_set inner = {0};
    ac_status st = class_of(p, &inner);
    if (st == AC_OK && !aci_rx_unite(s, &inner)) st = no_memory(p->e);
    free(inner.r);
    return st;
  }
  if (take(p, "\\")) {
    if (!more(p)) return BAD(p, "a backslash at the end");
    if (take(p, "b")) first = '\b';
    else AC_TRY(escape(p, s, &first, &is_set));
    if (is_set) return AC_OK;
  } else {
    first = next_char(p);
  }
  last = first;
  if (peek(p) == '-' && p->at + 1 < p->n && p->s[p->at + 1] != ']' && p->s[p->at + 1] != '[') {
    p->at++;
    if (take(p, "\\")) {
      if (!more(p)) return BAD(p, "a backslash at the end");
      AC_TRY(escape(p, s, &last, &is_set));
      if (is_set) return BAD(p, "a range ends with a set");
    } else {
      last = next_char(p);
    }
    if (last < first) return BAD(p, "a range runs backwards");
  }
  ADD(p, aci_rx_add(s, first, last));
  return AC_OK;
}

/* p->at is at "[". */
static ac_status class_of(parser *p, aci_rx_set *out) {
  if (++p->depth > ACI_RX_DEPTH) return BAD(p, "classes nest too deeply");
  p->at++;
  const bool negated = take(p, "^");
  aci_rx_set part = {0}, whole = {0};
  bool meets = false; /* there was a && */
  ac_status st = AC_OK;
  for (bool first = true; st == AC_OK; first = false) {
    if (!more(p)) st = BAD(p, "[ without ]");
    else if (peek(p) == ']' && !first) break;
    else if (take(p, "&&")) {
      if (meets ? !aci_rx_intersect(&whole, &part) : !aci_rx_unite(&whole, &part)) st = no_memory(p->e);
      meets = true;
      part.n = 0;
    } else st = class_item(p, &part);
  }
  if (st == AC_OK && (meets ? !aci_rx_intersect(&whole, &part) : !aci_rx_unite(&whole, &part))) st = no_memory(p->e);
  free(part.r);
  p->at++;
  p->depth--;
  if (st == AC_OK && negated && ((p->ignore_case && !aci_rx_close_case(&whole)) || !aci_rx_complement(&whole))) st = no_memory(p->e);
  if (st == AC_OK) *out = whole;
  else free(whole.r);
  return st;
}

/* ---- lookaround ---- */
/* Adds what x, seen as one character at its near edge, can be: *one false when it is longer or may be empty. */
static ac_status single(parser *p, uint32_t x, bool behind, aci_rx_set *s, bool *one) {
  const aci_rx_node *n = &p->t->node[x];
  *one = true;
  switch (n->kind) {
    case ACI_RX_SET: ADD(p, aci_rx_unite(s, &p->t->set[n->set])); return AC_OK;
    case ACI_RX_ALT:
      for (uint32_t c = n->child; *one && c != 0; c = p->t->node[c].next) AC_TRY(single(p, c, behind, s, one));
      return AC_OK;
    case ACI_RX_CAT:
      *one = n->child != 0 && p->t->node[n->child].next == 0;
      return *one ? single(p, n->child, behind, s, one) : AC_OK;
    case ACI_RX_REPEAT_N: /* one or more begin like one */
      *one = n->min == 1;
      return *one ? single(p, n->child, behind, s, one) : AC_OK;
    case ACI_RX_AHEAD:
    case ACI_RX_BEHIND: /* the end of the text alone, in (?=\s|\z) */
      *one = (n->kind == ACI_RX_BEHIND) == behind && p->t->set[n->set].edge && p->t->set[n->set].n == 0;
      s->edge = s->edge || *one;
      return AC_OK;
    default: *one = false; return AC_OK;
  }
}

static ac_status edge_node(parser *p, bool behind, const aci_rx_set *set, bool edge, uint32_t *out) {
  aci_rx_set s = {.edge = edge};
  if (set != NULL && !aci_rx_unite(&s, set)) return no_memory(p->e);
  s.edge = edge;
  uint16_t number;
  AC_TRY(intern(p, &s, &number));
  AC_TRY(node_new(p, behind ? ACI_RX_BEHIND : ACI_RX_AHEAD, 0, out));
  p->t->node[*out].set = number;
  return AC_OK;
}

static ac_status look(parser *p, uint32_t x, bool behind, bool negated, uint32_t *out) {
  aci_rx_set s = {0};
  bool one;
  ac_status st = single(p, x, behind, &s, &one);
  if (st == AC_OK && !one) st = BAD(p, "lookaround over more (or less) than one character is not supported");
  if (st == AC_OK && negated) {
    const bool edge = !s.edge;
    if (!aci_rx_complement(&s)) st = no_memory(p->e);
    s.edge = edge;
  }
  if (st == AC_OK) st = edge_node(p, behind, &s, s.edge, out);
  free(s.r);
  return st;
}

/* \b: one side is a word, the other is not. */
static ac_status word_edge(parser *p, bool inside, uint32_t *out) {
  aci_rx_set word = {0}, rest = {0};
  uint32_t a, b, c, d, one, two;
  ac_status st = !aci_rx_add_word(&word) || !aci_rx_unite(&rest, &word) || !aci_rx_complement(&rest) ? no_memory(p->e) : AC_OK;
  if (st == AC_OK) st = edge_node(p, true, &word, false, &a);
  if (st == AC_OK) st = edge_node(p, false, inside ? &word : &rest, !inside, &b);
  if (st == AC_OK) st = edge_node(p, true, &rest, true, &c);
  if (st == AC_OK) st = edge_node(p, false, inside ? &rest : &word, inside, &d);
  free(word.r);
  free(rest.r);
  AC_TRY(st);
  p->t->node[a].next = b;
  p->t->node[c].next = d;
  AC_TRY(node_new(p, ACI_RX_CAT, a, &one));
  AC_TRY(node_new(p, ACI_RX_CAT, c, &two));
  p->t->node[one].next = two;
  return node_new(p, ACI_RX_ALT, one, out);
}

/* ---- the grammar ---- */
static ac_status alternatives(parser *p, uint32_t *out);

/* Behind "(?": flags up to ")" or ":". */
static ac_status flags(parser *p, bool *rest) {
  bool on = true;
  for (;; p->at++) {
    switch (peek(p)) {
      case '-': on = false; break;
      case 'i': p->ignore_case = on; break;
      case 'm': p->dot_all = on; break;
      case ':': p->at++; return *rest = false, AC_OK;
      case ')': p->at++; return *rest = true, AC_OK;
      default: return BAD(p, "this kind of group is not supported");
    }
  }
}

/* p->at is behind "(". */
static ac_status group(parser *p, uint32_t *out) {
  if (++p->depth > ACI_RX_DEPTH) return BAD(p, "groups nest too deeply");
  const bool was_case = p->ignore_case, was_dot = p->dot_all;
  bool closed = false;
  if (take(p, "?")) {
    const bool behind = starts(p, "<=") || starts(p, "<!");
    if (behind || peek(p) == '=' || peek(p) == '!') {
      p->at += behind ? 2 : 1;
      const bool negated = p->s[p->at - 1] == '!';
      AC_TRY(alternatives(p, out));
      if (!take(p, ")")) return BAD(p, "( without )");
      p->depth--;
      return look(p, *out, behind, negated, out);
    }
    if (take(p, "#")) {
      const char *close = memchr(p->s + p->at, ')', p->n - p->at);
      if (close == NULL) return BAD(p, "( without )");
      p->at = (size_t)(close - p->s) + 1;
      p->depth--;
      return node_new(p, ACI_RX_EMPTY, 0, out);
    }
    if (take(p, "<")) {
      const char *close = memchr(p->s + p->at, '>', p->n - p->at);
      if (close == NULL) return BAD(p, "(?< without >");
      p->at = (size_t)(close - p->s) + 1;
    } else {
      AC_TRY(flags(p, &closed)); /* closed: (?i) holds to the end of the group around */
    }
  }
  AC_TRY(alternatives(p, out));
  if (closed) {
    /* the group around sees its own ")" */
  } else if (!take(p, ")")) {
    return BAD(p, "( without )");
  }
  p->ignore_case = was_case;
  p->dot_all = was_dot;
  p->depth--;
  return AC_OK;
}

static ac_status atom(parser *p, uint32_t *out) {
  aci_rx_set s = {0};
  uint32_t c = 0;
  bool is_set = false;
  const char head = peek(p);
  ac_status st = AC_OK;
  switch (head) {
    case '(': p->at++; return group(p, out);
    case '^':
      p->at++;
      ADD(p, aci_rx_add(&s, '\n', '\n'));
      st = edge_node(p, true, &s, true, out);
      free(s.r);
      return st;
    case '$':
      p->at++;
      ADD(p, aci_rx_add(&s, '\n', '\n'));
      st = edge_node(p, false, &s, true, out);
      free(s.r);
      return st;
    case '*': case '+': case '?': return BAD(p, "nothing to repeat");
    case '[': st = class_of(p, &s); break;
    case '.':
      p->at++;
      if (!p->dot_all) ADD(p, aci_rx_add(&s, '\n', '\n'));
      if (!aci_rx_complement(&s)) st = no_memory(p->e);
      break;
    case '\\':
      p->at++;
      if (!more(p)) return BAD(p, "a backslash at the end");
      if (take(p, "b")) return word_edge(p, false, out);
      if (take(p, "B")) return word_edge(p, true, out);
      if (take(p, "A")) return edge_node(p, true, NULL, true, out);
      if (take(p, "z")) return edge_node(p, false, NULL, true, out);
      st = escape(p, &s, &c, &is_set);
      if (st == AC_OK && !is_set && !aci_rx_add(&s, c, c)) st = no_memory(p->e);
      break;
    default:
      c = next_char(p);
      if (!aci_rx_add(&s, c, c)) st = no_memory(p->e);
  }
  if (st != AC_OK) {
    free(s.r);
    return st;
  }
  return set_node(p, ACI_RX_SET, &s, out);
}

static bool count(parser *p, size_t *at, int32_t *v) {
  int64_t x = 0;
  const size_t from = *at;
  for (; *at < p->n && p->s[*at] >= '0' && p->s[*at] <= '9' && *at - from < 6; (*at)++) x = x * 10 + (p->s[*at] - '0');
  *v = (int32_t)x;
  return *at > from;
}

/* {n}, {n,}, {,m}, {n,m}; anything else is literal. */
static bool braces(parser *p, int32_t *min, int32_t *max) {
  size_t at = p->at + 1;
  const bool low = count(p, &at, min);
  if (!low) *min = 0;
  if (at < p->n && p->s[at] == ',') {
    at++;
    if (!count(p, &at, max)) {
      if (!low) return false;
      *max = -1;
    }
  } else {
    if (!low) return false;
    *max = *min;
  }
  if (at >= p->n || p->s[at] != '}') return false;
  p->at = at + 1;
  return true;
}

static ac_status piece(parser *p, uint32_t *out) {
  AC_TRY(atom(p, out));
  for (int stacked = 0; more(p); stacked++) {
    int32_t min, max;
    bool counted = false;
    if (take(p, "*")) min = 0, max = -1;
    else if (take(p, "+")) min = 1, max = -1;
    else if (take(p, "?")) min = 0, max = 1;
    else if (peek(p) == '{' && braces(p, &min, &max)) counted = true;
    else break;
    if (min > ACI_RX_REPEAT || max > ACI_RX_REPEAT) return BAD(p, "a repetition of more than 1000");
    if (max >= 0 && min > max) return BAD(p, "a repetition whose limits are in the wrong order");
    if (stacked == 16) return BAD(p, "too many repetitions of repetitions");
    int greed = ACI_RX_GREEDY;
    if (peek(p) == '?' && !(counted && min == max)) greed = ACI_RX_LAZY, p->at++;
    else if (!counted && peek(p) == '+') greed = ACI_RX_POSSESSIVE, p->at++;
    AC_TRY(node_new(p, ACI_RX_REPEAT_N, *out, out));
    aci_rx_node *n = &p->t->node[*out];
    n->min = min;
    n->max = max;
    n->greed = (uint8_t)greed;
  }
  return AC_OK;
}

static ac_status sequence(parser *p, uint32_t *out) {
  uint32_t first = 0, last = 0, x;
  while (more(p) && peek(p) != '|' && peek(p) != ')') {
    AC_TRY(piece(p, &x));
    if (last == 0) first = x;
    else p->t->node[last].next = x;
    last = x;
  }
  if (first == last && first != 0) return *out = first, AC_OK;
  return node_new(p, first == 0 ? ACI_RX_EMPTY : ACI_RX_CAT, first, out);
}

static ac_status alternatives(parser *p, uint32_t *out) {
  uint32_t first, last, x;
  AC_TRY(sequence(p, &first));
  if (peek(p) != '|' || !more(p)) return *out = first, AC_OK;
  for (last = first; take(p, "|"); last = x) {
    AC_TRY(sequence(p, &x));
    p->t->node[last].next = x;
  }
  return node_new(p, ACI_RX_ALT, first, out);
}

ac_status aci_rx_parse(const char *pattern, size_t n, aci_rx_tree *t, ac_err *e) {
  parser p = {.s = pattern, .n = n, .t = t, .e = e};
  memset(t, 0, sizeof *t);
  if (n > ACI_REGEX_BYTES) return AC_FAIL(e, PARSE, "regular expression: %zu bytes are more than %d", n, ACI_REGEX_BYTES);
  if (!aci_utf8_valid(pattern, n)) return AC_FAIL(e, PARSE, "regular expression: not valid UTF-8");
  AC_TRY(aci_uni_open(e));
  AC_TRY(alternatives(&p, &t->root));
  if (more(&p)) return BAD(&p, ") without (");
  return aci_rx_possessive(t, e);
}

void aci_rx_tree_fini(aci_rx_tree *t) {
  for (uint32_t i = 0; i < t->n_set; i++) free(t->set[i].r);
  free(t->set);
  free(t->node);
}
