/* Fuzz entry of the YAML reader: any text is refused with its place, or a document whose nodes lie inside of each other and within
 * the bounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define REQUIRE(x) \
  if (!(x)) (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), abort())

static void check(const aci_yaml_doc *d, const aci_yaml *nodes, uint32_t at, uint32_t end) {
  const aci_yaml *v = &nodes[at];
  uint32_t members = 0;
  REQUIRE(v->span >= 1 && at + v->span <= end && v->weight >= 1 && v->weight <= ACI_YAML_MAX_NODES);
  REQUIRE(v->height <= ACI_YAML_MAX_DEPTH && v->line >= 1 && v->column >= 1);
  if (v->type == ACI_YAML_SCALAR) REQUIRE(aci_yaml_text(d, v)[v->len] == 0);
  if (v->type == ACI_YAML_ALIAS) REQUIRE(v->text < at && nodes[v->text].type != ACI_YAML_ALIAS);
  if (v->type == ACI_YAML_SCALAR || v->type == ACI_YAML_ALIAS) return;
  for (uint32_t m = at + 1; m < at + v->span; m += nodes[m].span, members++) check(d, nodes, m, at + v->span);
  REQUIRE(members == (v->type == ACI_YAML_MAP ? 2 : 1) * v->len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  ac_err e;
  aci_yaml_doc *doc;
  uint32_t count;
  char *text = malloc(n + 1); /* of the exact size: what is read behind it is found */
  if (text == NULL) return 0;
  memcpy(text, data, n);
  const ac_status st = aci_yaml_parse(text, n, 0, &doc, &e);
  free(text);
  REQUIRE(st == AC_OK || st == AC_PARSE || st == AC_UNSUPPORTED || st == AC_OOM);
  if (st != AC_OK) return 0;
  const aci_yaml *nodes = aci_yaml_nodes(doc, &count);
  if (count > 0) check(doc, nodes, 0, count);
  aci_yaml_free(doc);
  return 0;
}
