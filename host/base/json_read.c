/* The JSON event reader (json.h): one pass over a buffer, an explicit stack, no recursion. Called
 * by json_doc.c and by readers of large files that keep no document (safetensors). */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/number.h"

/* characters. Longer ones are attacks, and cost strtod more than linear time */
enum { NUMBER_MOST = 1000 };
#define NONE UINT32_MAX

/* Keys of the objects that are open now. Entries are added and dropped in stack order, so the entry
 * to drop is always the first of its chain. */
typedef struct key_entry {
  uint32_t hash, next; /* next in the chain: index, or NONE */
  size_t offset, len;  /* into `bytes` */
} key_entry;

typedef struct frame {
  bool object;
  uint32_t first_key; /* entries from here on are this object's */
} frame;

typedef struct reader {
  const unsigned char *s, *p, *end;
  aci_json_opts opts;
  aci_json_fn fn;
  void *user;
  ac_err *e;
  aci_strbuf text; /* the string or number at hand when it has to be copied */
  frame *stack;
  int depth;
  key_entry *keys;
  uint32_t n_keys, cap_keys, n_chains, *chains;
  aci_strbuf bytes;
  uint64_t hash_key;
} reader;

/* ---- errors ---- */
static ac_status refuse(reader *r, int kind, const unsigned char *at, const char *what) {
  size_t line = 1, col = 1;
  if (r->opts.fault != NULL) {
    r->opts.fault->kind = kind;
    r->opts.fault->offset = (size_t)(at - r->s);
    snprintf(r->opts.fault->what, sizeof r->opts.fault->what, "%s", what);
  }
  for (const unsigned char *p = r->s; p < at; p++) {
    if (*p == '\n') line++, col = 1;
    else if ((*p & 0xC0) != 0x80) col++; /* columns count characters */
  }
  return AC_FAIL(r->e, PARSE, "JSON: %s at line %zu, column %zu (byte %zu)", what, line, col,
                 (size_t)(at - r->s));
}

static ac_status fault_at(reader *r, const unsigned char *at, const char *what) {
  return refuse(r, ACI_JSON_SYNTAX, at, what);
}

static ac_status fault(reader *r, const char *what) {
  return fault_at(r, r->p, r->p == r->end ? "the text ends too early" : what);
}

static ac_status no_memory(reader *r) { return AC_FAIL(r->e, OOM, "JSON: out of memory"); }

/* ---- keys ---- */
static bool keys_grow(reader *r) {
  if (r->n_keys < r->cap_keys) return true;
  uint32_t cap = r->cap_keys == 0 ? 64 : r->cap_keys * 2;
  if (cap > UINT32_MAX / 2) return false;
  key_entry *keys = realloc(r->keys, cap * sizeof *keys);
  if (keys == NULL) return false;
  r->keys = keys;
  r->cap_keys = cap;
  uint32_t *chains = realloc(r->chains, cap * sizeof *chains);
  if (chains == NULL) return false;
  r->chains = chains;
  r->n_chains = cap;
  for (uint32_t i = 0; i < cap; i++) chains[i] = NONE;
  /* in the order of arrival, which keeps the newest first */
  for (uint32_t i = 0; i < r->n_keys; i++) {
    key_entry *k = &keys[i];
    k->next = chains[k->hash & (cap - 1)];
    chains[k->hash & (cap - 1)] = i;
  }
  return true;
}

static ac_status key_add(reader *r, const char *s, size_t n, const unsigned char *at) {
  if (!keys_grow(r)) return no_memory(r);
  uint32_t hash = (uint32_t)aci_hash_bytes(r->hash_key, s, n);
  uint32_t *chain = &r->chains[hash & (r->n_chains - 1)], first = r->stack[r->depth - 1].first_key;
  /* entries before `first` are of outer objects */
  for (uint32_t i = *chain; i != NONE && i >= first; i = r->keys[i].next) {
    const key_entry *k = &r->keys[i];
    if (k->hash == hash && k->len == n && (n == 0 || memcmp(r->bytes.s + k->offset, s, n) == 0)) {
      char what[120];
      int shown = n > 60 ? 60 : (int)n;
      while (shown > 0 && shown < (int)n && ((unsigned char)s[shown] & 0xC0) == 0x80) shown--;
      char name[64];
      for (int c = 0; c < shown; c++) name[c] = (unsigned char)s[c] < ' ' ? '?' : s[c];
      snprintf(what, sizeof what, "duplicate key \"%.*s%s\"", shown, name,
               shown < (int)n ? "..." : "");
      return refuse(r, ACI_JSON_REPEATED_KEY, at, what);
    }
  }
  r->keys[r->n_keys] = (key_entry){.hash = hash, .next = *chain, .offset = r->bytes.len, .len = n};
  *chain = r->n_keys++;
  aci_strbuf_add(&r->bytes, s, n);
  return r->bytes.failed ? no_memory(r) : AC_OK;
}

static void keys_drop(reader *r, uint32_t down_to) {
  if (r->n_keys == down_to) return;
  r->bytes.len = r->keys[down_to].offset;
  while (r->n_keys > down_to) {
    const key_entry *k = &r->keys[--r->n_keys];
    r->chains[k->hash & (r->n_chains - 1)] = k->next;
  }
}

/* ---- tokens ---- */
static void skip_blanks(reader *r) {
  while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\r' || *r->p == '\t')) r->p++;
}

static int hex4(const unsigned char *p, const unsigned char *end) {
  if (end - p < 4) return -1;
  int v = 0;
  for (int i = 0; i < 4; i++) {
    int c = p[i], d = c >= '0' && c <= '9'                 ? c - '0'
                      : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                           : -1;
    if (d < 0) return -1;
    v = v << 4 | d;
  }
  return v;
}

static void add_code_point(aci_strbuf *b, uint32_t c) {
  char u[4];
  size_t n;
  if (c < 0x80) {
    u[0] = (char)c, n = 1;
  } else if (c < 0x800) {
    u[0] = (char)(0xC0 | c >> 6), u[1] = (char)(0x80 | (c & 63)), n = 2;
  } else if (c < 0x10000) {
    u[0] = (char)(0xE0 | c >> 12), u[1] = (char)(0x80 | (c >> 6 & 63)),
    u[2] = (char)(0x80 | (c & 63)), n = 3;
  } else {
    u[0] = (char)(0xF0 | c >> 18), u[1] = (char)(0x80 | (c >> 12 & 63)),
    u[2] = (char)(0x80 | (c >> 6 & 63));
    u[3] = (char)(0x80 | (c & 63)), n = 4;
  }
  aci_strbuf_add(b, u, n);
}

/* At the backslash. */
static ac_status escape(reader *r) {
  const unsigned char *at = r->p++;
  if (r->p == r->end) return fault(r, "");
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  unsigned char c = *r->p++;
  const char *f = c == '\0' ? NULL : strchr(from, c);
  if (f != NULL) {
    aci_strbuf_putc(&r->text, to[f - from]);
    return AC_OK;
  }
  if (c != 'u') return fault_at(r, at, "unknown escape");
  int hi = hex4(r->p, r->end);
  if (hi < 0) return fault_at(r, at, "\\u without four hex digits");
  r->p += 4;
  uint32_t code = (uint32_t)hi;
  if (hi >= 0xD800 && hi <= 0xDFFF) {
    int lo = hi <= 0xDBFF && r->end - r->p >= 2 && r->p[0] == '\\' && r->p[1] == 'u'
                 ? hex4(r->p + 2, r->end)
                 : -1;
    if (lo < 0xDC00 || lo > 0xDFFF) return fault_at(r, at, "lone surrogate");
    r->p += 6;
    code = 0x10000 + ((uint32_t)(hi - 0xD800) << 10) + (uint32_t)(lo - 0xDC00);
  }
  add_code_point(&r->text, code);
  return AC_OK;
}

/* At the opening quote. The text is left in *out, in place when nothing was escaped. */
static ac_status string(reader *r, const char **out, size_t *len) {
  const unsigned char *run = ++r->p; /* bytes since here are still to be copied */
  bool copied = false;
  for (;;) {
    if (r->p == r->end) return fault(r, "");
    unsigned char c = *r->p;
    if (c == '"') break;
    if (c == '\\') {
      if (!copied) r->text.len = 0;
      copied = true;
      aci_strbuf_add(&r->text, (const char *)run, (size_t)(r->p - run));
      AC_TRY(escape(r));
      run = r->p;
    } else if (c < 0x20) {
      return fault(r, "control character in a string");
    } else if (c < 0x80) {
      r->p++;
    } else {
      int n = aci_utf8_length(r->p, (size_t)(r->end - r->p));
      if (n == 0) return fault(r, "bad UTF-8");
      r->p += n;
    }
  }
  *out = (const char *)run;
  *len = (size_t)(r->p - run);
  if (copied) {
    aci_strbuf_add(&r->text, (const char *)run, *len);
    if (r->text.failed) return no_memory(r);
    *out = r->text.s;
    *len = r->text.len;
  }
  r->p++;
  return AC_OK;
}

static bool digits(reader *r) {
  const unsigned char *from = r->p;
  while (r->p < r->end && *r->p >= '0' && *r->p <= '9') r->p++;
  return r->p > from;
}

static ac_status number(reader *r, aci_json_event *ev) {
  const unsigned char *at = r->p;
  bool integer = true;
  if (*r->p == '-') r->p++;
  if (r->p < r->end && *r->p == '0') r->p++;
  else if (!digits(r)) return fault(r, "expected a digit");
  if (r->p < r->end && *r->p >= '0' && *r->p <= '9')
    return refuse(r, ACI_JSON_BAD_NUMBER, at, "leading zero");
  if (r->p < r->end && *r->p == '.') {
    integer = false;
    r->p++;
    if (!digits(r)) return fault(r, "expected a digit after the point");
  }
  if (r->p < r->end && (*r->p | 32) == 'e') {
    integer = false;
    r->p++;
    if (r->p < r->end && (*r->p == '+' || *r->p == '-')) r->p++;
    if (!digits(r)) return fault(r, "expected a digit in the exponent");
  }
  size_t n = (size_t)(r->p - at);
  if (n > NUMBER_MOST)
    return refuse(r, ACI_JSON_BAD_NUMBER, at, "number of more than 1000 characters");
  char copy[NUMBER_MOST + 1]; /* terminated, unlike the input */
  memcpy(copy, at, n);
  copy[n] = '\0';
  ev->text = (const char *)at;
  ev->len = n;
  if (integer) {
    errno = 0;
    ev->i = strtoll(copy, NULL, 10);
    bool fits = errno != ERANGE;
    if (!fits && r->opts.records) {
      ev->type = ACI_JSON_STRING;
      return AC_OK;
    }
    if (!fits && !r->opts.wide_integers) {
      return refuse(r, ACI_JSON_BAD_NUMBER, at, "integer does not fit 64 bits");
    }
    ev->type = fits ? ACI_JSON_INT : ACI_JSON_DOUBLE;
    ev->f = fits ? (double)ev->i : aci_strtod(copy, NULL);
  } else {
    ev->type = ACI_JSON_DOUBLE;
    ev->f = aci_strtod(copy, NULL);
  }
  return isinf(ev->f) && !r->opts.records
             ? refuse(r, ACI_JSON_BAD_NUMBER, at, "number is too large for a double")
             : AC_OK;
}

static bool word(reader *r, const char *w, size_t n) {
  if ((size_t)(r->end - r->p) < n || memcmp(r->p, w, n) != 0) return false;
  r->p += n;
  return true;
}

/* ---- structure ---- */
static ac_status emit(reader *r, aci_json_event *ev) {
  ev->depth = r->depth;
  return r->fn(r->user, ev, r->e);
}

static ac_status open_container(reader *r, bool object) {
  aci_json_event ev = {.type = object ? ACI_JSON_OBJECT : ACI_JSON_ARRAY,
                       .offset = (size_t)(r->p - r->s)};
  if (r->depth == r->opts.max_depth) {
    char what[64];
    snprintf(what, sizeof what, "nested deeper than %d", r->opts.max_depth);
    return refuse(r, ACI_JSON_LIMIT, r->p, what);
  }
  AC_TRY(emit(r, &ev));
  r->p++;
  r->stack[r->depth++] = (frame){.object = object, .first_key = r->n_keys};
  return AC_OK;
}

static ac_status close_container(reader *r) {
  bool object = r->stack[r->depth - 1].object;
  aci_json_event ev = {.type = object ? ACI_JSON_OBJECT_END : ACI_JSON_ARRAY_END,
                       .offset = (size_t)(r->p - r->s)};
  keys_drop(r, r->stack[r->depth - 1].first_key);
  r->depth--;
  r->p++;
  return emit(r, &ev);
}

/* One scalar, or the opening of a container. */
static ac_status value(reader *r) {
  aci_json_event ev = {.offset = (size_t)(r->p - r->s)};
  if (r->p == r->end) return fault(r, "");
  switch (*r->p) {
    case '{': return open_container(r, true);
    case '[': return open_container(r, false);
    case '"':
      ev.type = ACI_JSON_STRING;
      AC_TRY(string(r, &ev.text, &ev.len));
      break;
    case 't':
    case 'f':
      ev.type = ACI_JSON_BOOL;
      ev.b = *r->p == 't';
      if (!(ev.b ? word(r, "true", 4) : word(r, "false", 5)))
        return fault(r, "expected true or false");
      break;
    case 'n':
      if (!word(r, "null", 4)) return fault(r, "expected null");
      break;
    default:
      if (*r->p != '-' && (*r->p < '0' || *r->p > '9')) return fault(r, "expected a value");
      AC_TRY(number(r, &ev));
  }
  return emit(r, &ev);
}

/* "key" and the colon. The value follows. */
static ac_status key(reader *r) {
  if (r->p == r->end || *r->p != '"') return fault(r, "expected a key in quotes");
  aci_json_event ev = {.type = ACI_JSON_KEY, .offset = (size_t)(r->p - r->s)};
  AC_TRY(string(r, &ev.text, &ev.len));
  AC_TRY(key_add(r, ev.text, ev.len, r->s + ev.offset));
  AC_TRY(emit(r, &ev));
  skip_blanks(r);
  if (r->p == r->end || *r->p != ':') return fault(r, "expected ':'");
  r->p++;
  skip_blanks(r);
  return AC_OK;
}

static ac_status text(reader *r) {
  skip_blanks(r);
  if (r->end - r->p >= 3 && memcmp(r->p, "\xEF\xBB\xBF", 3) == 0)
    return fault(r, "byte order mark");
  AC_TRY(value(r));
  bool fresh = true; /* the innermost container was just opened */
  while (r->depth > 0) {
    int depth = r->depth;
    bool object = r->stack[depth - 1].object;
    skip_blanks(r);
    if (r->p < r->end && *r->p == (object ? '}' : ']')) {
      AC_TRY(close_container(r));
      fresh = false;
      continue;
    }
    if (!fresh) {
      if (r->p == r->end || *r->p != ',')
        return fault(r, object ? "expected ',' or '}'" : "expected ',' or ']'");
      r->p++;
      skip_blanks(r);
    }
    if (object) AC_TRY(key(r));
    AC_TRY(value(r));
    fresh = r->depth > depth;
  }
  skip_blanks(r);
  return r->p < r->end ? fault(r, "more text after the value") : AC_OK;
}

ac_status aci_json_read(const char *s, size_t n, const aci_json_opts *opts, aci_json_fn fn,
                        void *user, ac_err *e) {
  reader r = {.opts = opts == NULL ? ACI_JSON_CONFIG : *opts, .fn = fn, .user = user, .e = e};
  r.s = r.p = (const unsigned char *)(n == 0 ? "" : s);
  r.end = r.s + n;
  if (r.opts.fault != NULL) *r.opts.fault = (aci_json_fault){.kind = ACI_JSON_NO_FAULT};
  if (n > r.opts.max_bytes)
    return AC_FAIL(e, PARSE, "JSON: %zu bytes, more than the %zu allowed", n, r.opts.max_bytes);
  r.hash_key = aci_hash_key();
  r.stack = malloc(((size_t)r.opts.max_depth + 1) * sizeof *r.stack);
  ac_status st = r.stack == NULL ? no_memory(&r) : text(&r);
  aci_strbuf_fini(&r.text);
  aci_strbuf_fini(&r.bytes);
  free(r.stack);
  free(r.keys);
  free(r.chains);
  return st;
}
