/* The members of a tokenizer file that were read, and one warning of all others: they would change
 * the ids elsewhere, or are a misspelt name. An object counts from the first member that a reader
 * asks for, so that vocabularies, which readers go through, do not. Called by tokenizer.c around
 * the other config_*.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

ac_status aci_members_open(ac_tokenizer *t, ac_err *e) {
  const aci_json *root = aci_json_root(t->doc);
  t->seen = calloc((size_t)(aci_json_after(root) - root) / 8 + 1, 1);
  return t->seen != NULL ? AC_OK : aci_no_memory(e);
}

const aci_json *aci_member(const ac_tokenizer *t, const aci_json *o, const char *name) {
  const aci_json *v = aci_json_get(t->doc, o, name);
  if (v != NULL && t->seen != NULL) {
    const size_t i = (size_t)(v - aci_json_root(t->doc));
    t->seen[i / 8] |= (uint8_t)(1u << i % 8);
  }
  return v;
}

void aci_members_unused(const aci_fields *f, const char *const *names) {
  for (; *names != NULL; names++) aci_member(f->t, f->o, *names);
}

static bool was_seen(const ac_tokenizer *t, const aci_json *v) {
  const size_t i = (size_t)(v - aci_json_root(t->doc));
  return t->seen[i / 8] >> i % 8 & 1;
}

/* Appends the members of one object that no reader asked for: "'name' of Split". */
static void add_unread(const ac_tokenizer *t, const aci_json *o, char *list, size_t size) {
  bool any = false;
  const aci_json *end = aci_json_after(o);
  for (const aci_json *k = aci_json_first(o); k != end && !any; k = aci_json_after(k + 1))
    any = was_seen(t, k + 1);
  if (!any) return;
  const aci_json *type = aci_json_get(t->doc, o, "type");
  const bool named = type != NULL && type->type == ACI_JSON_STRING;
  for (const aci_json *k = aci_json_first(o); k != end; k = aci_json_after(k + 1)) {
    const size_t n = strlen(list);
    if (was_seen(t, k + 1) || k[1].type == ACI_JSON_NULL || n + 1 >= size) continue;
    snprintf(list + n, size - n, "%s'%.40s'%s%.40s", n > 0 ? ", " : "", k->u.s, named ? " of " : "",
             named ? type->u.s : "");
  }
}

void aci_members_close(ac_tokenizer *t) {
  char list[400] = "";
  if (t->seen == NULL) return;
  const aci_json *root = aci_json_root(t->doc), *end = aci_json_after(root);
  for (const aci_json *v = root; v != end; v++)
    if (v->type == ACI_JSON_OBJECT) add_unread(t, v, list, sizeof list);
  free(t->seen);
  t->seen = NULL;
  if (list[0] != '\0')
    ac_log_write(
        AC_LOG_WARN, "text",
        "tokenizer: these members have no effect: %s; remove them if the ids are right without them",
        list);
}
