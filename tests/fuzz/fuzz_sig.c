/* Fuzz entry of the parser of op signatures (ops/core/sig.h): any text is refused with its column, or becomes a signature whose parts
 * keep to their bounds. Built with libFuzzer by clang, with driver.c otherwise (CMakeLists.txt here). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/core/sig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define REQUIRE(x) \
  if (!(x)) (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), abort())

static void check_name(const char *s, size_t room) {
  size_t n = strnlen(s, room);
  REQUIRE(n > 0 && n < room);
  for (size_t i = 0; i < n; i++)
    REQUIRE((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') || s[i] == '_' || (i > 0 && s[i] >= '0' && s[i] <= '9'));
}

static void check_param(const aci_param *p) {
  check_name(p->name, sizeof p->name);
  REQUIRE(p->type > AC_T_NONE && p->type <= AC_T_GENERATOR && strcmp(aci_type_name(p->type), "?") != 0);
  REQUIRE(!p->mutates || p->type == AC_T_TENSOR || p->type == AC_T_TENSORS);
  REQUIRE(p->n_enum >= 0 && p->n_enum <= ACI_MAX_ENUM && (p->type != AC_T_ENUM || p->n_enum > 0));
  for (int i = 0; i < p->n_enum; i++) check_name(p->enum_name[i], sizeof p->enum_name[i]);
  REQUIRE(!p->optional || p->has_default);
  if (p->dflt.kind == AC_T_ENUM) REQUIRE(p->dflt.i >= 0 && p->dflt.i < p->n_enum);
  if (p->dflt.kind == AC_T_STRING) REQUIRE(p->dflt.str == p->dflt_str && strnlen(p->dflt_str, sizeof p->dflt_str) < sizeof p->dflt_str);
  if (p->dflt.kind == AC_T_INTS || p->dflt.kind == AC_T_DIMS || p->dflt.kind == AC_T_SHAPE || p->dflt.kind == AC_T_FLOATS)
    REQUIRE(p->dflt.n >= 0 && p->dflt.n <= 4);
  REQUIRE(p->has_default || p->dflt.kind == AC_T_NONE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  ac_err e;
  char *text = malloc(n + 1); /* exact, so that a sanitizer sees any step beyond */
  aci_sig *s = malloc(sizeof *s);
  REQUIRE(text != NULL && s != NULL);
  if (n > 0) memcpy(text, data, n);
  text[n] = 0;
  if (aci_sig_parse(text, s, &e) != AC_OK) {
    REQUIRE(e.code == AC_PARSE && strstr(e.msg, "column") != NULL && strlen(e.msg) < sizeof e.msg);
  } else {
    check_name(s->name, sizeof s->name);
    REQUIRE(s->n_params >= 0 && s->n_params <= AC_MAX_ARGS && s->n_results >= 0 && s->n_results <= AC_MAX_RESULTS);
    for (int i = 0; i < s->n_params; i++) {
      check_param(&s->param[i]);
      for (int k = 0; k < i; k++) REQUIRE(strcmp(s->param[i].name, s->param[k].name) != 0);
    }
    for (int i = 0; i < s->n_results; i++) {
      const aci_result *r = &s->result[i];
      if (r->name[0] != 0) check_name(r->name, sizeof r->name);
      REQUIRE(r->view_of >= -1 && r->view_of < s->n_params);
      REQUIRE(r->type == AC_T_TENSOR || (r->type == AC_T_TENSORS && s->n_results == 1));
    }
  }
  free(s);
  free(text);
  return 0;
}
