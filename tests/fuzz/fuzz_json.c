/* Fuzz entry of the JSON reader: any text is refused with its place, or a document that says the same when
 * it is written and read again. Built with libFuzzer by clang, with driver.c otherwise (CMakeLists.txt
 * here). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define REQUIRE(x) \
  if (!(x)) (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), abort())

static bool same(const aci_json_doc *da, const aci_json *a, const aci_json_doc *db, const aci_json *b) {
  if (a->type != b->type) return false;
  switch (a->type) {
    case ACI_JSON_NULL: return true;
    case ACI_JSON_BOOL: return a->u.b == b->u.b;
    case ACI_JSON_INT: return a->u.i == b->u.i;
    case ACI_JSON_DOUBLE: return a->u.f == b->u.f;
    case ACI_JSON_STRING:
    case ACI_JSON_KEY: return a->len == b->len && memcmp(a->u.s, b->u.s, a->len) == 0 && a->u.s[a->len] == 0;
    default: break;
  }
  if (a->len != b->len || a->u.c.span != b->u.c.span) return false;
  const aci_json *x = aci_json_first(a), *y = aci_json_first(b);
  for (; x != aci_json_after(a); x = aci_json_after(x), y = aci_json_after(y)) {
    if (!same(da, x, db, y)) return false;
    if (x->type == ACI_JSON_KEY && strlen(x->u.s) == x->len) REQUIRE(aci_json_get(da, a, x->u.s) == x + 1);
  }
  return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  ac_err e;
  aci_json_doc *doc, *again;
  aci_json_fault fault;
  aci_json_opts opts = ACI_JSON_CONFIG;
  opts.fault = &fault;
  char *exact = malloc(n == 0 ? 1 : n); /* so that a sanitizer sees any step beyond */
  REQUIRE(exact != NULL);
  if (n > 0) memcpy(exact, data, n);
  ac_status st = aci_json_parse(exact, n, &opts, &doc, &e);
  free(exact);
  if (st != AC_OK) {
    REQUIRE(st == AC_PARSE && doc == NULL && fault.kind != ACI_JSON_NO_FAULT && fault.offset <= n);
    REQUIRE(strstr(e.msg, fault.what) != NULL);
    return 0;
  }
  aci_strbuf text = {0};
  aci_json_writer w = {.out = &text};
  aci_json_value(&w, aci_json_root(doc));
  REQUIRE(aci_json_finish(&w, &e) == AC_OK);
  REQUIRE(aci_json_parse(text.s, text.len, NULL, &again, &e) == AC_OK);
  REQUIRE(same(doc, aci_json_root(doc), again, aci_json_root(again)));
  aci_json_free(again);
  aci_json_free(doc);
  aci_strbuf_fini(&text);
  return 0;
}
