/* Lua's patterns (section 6.4.1 of its manual), matched by a backtracking walk that looks at the
 * host's flag every few thousand steps: a pattern such as a*a*a*b can take longer than the universe
 * exists, and Lua's own matcher cannot be stopped. Results, limits and messages are the same as
 * Lua's. tests/bindings/strings_test.lua compares both.
 *
 * The grammar, as the functions below cut it: a pattern is a list of items. An item is a group mark
 * "(" or ")", "$" at the end, %b, %f, %1 to %9, or a single (one character, a class or a set) with
 * an optional suffix * + - ?. */
#include "host_match.h"

#include <ctype.h>
#include <string.h>

#define BYTE(p) ((unsigned char)*(p))

void lac_match_init(lac_match *m, lua_State *L, ac_host *h, const char *text, size_t n_text,
                    const char *pattern, size_t n_pattern) {
  *m = (lac_match){.L = L,
                   .h = h,
                   .text = text,
                   .end = text + n_text,
                   .pattern_end = pattern + n_pattern,
                   .depth = LAC_MATCH_DEPTH};
}

/* ---- singles ---- */

/* The end of the single that begins at p. */
static const char *single_end(lac_match *m, const char *p) {
  const char first = *p++;
  if (first == '%') {
    if (p == m->pattern_end) luaL_error(m->L, "malformed pattern (ends with '%%')");
    return p + 1;
  }
  if (first != '[') return p;
  if (p < m->pattern_end && *p == '^') p++;
  do { /* a ] in the first place stands for itself */
    if (p == m->pattern_end) luaL_error(m->L, "malformed pattern (missing ']')");
    if (*p++ == '%' && p < m->pattern_end) p++;
  } while (p == m->pattern_end || *p != ']');
  return p + 1;
}

/* Whether c belongs to the class %name. A name that is no letter stands for itself. */
static bool in_class(int c, int name) {
  bool in;
  switch (tolower(name)) {
    case 'a': in = isalpha(c); break;
    case 'c': in = iscntrl(c); break;
    case 'd': in = isdigit(c); break;
    case 'g': in = isgraph(c); break;
    case 'l': in = islower(c); break;
    case 'p': in = ispunct(c); break;
    case 's': in = isspace(c); break;
    case 'u': in = isupper(c); break;
    case 'w': in = isalnum(c); break;
    case 'x': in = isxdigit(c); break;
    case 'z': in = c == 0; break; /* of Lua 5.1 */
    default: return c == name;
  }
  return isupper(name) ? !in : in;
}

/* A set from its [ to its ], which `last` points to. */
static bool in_set(int c, const char *p, const char *last) {
  const bool wanted = p[1] != '^';
  if (!wanted) p++;
  for (p++; p < last; p++) {
    if (*p == '%') {
      p++;
      if (in_class(c, BYTE(p))) return wanted;
    } else if (p + 2 < last && p[1] == '-') {
      if (BYTE(p) <= c && c <= BYTE(p + 2)) return wanted;
      p += 2;
    } else if (BYTE(p) == c) {
      return wanted;
    }
  }
  return !wanted;
}

/* Whether the character at s fits the single from p to e. */
static bool fits(const lac_match *m, const char *s, const char *p, const char *e) {
  if (s >= m->end) return false;
  switch (*p) {
    case '.': return true;
    case '%': return in_class(BYTE(s), BYTE(p + 1));
    case '[': return in_set(BYTE(s), p, e - 1);
    default: return *p == *s;
  }
}

/* ---- items that repeat ---- */

static const char *longest(lac_match *m, const char *s, const char *p, const char *e) {
  ptrdiff_t n = 0;
  while (fits(m, s + n, p, e)) {
    n++;
    lac_match_step(m);
  }
  for (; n >= 0; n--) {
    const char *found = lac_match_at(m, s + n, e + 1);
    if (found != NULL) return found;
  }
  return NULL;
}

static const char *shortest(lac_match *m, const char *s, const char *p, const char *e) {
  while (true) {
    const char *found = lac_match_at(m, s, e + 1);
    if (found != NULL) return found;
    if (!fits(m, s, p, e)) return NULL;
    s++;
  }
}

/* ---- captures ---- */

static const char *open_capture(lac_match *m, const char *s, const char *p, ptrdiff_t kind) {
  if (m->n_captures >= LAC_CAPTURES) luaL_error(m->L, "too many captures");
  m->capture[m->n_captures].at = s;
  m->capture[m->n_captures].length = kind;
  m->n_captures++;
  const char *found = lac_match_at(m, s, p);
  if (found == NULL) m->n_captures--;
  return found;
}

static const char *close_capture(lac_match *m, const char *s, const char *p) {
  int i = m->n_captures - 1;
  while (i >= 0 && m->capture[i].length != LAC_CAPTURE_OPEN) i--;
  if (i < 0) luaL_error(m->L, "invalid pattern capture");
  m->capture[i].length = s - m->capture[i].at;
  const char *found = lac_match_at(m, s, p);
  if (found == NULL) m->capture[i].length = LAC_CAPTURE_OPEN;
  return found;
}

/* %1 to %9: the text of that capture once more. Returns its end, or NULL. */
static const char *repeated_capture(lac_match *m, const char *s, int digit) {
  const int i = digit - '1';
  if (i < 0 || i >= m->n_captures || m->capture[i].length == LAC_CAPTURE_OPEN)
    luaL_error(m->L, "invalid capture index %%%d", i + 1);
  const size_t n = (size_t)m->capture[i].length;
  if ((size_t)(m->end - s) < n || memcmp(m->capture[i].at, s, n) != 0) return NULL;
  return s + n;
}

/* %bxy: from an x to the y that balances it. p: at x. */
static const char *balanced(lac_match *m, const char *s, const char *p) {
  if (p >= m->pattern_end - 1) luaL_error(m->L, "malformed pattern (missing arguments to '%%b')");
  if (s >= m->end || *s != p[0]) return NULL;
  int open = 1;
  for (s++; s < m->end; s++) {
    lac_match_step(m);
    if (*s == p[1]) {
      if (--open == 0) return s + 1;
    } else if (*s == p[0]) {
      open++;
    }
  }
  return NULL;
}

/* %f[set]: between a character that is not in the set and one that is. p: at [. */
static bool at_frontier(lac_match *m, const char *s, const char *p, const char **after) {
  if (p >= m->pattern_end || *p != '[') luaL_error(m->L, "missing '[' after '%%f' in pattern");
  *after = single_end(m, p);
  const int before = s == m->text ? 0 : BYTE(s - 1), here = s < m->end ? BYTE(s) : 0;
  return !in_set(before, p, *after - 1) && in_set(here, p, *after - 1);
}

/* ---- the walk ---- */

static const char *walk(lac_match *m, const char *s, const char *p) {
  while (p != m->pattern_end) {
    lac_match_step(m);
    const char *after;
    if (*p == '(') {
      const bool position = p + 1 < m->pattern_end && p[1] == ')';
      return open_capture(m, s, p + (position ? 2 : 1),
                          position ? LAC_CAPTURE_POSITION : LAC_CAPTURE_OPEN);
    }
    if (*p == ')') return close_capture(m, s, p + 1);
    if (*p == '$' && p + 1 == m->pattern_end) return s == m->end ? s : NULL;
    if (*p == '%' && p + 1 < m->pattern_end) {
      const char kind = p[1];
      if (kind == 'b') {
        s = balanced(m, s, p + 2);
        if (s == NULL) return NULL;
        p += 4;
        continue;
      }
      if (kind == 'f') {
        if (!at_frontier(m, s, p + 2, &after)) return NULL;
        p = after;
        continue;
      }
      if (isdigit((unsigned char)kind)) {
        s = repeated_capture(m, s, kind);
        if (s == NULL) return NULL;
        p += 2;
        continue;
      }
    }
    const char *e = single_end(m, p);
    const char suffix = e < m->pattern_end ? *e : 0;
    const bool one = fits(m, s, p, e), may_lack = suffix == '*' || suffix == '-' || suffix == '?';
    if (!one && may_lack) {
      p = e + 1;
      continue;
    }
    if (!one) return NULL;
    if (suffix == '*') return longest(m, s, p, e);
    if (suffix == '+') return longest(m, s + 1, p, e);
    if (suffix == '-') return shortest(m, s, p, e);
    if (suffix == '?') {
      const char *found = lac_match_at(m, s + 1, e + 1);
      if (found != NULL) return found;
      p = e + 1;
      continue;
    }
    s++;
    p = e;
  }
  return s;
}

const char *lac_match_at(lac_match *m, const char *s, const char *pattern) {
  if (m->depth-- == 0) luaL_error(m->L, "pattern too complex");
  s = walk(m, s, pattern);
  m->depth++;
  return s;
}

void lac_match_push(lac_match *m, int i, const char *s, const char *e) {
  if (i >= m->n_captures) {
    if (i != 0) luaL_error(m->L, "invalid capture index %%%d", i + 1);
    lua_pushlstring(m->L, s, (size_t)(e - s));
  } else if (m->capture[i].length == LAC_CAPTURE_POSITION) {
    lua_pushinteger(m->L, m->capture[i].at - m->text + 1);
  } else {
    if (m->capture[i].length == LAC_CAPTURE_OPEN) luaL_error(m->L, "unfinished capture");
    lua_pushlstring(m->L, m->capture[i].at, (size_t)m->capture[i].length);
  }
}

int lac_match_push_all(lac_match *m, const char *s, const char *e) {
  const int n = m->n_captures == 0 && s != NULL ? 1 : m->n_captures;
  luaL_checkstack(m->L, n, "too many captures");
  for (int i = 0; i < n; i++) lac_match_push(m, i, s, e);
  return n;
}
