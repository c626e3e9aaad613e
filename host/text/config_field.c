/* Reading members of the objects in a tokenizer file, with messages that name the object and the
 * member. Called by the other config_*.c. */
#include <string.h>

#include "text/tokenizer.h"
#include "text/unicode.h"

static const aci_json *member(const aci_fields *f, const char *name) {
  const aci_json *v = aci_member(f->t, f->o, name);
  return v != NULL && v->type != ACI_JSON_NULL ? v : NULL;
}

ac_status aci_field_text(const aci_fields *f, const char *name, bool needed, ac_text *out,
                         ac_err *e) {
  const aci_json *v = member(f, name);
  *out = (ac_text){0};
  if (v == NULL && !needed) return AC_OK;
  if (v == NULL || v->type != ACI_JSON_STRING)
    return AC_FAIL(e, PARSE, "tokenizer: %s: %s must be a string", f->where, name);
  *out = (ac_text){v->u.s, v->len};
  return AC_OK;
}

ac_status aci_field_bool(const aci_fields *f, const char *name, int fallback, bool *out,
                         ac_err *e) {
  const aci_json *v = member(f, name);
  *out = fallback > 0;
  if (v == NULL && fallback >= 0) return AC_OK;
  if (v == NULL || v->type != ACI_JSON_BOOL)
    return AC_FAIL(e, PARSE, "tokenizer: %s: %s must be true or false", f->where, name);
  *out = v->u.b;
  return AC_OK;
}

ac_status aci_field_count(const aci_fields *f, const char *name, int64_t fallback, int64_t most,
                          int64_t *out, ac_err *e) {
  const aci_json *v = member(f, name);
  *out = fallback;
  if (v == NULL && fallback >= 0) return AC_OK;
  if (v == NULL || v->type != ACI_JSON_INT || v->u.i < 0 || v->u.i > most)
    return AC_FAIL(e, PARSE, "tokenizer: %s: %s must be an integer from 0 to %lld", f->where, name,
                   (long long)most);
  *out = v->u.i;
  return AC_OK;
}

ac_status aci_field_char(const aci_fields *f, const char *name, uint32_t *out, ac_err *e) {
  ac_text s;
  AC_TRY(aci_field_text(f, name, true, &s, e));
  const char *at = s.s;
  if (s.n > 0) *out = aci_utf8_next(&at);
  if (s.n == 0 || at != s.s + s.n)
    return AC_FAIL(e, PARSE, "tokenizer: %s: %s must be one character", f->where, name);
  return AC_OK;
}

/* {"String": "..."}, {"Regex": "..."}, or a bare string. */
ac_status aci_read_pattern(ac_tokenizer *t, const aci_json *o, const char *where, aci_pattern *out,
                           ac_err *e) {
  const aci_json *p = aci_member(t, o, "pattern");
  const aci_json *s = p;
  bool regex = false;
  if (p != NULL && p->type == ACI_JSON_OBJECT && p->len == 1) {
    s = aci_member(t, p, "String");
    if (s == NULL) s = aci_member(t, p, "Regex"), regex = true;
  }
  if (s == NULL || s->type != ACI_JSON_STRING)
    return AC_FAIL(e, PARSE, "tokenizer: %s: pattern must be {\"String\": ...} or {\"Regex\": ...}",
                   where);
  *out = (aci_pattern){.literal = s->u.s, .n = s->len};
  if (!regex && s->len > 0) return AC_OK;
  /* the empty string matches everywhere: a regular expression does that */
  if (t->n_regex == ACI_REGEXES)
    return AC_FAIL(e, PARSE, "tokenizer: more than %d regular expressions", ACI_REGEXES);
  ac_err inner;
  const ac_status st = aci_regex_new(s->u.s, s->len, &t->regex[t->n_regex], &inner);
  if (st == AC_OOM) return aci_no_memory(e);
  if (st != AC_OK) return AC_FAIL(e, UNSUPPORTED, "tokenizer: %s: %.400s", where, inner.msg);
  *out = (aci_pattern){.regex = t->n_regex++};
  return AC_OK;
}
