/* Regular expressions: from text to a tree. Recursion goes as deep as the pattern nests, at most
 * ACI_RX_DEPTH. Long sequences and long alternatives are lists. Called by aci_regex_new. */
#include <stdlib.h>

#include "text/regex_parse.h"

/* ---- nodes and sets ---- */
ac_status aci_rx_node_new(aci_rx_parser *p, aci_rx_kind kind, uint32_t child, uint32_t *out) {
  aci_rx_tree *t = p->t;
  if (t->n == t->cap) {
    if (t->n >= ACI_RX_NODES) return BAD(p, "the pattern is too large");
    const uint32_t cap = t->cap == 0 ? 64 : t->cap * 2;
    aci_rx_node *node = realloc(t->node, cap * sizeof *node);
    if (node == NULL) return NO_MEMORY(p);
    if (t->n == 0) memset(node, 0, sizeof *node), t->n = 1; /* number 0 is none */
    t->node = node;
    t->cap = cap;
  }
  t->node[t->n] = (aci_rx_node){.kind = (uint8_t)kind, .child = child};
  *out = t->n++;
  return AC_OK;
}

ac_status aci_rx_intern(aci_rx_parser *p, aci_rx_set *s, uint16_t *out) {
  aci_rx_tree *t = p->t;
  for (uint32_t i = 0; i < t->n_set; i++)
    if (t->set[i].n == s->n && t->set[i].edge == s->edge &&
        (s->n == 0 || memcmp(t->set[i].r, s->r, s->n * sizeof *s->r) == 0)) {
      free(s->r);
      *out = (uint16_t)i;
      return AC_OK;
    }
  if (t->n_set == t->cap_set) {
    const uint32_t cap = t->cap_set == 0 ? 16 : t->cap_set * 2;
    aci_rx_set *set = t->n_set >= ACI_RX_SETS ? NULL : realloc(t->set, cap * sizeof *set);
    if (set == NULL) {
      free(s->r);
      return t->n_set >= ACI_RX_SETS ? BAD(p, "too many different sets of characters")
                                     : NO_MEMORY(p);
    }
    t->set = set;
    t->cap_set = cap;
  }
  t->set[t->n_set] = *s;
  *out = (uint16_t)t->n_set++;
  return AC_OK;
}

ac_status aci_rx_set_node(aci_rx_parser *p, aci_rx_set *s, uint32_t *out) {
  if ((p->work += 1 + (uint64_t)s->n * (p->ignore_case ? 8 : 1)) > ACI_RX_WORK) {
    free(s->r);
    return BAD(p, "its sets of characters are too much work");
  }
  if (p->ignore_case && !aci_rx_close_case(s)) {
    free(s->r);
    return NO_MEMORY(p);
  }
  uint16_t number;
  AC_TRY(aci_rx_intern(p, s, &number));
  AC_TRY(aci_rx_node_new(p, ACI_RX_SET, 0, out));
  p->t->node[*out].set = number;
  return AC_OK;
}

/* ---- the grammar ---- */
static ac_status alternatives(aci_rx_parser *p, uint32_t *out);

/* Behind "(?": flags up to ")" or ":". */
static ac_status flags(aci_rx_parser *p, bool *rest) {
  bool on = true;
  for (;; p->at++) {
    switch (aci_rx_peek(p)) {
      case '-': on = false; break;
      case 'i': p->ignore_case = on; break;
      case 'm': p->dot_all = on; break;
      case 'x': p->extended = on; break;
      case ':': p->at++; return *rest = false, AC_OK;
      case ')': p->at++; return *rest = true, AC_OK;
      default: return BAD(p, "this kind of group is not supported");
    }
  }
}

/* A group. p->at is after "(". Lookaround, comments and (?i) in the middle of a group end here. The
 * flags that a group sets hold until its end. */
static ac_status group(aci_rx_parser *p, uint32_t *out) {
  if (++p->depth > ACI_RX_DEPTH) return BAD(p, "groups nest too deeply");
  const bool was_case = p->ignore_case, was_dot = p->dot_all, was_extended = p->extended;
  bool closed = false, atomic = false;
  if (aci_rx_take(p, "?")) {
    const bool behind = aci_rx_starts(p, "<=") || aci_rx_starts(p, "<!");
    if (behind || aci_rx_peek(p) == '=' || aci_rx_peek(p) == '!') {
      p->at += behind ? 2 : 1;
      const bool negated = p->s[p->at - 1] == '!';
      const bool was_behind = p->in_behind;
      p->in_behind = was_behind || behind;
      AC_TRY(alternatives(p, out));
      p->in_behind = was_behind;
      if (!aci_rx_take(p, ")")) return BAD(p, "( without )");
      p->depth--;
      return aci_rx_look_around(p, *out, behind, negated, out);
    }
    if (aci_rx_take(p, "#")) {
      const char *close = memchr(p->s + p->at, ')', p->n - p->at);
      if (close == NULL) return BAD(p, "( without )");
      p->at = (size_t)(close - p->s) + 1;
      p->depth--;
      return aci_rx_node_new(p, ACI_RX_EMPTY, 0, out);
    }
    if (aci_rx_take(p, ">")) {
      atomic = true;
    } else if (aci_rx_take(p, "<")) {
      const char *close = memchr(p->s + p->at, '>', p->n - p->at);
      if (close == NULL) return BAD(p, "(?< without >");
      p->at = (size_t)(close - p->s) + 1;
    } else {
      AC_TRY(flags(p, &closed)); /* closed: (?i) holds to the end of the group around */
    }
  }
  AC_TRY(alternatives(p, out));
  if (closed) {
    /* the surrounding group reads its own ")" */
  } else if (!aci_rx_take(p, ")")) {
    return BAD(p, "( without )");
  }
  p->ignore_case = was_case;
  p->dot_all = was_dot;
  p->extended = was_extended;
  p->depth--;
  return atomic ? aci_rx_atomic(p, *out, out) : AC_OK;
}

/* One atom: a group, an assertion, or a set of characters, whose node takes over s. */
static ac_status atom(aci_rx_parser *p, uint32_t *out) {
  aci_rx_set s = {0};
  uint32_t c = 0;
  bool is_set = false;
  const char head = aci_rx_peek(p);
  ac_status st = AC_OK;
  switch (head) {
    case '(': p->at++; return group(p, out);
    case '^': p->at++; return aci_rx_line_begin(p, out);
    case '$': p->at++; return aci_rx_line_end(p, out);
    case '*':
    case '+':
    case '?': return BAD(p, "nothing to repeat");
    case '[': {
      const bool negated = aci_rx_starts(p, "[^");
      uint32_t more = 0;
      st = aci_rx_class(p, &s);
      if (st == AC_OK && !negated) st = aci_rx_fold_class(p, &s, &more);
      if (st != AC_OK || more == 0) break;
      AC_TRY(aci_rx_set_node(p, &s, out));
      p->t->node[*out].next = more;
      return aci_rx_node_new(p, ACI_RX_ALT, *out, out);
    }
    case '.':
      p->at++;
      if (!p->dot_all) ADD(p, aci_rx_add(&s, '\n', '\n'));
      if (!aci_rx_complement(&s)) st = NO_MEMORY(p);
      break;
    case '\\':
      p->at++;
      if (!aci_rx_more(p)) return BAD(p, "a backslash at the end");
      if (aci_rx_take(p, "b")) return aci_rx_word_edge(p, false, out);
      if (aci_rx_take(p, "B")) return aci_rx_word_edge(p, true, out);
      if (aci_rx_take(p, "A")) return aci_rx_edge(p, true, NULL, true, out);
      if (aci_rx_take(p, "z")) return aci_rx_edge(p, false, NULL, true, out);
      if (aci_rx_take(p, "Z")) return aci_rx_text_end(p, out);
      if (aci_rx_take(p, "R")) return aci_rx_line_break(p, out);
      if (aci_rx_take(p, "O") || aci_rx_take(p, "N")) {
        if (p->s[p->at - 1] == 'N' && !aci_rx_add(&s, '\n', '\n')) st = NO_MEMORY(p);
        if (st == AC_OK && !aci_rx_complement(&s)) st = NO_MEMORY(p);
        break;
      }
      st = aci_rx_escape(p, &s, &c, &is_set, false);
      if (st == AC_OK && !is_set && !aci_rx_add(&s, c, c)) st = NO_MEMORY(p);
      break;
    default:
      c = aci_rx_next_char(p);
      if (!aci_rx_add(&s, c, c)) st = NO_MEMORY(p);
  }
  if (st != AC_OK) {
    free(s.r);
    return st;
  }
  return aci_rx_set_node(p, &s, out);
}

static bool count(aci_rx_parser *p, size_t *at, int32_t *v) {
  int64_t x = 0;
  const size_t from = *at;
  for (; *at < p->n && p->s[*at] >= '0' && p->s[*at] <= '9' && *at - from < 6; (*at)++)
    x = x * 10 + (p->s[*at] - '0');
  *v = (int32_t)x;
  return *at > from;
}

/* {n}, {n,}, {,m}, {n,m}. Anything else is literal. */
static bool braces(aci_rx_parser *p, int32_t *min, int32_t *max) {
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

/* (?x): skips blanks between parts, and the rest of a line after #. */
void aci_rx_skip_blanks(aci_rx_parser *p) {
  while (p->extended && aci_rx_more(p) && strchr(" \t\n\v\f\r#", aci_rx_peek(p)) != NULL) {
    const char *end =
        aci_rx_peek(p) == '#' ? memchr(p->s + p->at, '\n', p->n - p->at) : p->s + p->at;
    p->at = end == NULL ? p->n : (size_t)(end - p->s) + 1;
  }
}

static ac_status piece(aci_rx_parser *p, uint32_t *out) {
  AC_TRY(aci_rx_fold_text(p, out));
  if (*out == 0) AC_TRY(atom(p, out));
  for (int stacked = 0; aci_rx_skip_blanks(p), aci_rx_more(p); stacked++) {
    int32_t min, max;
    bool counted = false;
    if (aci_rx_take(p, "*")) min = 0, max = -1;
    else if (aci_rx_take(p, "+")) min = 1, max = -1;
    else if (aci_rx_take(p, "?")) min = 0, max = 1;
    else if (aci_rx_peek(p) == '{' && braces(p, &min, &max)) counted = true;
    else break;
    if (min > ACI_RX_REPEAT || max > ACI_RX_REPEAT) return BAD(p, "a repetition of more than 1000");
    if (max >= 0 && min > max) return BAD(p, "a repetition whose limits are in the wrong order");
    if (stacked == 16) return BAD(p, "too many repetitions of repetitions");
    int greed = ACI_RX_GREEDY;
    bool possessive = false;
    if (aci_rx_peek(p) == '?' && !(counted && min == max)) greed = ACI_RX_LAZY, p->at++;
    else if (!counted && aci_rx_peek(p) == '+') possessive = true, p->at++;
    AC_TRY(aci_rx_node_new(p, ACI_RX_REPEAT_N, *out, out));
    aci_rx_node *n = &p->t->node[*out];
    n->min = min;
    n->max = max;
    n->greed = (uint8_t)greed;
    if (possessive) AC_TRY(aci_rx_atomic(p, *out, out));
  }
  return AC_OK;
}

static ac_status sequence(aci_rx_parser *p, uint32_t *out) {
  uint32_t first = 0, last = 0, x;
  while (aci_rx_skip_blanks(p), aci_rx_more(p) && aci_rx_peek(p) != '|' && aci_rx_peek(p) != ')') {
    AC_TRY(piece(p, &x));
    if (last == 0) first = x;
    else p->t->node[last].next = x;
    last = x;
  }
  if (first == last && first != 0) return *out = first, AC_OK;
  return aci_rx_node_new(p, first == 0 ? ACI_RX_EMPTY : ACI_RX_CAT, first, out);
}

static ac_status alternatives(aci_rx_parser *p, uint32_t *out) {
  uint32_t first, last, x;
  AC_TRY(sequence(p, &first));
  if (aci_rx_peek(p) != '|' || !aci_rx_more(p)) return *out = first, AC_OK;
  for (last = first; aci_rx_take(p, "|"); last = x) {
    AC_TRY(sequence(p, &x));
    p->t->node[last].next = x;
  }
  return aci_rx_node_new(p, ACI_RX_ALT, first, out);
}

ac_status aci_rx_parse(const char *pattern, size_t n, aci_rx_tree *t, ac_err *e) {
  aci_rx_parser p = {.s = pattern, .n = n, .t = t, .e = e};
  memset(t, 0, sizeof *t);
  if (n > ACI_REGEX_BYTES)
    return AC_FAIL(e, PARSE, "regular expression: %zu bytes are more than %d", n, ACI_REGEX_BYTES);
  if (!aci_utf8_valid(pattern, n)) return AC_FAIL(e, PARSE, "regular expression: not valid UTF-8");
  AC_TRY(aci_uni_open(e));
  AC_TRY(alternatives(&p, &t->root));
  if (aci_rx_more(&p)) return BAD(&p, ") without (");
  return AC_OK;
}

void aci_rx_tree_fini(aci_rx_tree *t) {
  for (uint32_t i = 0; i < t->n_set; i++) free(t->set[i].r);
  free(t->set);
  free(t->node);
}
