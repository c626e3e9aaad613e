/* YAML documents by the event interface of libyaml, read within bounds, for configuration files.
 * Used by the bindings' accel.yaml. Types are not decided here: scalars stay text with a style.
 *
 * Refused, with line and column: text that libyaml refuses, a second document, keys that are not
 * scalars, repeated keys of a mapping, tags other than YAML's own str, int, float, bool, null, seq
 * and map, aliases of nodes that are still open (cycles), and everything over the limits below.
 * Reading stops at the first fault. The merge key << is a key like any other. */
#ifndef ACI_YAML_H
#define ACI_YAML_H
#include "accel/base.h"

enum {
  ACI_YAML_MAX_BYTES = 1 << 20,
  ACI_YAML_MAX_DEPTH = 64, /* with aliases expanded */
  ACI_YAML_MAX_EVENTS = 200000,
  ACI_YAML_MAX_ANCHORS = 1000,
  ACI_YAML_MAX_ALIASES = 1000,
  ACI_YAML_MAX_NODES = 100000 /* with aliases expanded */
};

typedef enum aci_yaml_type {
  ACI_YAML_SCALAR,
  ACI_YAML_LIST,
  ACI_YAML_MAP,
  ACI_YAML_ALIAS
} aci_yaml_type;
typedef enum aci_yaml_style { ACI_YAML_PLAIN, ACI_YAML_QUOTED, ACI_YAML_BLOCK } aci_yaml_style;

/* Nodes in the order of the text, containers before their members. In a mapping keys and values
 * alternate. */
typedef struct aci_yaml {
  uint8_t type, style;
  int line, column; /* from 1 */
  /* SCALAR: the start of its text in the document's. ALIAS: the index of the node it stands for */
  uint32_t text;
  uint32_t len;    /* SCALAR: bytes, LIST: members, MAP: pairs */
  uint32_t span;   /* nodes of the container, itself and everything below it. 1 for others */
  uint32_t weight; /* the same with aliases expanded */
  uint8_t height;  /* levels of containers of the node, with aliases expanded: 0 for a SCALAR */
  const char *tag; /* "str", "int", ... NULL: none was written */
} aci_yaml;

typedef struct aci_yaml_doc aci_yaml_doc;

/* False if this build has no libyaml, or the library is not installed. *why holds the reason. */
bool aci_yaml_available(ac_err *why);
/* PARSE for faults of the text, UNSUPPORTED without libyaml. An empty document has no nodes.
 * max_nodes: a smaller bound than ACI_YAML_MAX_NODES. 0: that bound. */
ac_status aci_yaml_parse(const char *text, size_t n, uint32_t max_nodes, aci_yaml_doc **out,
                         ac_err *e);
void aci_yaml_free(aci_yaml_doc *d);
/* The nodes, the first of which is the root. *n: their number. */
const aci_yaml *aci_yaml_nodes(const aci_yaml_doc *d, uint32_t *n);
/* terminated, may hold NUL inside */
const char *aci_yaml_text(const aci_yaml_doc *d, const aci_yaml *node);

#endif
