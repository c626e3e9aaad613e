/* The reader of base/yaml.h. libyaml is loaded on first use, since few runs read YAML. Only its
 * header is needed to build. */
#include "base/yaml.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h" /* aci_hash_bytes */
#include "base/library.h"
#include "base/strbuf.h"

#ifdef ACCEL_HAVE_YAML
#include <yaml.h>

typedef struct library {
  int (*initialize)(yaml_parser_t *);
  void (*set_input_string)(yaml_parser_t *, const unsigned char *, size_t);
  void (*set_encoding)(yaml_parser_t *, yaml_encoding_t);
  int (*parse)(yaml_parser_t *, yaml_event_t *);
  void (*event_delete)(yaml_event_t *);
  void (*parser_delete)(yaml_parser_t *);
} library;

static ac_status load(library *l, ac_err *e) {
  const aci_symbol symbols[] = {{"yaml_parser_initialize", &l->initialize},
                                {"yaml_parser_set_input_string", &l->set_input_string},
                                {"yaml_parser_set_encoding", &l->set_encoding},
                                {"yaml_parser_parse", &l->parse},
                                {"yaml_event_delete", &l->event_delete},
                                {"yaml_parser_delete", &l->parser_delete}};
  return aci_library_open("yaml", symbols, sizeof symbols / sizeof *symbols, e);
}

struct aci_yaml_doc {
  aci_yaml *nodes;
  uint32_t n, cap;
  aci_strbuf text;
};

/* A key of an open mapping or an anchor. One table holds both. */
typedef struct entry {
  uint32_t scope; /* index of the mapping + 1. 0: anchors */
  uint32_t text, len, node;
} entry;

typedef struct reader {
  library lib;
  aci_yaml_doc *d;
  entry *table; /* open addressing. Text UINT32_MAX: free */
  uint32_t n_entries, n_slots, n_anchors, n_aliases, n_events, max_nodes;
  uint64_t key;
  int depth;
  uint32_t open[ACI_YAML_MAX_DEPTH]; /* containers around the next node */
  bool value[ACI_YAML_MAX_DEPTH];    /* mappings: the next node is a value */
} reader;

static ac_status fault(ac_err *e, const yaml_mark_t *at, const char *what) {
  return AC_FAIL(e, PARSE, "YAML: line %d, column %d: %s", (int)at->line + 1, (int)at->column + 1,
                 what);
}

static ac_status too_many(const reader *r, const yaml_event_t *ev, const char *what, ac_err *e) {
  char text[96];
  snprintf(text, sizeof text, "%s %u nodes", what, r->max_nodes);
  return fault(e, &ev->start_mark, text);
}

static ac_status no_memory(ac_err *e) { return AC_FAIL(e, OOM, "YAML: no memory"); }

/* The entry of this name, or its free slot. */
static entry *slot(reader *r, uint32_t scope, const char *s, uint32_t n) {
  uint64_t h = aci_hash_bytes(r->key + scope, s, n);
  for (;; h++) {
    entry *t = &r->table[h & (r->n_slots - 1)];
    if (t->text == UINT32_MAX) return t;
    if (t->scope == scope && t->len == n && memcmp(r->d->text.s + t->text, s, n) == 0) return t;
  }
}

static bool grow_table(reader *r) {
  if (2 * (r->n_entries + 1) < r->n_slots) return true;
  const uint32_t before = r->n_slots;
  entry *old = r->table;
  r->n_slots = before == 0 ? 64 : 2 * before;
  r->table = malloc(r->n_slots * sizeof *r->table);
  if (r->table == NULL) {
    r->table = old;
    r->n_slots = before;
    return false;
  }
  for (uint32_t i = 0; i < r->n_slots; i++) r->table[i].text = UINT32_MAX;
  for (uint32_t i = 0; i < before; i++)
    if (old[i].text != UINT32_MAX)
      *slot(r, old[i].scope, r->d->text.s + old[i].text, old[i].len) = old[i];
  free(old);
  return true;
}

/* Notes a name of a scope, which now refers to the new node. *was: it existed before. */
static bool note(reader *r, uint32_t scope, const char *s, size_t n, uint32_t node, bool *was) {
  if (!grow_table(r)) return false;
  entry *t = slot(r, scope, s, (uint32_t)n);
  *was = t->text != UINT32_MAX;
  if (!*was) {
    const size_t at = r->d->text.len;
    aci_strbuf_add(&r->d->text, s, n);
    aci_strbuf_putc(&r->d->text, 0);
    if (r->d->text.failed) return false;
    *t = (entry){scope, (uint32_t)at, (uint32_t)n, node};
    r->n_entries++;
  }
  t->node = node;
  return true;
}

/* The tag's own name. False for tags that are not YAML's own. */
static bool core_tag(const yaml_char_t *tag, const char **out) {
  static const char prefix[] = "tag:yaml.org,2002:";
  static const char *const known[] = {"str", "int", "float", "bool", "null", "seq", "map"};
  const char *s = (const char *)tag;
  *out = NULL;
  if (s == NULL || strcmp(s, "!") == 0) { /* a lone ! makes a string */
    *out = s == NULL ? NULL : known[0];
    return true;
  }
  if (strncmp(s, prefix, sizeof prefix - 1) != 0) return false;
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (strcmp(s + sizeof prefix - 1, known[i]) == 0) *out = known[i];
  return *out != NULL;
}

static ac_status add(reader *r, const yaml_event_t *ev, aci_yaml node, const yaml_char_t *tag,
                     const yaml_char_t *anchor, ac_err *e) {
  aci_yaml_doc *d = r->d;
  const bool key = r->depth > 0 && d->nodes[r->open[r->depth - 1]].type == ACI_YAML_MAP &&
                   !r->value[r->depth - 1];
  bool was = false;
  if (!core_tag(tag, &node.tag)) {
    char text[96];
    snprintf(text, sizeof text, "the tag %.40s is not one of YAML's own", (const char *)tag);
    return fault(e, &ev->start_mark, text);
  }
  if (key && node.type != ACI_YAML_SCALAR)
    return fault(e, &ev->start_mark, "a key must be a word, not a list, a mapping or an alias");
  if (d->n >= r->max_nodes) return too_many(r, ev, "more than", e);
  if (d->n == d->cap) {
    const uint32_t cap = d->cap == 0 ? 64 : 2 * d->cap;
    aci_yaml *nodes = realloc(d->nodes, cap * sizeof *nodes);
    if (nodes == NULL) return no_memory(e);
    d->nodes = nodes;
    d->cap = cap;
  }
  const uint32_t at = d->n++;
  node.line = (int)ev->start_mark.line + 1;
  node.column = (int)ev->start_mark.column + 1;
  node.span = 1;
  if (node.type != ACI_YAML_ALIAS) node.weight = 1;
  d->nodes[at] = node;
  if (key) {
    const char *s = (const char *)ev->data.scalar.value;
    const size_t n = ev->data.scalar.length;
    if (!note(r, r->open[r->depth - 1] + 1, s, n, at, &was)) return no_memory(e);
    if (was) {
      char text[96];
      snprintf(text, sizeof text, "duplicate key '%.40s'", s);
      return fault(e, &ev->start_mark, text);
    }
    r->value[r->depth - 1] = true;
  } else if (r->depth > 0) {
    d->nodes[r->open[r->depth - 1]].len++;
    r->value[r->depth - 1] = false;
  }
  if (anchor != NULL) {
    if (++r->n_anchors > ACI_YAML_MAX_ANCHORS)
      return fault(e, &ev->start_mark, "more than 1000 anchors");
    if (!note(r, 0, (const char *)anchor, strlen((const char *)anchor), at, &was))
      return no_memory(e);
  }
  return AC_OK;
}

static ac_status add_scalar(reader *r, const yaml_event_t *ev, ac_err *e) {
  aci_strbuf *t = &r->d->text;
  const yaml_scalar_style_t style = ev->data.scalar.style;
  aci_yaml node = {
      .type = ACI_YAML_SCALAR, .text = (uint32_t)t->len, .len = (uint32_t)ev->data.scalar.length};
  node.style = style == YAML_PLAIN_SCALAR_STYLE ? ACI_YAML_PLAIN
               : style == YAML_LITERAL_SCALAR_STYLE || style == YAML_FOLDED_SCALAR_STYLE
                   ? ACI_YAML_BLOCK
                   : ACI_YAML_QUOTED;
  aci_strbuf_add(t, (const char *)ev->data.scalar.value, ev->data.scalar.length);
  aci_strbuf_putc(t, 0);
  return t->failed ? no_memory(e)
                   : add(r, ev, node, ev->data.scalar.tag, ev->data.scalar.anchor, e);
}

static ac_status add_alias(reader *r, const yaml_event_t *ev, ac_err *e) {
  const char *name = (const char *)ev->data.alias.anchor;
  char text[96];
  if (++r->n_aliases > ACI_YAML_MAX_ALIASES)
    return fault(e, &ev->start_mark, "more than 1000 aliases");
  if (!grow_table(r)) return no_memory(e);
  const entry *t = slot(r, 0, name, (uint32_t)strlen(name));
  snprintf(text, sizeof text, "the alias *%.40s names no anchor before it", name);
  if (t->text == UINT32_MAX) return fault(e, &ev->start_mark, text);
  snprintf(text, sizeof text, "the alias *%.40s is inside the node that it names", name);
  for (int i = 0; i < r->depth; i++)
    if (r->open[i] == t->node) return fault(e, &ev->start_mark, text);
  const aci_yaml *target = &r->d->nodes[t->node];
  if (r->depth + target->height > ACI_YAML_MAX_DEPTH)
    return fault(e, &ev->start_mark, "aliases nest it more than 64 levels deep");
  const aci_yaml node = {
      .type = ACI_YAML_ALIAS, .text = t->node, .weight = target->weight, .height = target->height};
  return add(r, ev, node, NULL, NULL, e);
}

static ac_status open_container(reader *r, const yaml_event_t *ev, bool map, ac_err *e) {
  const yaml_char_t *tag = map ? ev->data.mapping_start.tag : ev->data.sequence_start.tag;
  const yaml_char_t *anchor = map ? ev->data.mapping_start.anchor : ev->data.sequence_start.anchor;
  if (r->depth == ACI_YAML_MAX_DEPTH) return fault(e, &ev->start_mark, "more than 64 levels");
  ac_status st = add(r, ev, (aci_yaml){.type = map ? ACI_YAML_MAP : ACI_YAML_LIST}, tag, anchor, e);
  if (st != AC_OK) return st;
  r->open[r->depth] = r->d->n - 1;
  r->value[r->depth++] = false;
  return AC_OK;
}

/* The container's size is known at its end: nodes as written, and with aliases expanded. */
static ac_status close_container(reader *r, const yaml_event_t *ev, ac_err *e) {
  aci_yaml_doc *d = r->d;
  aci_yaml *c = &d->nodes[r->open[--r->depth]];
  uint64_t weight = 1;
  c->span = d->n - r->open[r->depth];
  c->height = 1;
  for (const aci_yaml *m = c + 1, *end = c + c->span; m < end; m += m->span) {
    weight += m->weight;
    if (m->height >= c->height) c->height = (uint8_t)(m->height + 1);
  }
  if (weight > r->max_nodes) return too_many(r, ev, "aliases make it more than", e);
  c->weight = (uint32_t)weight;
  return AC_OK;
}

static ac_status event(reader *r, const yaml_event_t *ev, int *documents, ac_err *e) {
  if (++r->n_events > ACI_YAML_MAX_EVENTS)
    return fault(e, &ev->start_mark, "more than 200000 events");
  switch (ev->type) {
    case YAML_DOCUMENT_START_EVENT:
      return ++*documents > 1
                 ? fault(e, &ev->start_mark, "a second document; a configuration has one")
                 : AC_OK;
    case YAML_SCALAR_EVENT: return add_scalar(r, ev, e);
    case YAML_ALIAS_EVENT: return add_alias(r, ev, e);
    case YAML_SEQUENCE_START_EVENT: return open_container(r, ev, false, e);
    case YAML_MAPPING_START_EVENT: return open_container(r, ev, true, e);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: return close_container(r, ev, e);
    default: return AC_OK;
  }
}

static ac_status read_all(reader *r, yaml_parser_t *p, ac_err *e) {
  int documents = 0;
  for (;;) {
    yaml_event_t ev;
    if (!r->lib.parse(p, &ev)) {
      if (p->error == YAML_MEMORY_ERROR) return no_memory(e);
      yaml_mark_t at = p->problem_mark;
      char text[160];
      snprintf(text, sizeof text, "%.70s%s%.70s",
               p->problem != NULL ? p->problem : "cannot be read", p->context != NULL ? ", " : "",
               p->context != NULL ? p->context : "");
      return fault(e, &at, text);
    }
    const bool last = ev.type == YAML_STREAM_END_EVENT;
    ac_status st = event(r, &ev, &documents, e);
    r->lib.event_delete(&ev);
    if (st != AC_OK || last) return st;
  }
}

bool aci_yaml_available(ac_err *why) {
  library l;
  return load(&l, why) == AC_OK;
}

ac_status aci_yaml_parse(const char *text, size_t n, uint32_t max_nodes, aci_yaml_doc **out,
                         ac_err *e) {
  yaml_parser_t p;
  const bool smaller = max_nodes > 0 && max_nodes < ACI_YAML_MAX_NODES;
  reader r = {.key = aci_hash_key(), .max_nodes = smaller ? max_nodes : ACI_YAML_MAX_NODES};
  *out = NULL;
  if (n > ACI_YAML_MAX_BYTES) return AC_FAIL(e, PARSE, "YAML: more than 1 MiB");
  AC_TRY(load(&r.lib, e));
  r.d = calloc(1, sizeof *r.d);
  if (r.d == NULL || !r.lib.initialize(&p)) {
    free(r.d);
    return no_memory(e);
  }
  r.lib.set_input_string(&p, (const unsigned char *)text, n);
  r.lib.set_encoding(&p, YAML_UTF8_ENCODING);
  ac_status st = read_all(&r, &p, e);
  r.lib.parser_delete(&p);
  free(r.table);
  if (st == AC_OK) *out = r.d;
  else aci_yaml_free(r.d);
  return st;
}

void aci_yaml_free(aci_yaml_doc *d) {
  if (d == NULL) return;
  free(d->nodes);
  aci_strbuf_fini(&d->text);
  free(d);
}

const aci_yaml *aci_yaml_nodes(const aci_yaml_doc *d, uint32_t *n) {
  *n = d->n;
  return d->nodes;
}

const char *aci_yaml_text(const aci_yaml_doc *d, const aci_yaml *node) {
  return d->text.s + node->text;
}

#else

bool aci_yaml_available(ac_err *why) { return aci_library_absent("yaml", why) == AC_OK; }

ac_status aci_yaml_parse(const char *text, size_t n, uint32_t max_nodes, aci_yaml_doc **out,
                         ac_err *e) {
  (void)text, (void)n, (void)max_nodes;
  *out = NULL;
  aci_yaml_available(e);
  return e->code;
}

void aci_yaml_free(aci_yaml_doc *d) { (void)d; }
const aci_yaml *aci_yaml_nodes(const aci_yaml_doc *d, uint32_t *n) {
  (void)d;
  *n = 0;
  return NULL;
}
const char *aci_yaml_text(const aci_yaml_doc *d, const aci_yaml *node) {
  (void)d, (void)node;
  return "";
}

#endif
