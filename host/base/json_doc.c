/* The JSON document (json.h): nodes in one array in the order of the text, strings in one buffer,
 * hash tables for large objects. 16 bytes a node: `[1,1,...]`, the worst case, costs 8 bytes per
 * byte of input. Called by configs, indexes, tokenizers and the bindings. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

enum { INDEXED = 9 }; /* objects with fewer members are searched */

struct aci_json_doc {
  aci_json *nodes;
  char *text;
  uint32_t *index; /* tables of node offsets from their object. [0] is unused */
  uint64_t hash_key;
};

typedef struct builder {
  aci_json_doc *d;
  uint32_t n, cap;
  size_t n_text;
  uint32_t *open; /* nodes of the containers around */
  int depth;
  size_t n_index;
} builder;

static ac_status node_add(builder *b, aci_json v, ac_err *e) {
  if (b->n == b->cap) {
    size_t cap = b->cap == 0 ? 64 : (size_t)b->cap + b->cap / 2;
    aci_json *nodes = cap > UINT32_MAX ? NULL : realloc(b->d->nodes, cap * sizeof *nodes);
    if (nodes == NULL) return AC_FAIL(e, OOM, "JSON: out of memory for %zu values", cap);
    b->d->nodes = nodes;
    b->cap = (uint32_t)cap;
  }
  b->d->nodes[b->n++] = v;
  return AC_OK;
}

static size_t table_size(uint32_t members) {
  size_t n = 16;
  while (n < (size_t)members * 2) n *= 2;
  return n;
}

/* Appends one event's value to the nodes. A container is open until its end event, which fills in
 * its span (how many nodes it takes, itself included) and for large objects the place of its hash
 * table, which fill_table makes when all is read. */
static ac_status event(void *user, const aci_json_event *ev, ac_err *e) {
  builder *b = user;
  aci_json v = {.type = (uint8_t)ev->type};
  switch (ev->type) {
    case ACI_JSON_ARRAY_END:
    case ACI_JSON_OBJECT_END: {
      uint32_t at = b->open[--b->depth];
      aci_json *c = &b->d->nodes[at];
      c->u.c.span = b->n - at;
      if (c->type == ACI_JSON_OBJECT && c->len >= INDEXED) {
        c->u.c.index = (uint32_t)(b->n_index + 1);
        b->n_index += table_size(c->len);
        if (b->n_index >= UINT32_MAX) return AC_FAIL(e, OOM, "JSON: too many keys");
      }
      return AC_OK;
    }
    case ACI_JSON_NULL: break;
    case ACI_JSON_BOOL: v.u.b = ev->b; break;
    case ACI_JSON_INT: v.u.i = ev->i; break;
    case ACI_JSON_DOUBLE:
      v.u.f = ev->f;
      v.len = (uint32_t)ev->offset;
      break;
    case ACI_JSON_STRING:
    case ACI_JSON_KEY: {
      /* unescaped and with its NUL it is shorter than it was with its quotes, and a number as text
       * is as long as it was with what separates it: the buffer holds all of them */
      char *s = b->d->text + b->n_text;
      if (ev->len > 0) memcpy(s, ev->text, ev->len);
      s[ev->len] = '\0';
      b->n_text += ev->len + 1;
      v.u.s = s;
      v.len = (uint32_t)ev->len;
      break;
    }
    case ACI_JSON_ARRAY:
    case ACI_JSON_OBJECT: v.u.c.span = 1; break;
  }
  /* members are counted by their keys, or in arrays by themselves */
  if (b->depth > 0 &&
      (ev->type == ACI_JSON_KEY || b->d->nodes[b->open[b->depth - 1]].type == ACI_JSON_ARRAY))
    b->d->nodes[b->open[b->depth - 1]].len++;
  if (ev->type == ACI_JSON_ARRAY || ev->type == ACI_JSON_OBJECT) b->open[b->depth++] = b->n;
  return node_add(b, v, e);
}

static void fill_table(aci_json_doc *d, const aci_json *o) {
  size_t mask = table_size(o->len) - 1;
  uint32_t *t = d->index + o->u.c.index;
  for (const aci_json *k = aci_json_first(o), *end = aci_json_after(o); k != end;
       k = aci_json_after(k + 1)) {
    size_t i = aci_hash_bytes(d->hash_key, k->u.s, k->len) & mask;
    while (t[i] != 0) i = (i + 1) & mask;
    t[i] = (uint32_t)(k - o);
  }
}

ac_status aci_json_parse(const char *text, size_t n, const aci_json_opts *opts, aci_json_doc **out,
                         ac_err *e) {
  *out = NULL;
  aci_json_opts o = opts == NULL ? ACI_JSON_CONFIG : *opts;
  if (n > o.max_bytes || n >= UINT32_MAX)
    return AC_FAIL(e, PARSE, "JSON: %zu bytes, more than the %zu allowed", n, o.max_bytes);
  builder b = {.d = calloc(1, sizeof *b.d),
               .open = malloc(((size_t)o.max_depth + 1) * sizeof *b.open)};
  ac_status st = AC_OK;
  const bool strings = n > 0 && (o.records || memchr(text, '"', n) != NULL);
  if (b.d == NULL || b.open == NULL || (strings && (b.d->text = malloc(n + 1)) == NULL)) {
    st = AC_FAIL(e, OOM, "JSON: out of memory");
    goto done;
  }
  AC_GOTO(done, st, aci_json_read(text, n, &o, event, &b, e));
  aci_json *nodes = realloc(b.d->nodes, b.n * sizeof *nodes); /* return spare capacity */
  if (nodes != NULL) b.d->nodes = nodes;
  if (b.n_index > 0) {
    b.d->hash_key = aci_hash_key();
    b.d->index = calloc(b.n_index + 1, sizeof *b.d->index);
    if (b.d->index == NULL) {
      st = AC_FAIL(e, OOM, "JSON: out of memory");
      goto done;
    }
    for (uint32_t i = 0; i < b.n; i++)
      if (b.d->nodes[i].type == ACI_JSON_OBJECT && b.d->nodes[i].u.c.index != 0)
        fill_table(b.d, &b.d->nodes[i]);
  }
  *out = b.d;
  b.d = NULL;
done:
  free(b.open);
  aci_json_free(b.d);
  return st;
}

void aci_json_free(aci_json_doc *d) {
  if (d == NULL) return;
  free(d->nodes);
  free(d->text);
  free(d->index);
  free(d);
}

const aci_json *aci_json_root(const aci_json_doc *d) { return d->nodes; }

static bool is_key(const aci_json *k, const char *key, size_t n) {
  return k->len == n && memcmp(k->u.s, key, n) == 0;
}

const aci_json *aci_json_get(const aci_json_doc *d, const aci_json *o, const char *key) {
  if (o == NULL || o->type != ACI_JSON_OBJECT) return NULL;
  size_t n = strlen(key);
  if (o->u.c.index == 0) {
    for (const aci_json *k = aci_json_first(o), *end = aci_json_after(o); k != end;
         k = aci_json_after(k + 1))
      if (is_key(k, key, n)) return k + 1;
    return NULL;
  }
  size_t mask = table_size(o->len) - 1;
  const uint32_t *t = d->index + o->u.c.index;
  for (size_t i = aci_hash_bytes(d->hash_key, key, n) & mask; t[i] != 0; i = (i + 1) & mask)
    if (is_key(o + t[i], key, n)) return o + t[i] + 1;
  return NULL;
}
