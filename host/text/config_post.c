/* Reads post-processors, added tokens, truncation and padding. Called by tokenizer.c. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

/* ---- post-processors ---- */
static ac_status new_specials(aci_post *p, uint32_t n, ac_err *e) {
  p->special = calloc((size_t)n + 1, sizeof *p->special);
  p->n_special = p->special != NULL ? n : 0;
  return p->special != NULL ? AC_OK : aci_no_memory(e);
}

static ac_status special_room(aci_special *s, uint32_t n, ac_err *e) {
  s->ids = calloc((size_t)n + 1, sizeof *s->ids);
  s->tokens = calloc((size_t)n + 1, sizeof *s->tokens);
  s->n = n;
  return s->ids != NULL && s->tokens != NULL ? AC_OK : aci_no_memory(e);
}

static bool is_id(const aci_json *v) {
  return v->type == ACI_JSON_INT && v->u.i >= 0 && v->u.i <= INT32_MAX;
}

/* "sep": ["[SEP]", 102] */
static ac_status read_mark(const aci_fields *f, const char *name, aci_special *s, ac_err *e) {
  const aci_json *v = aci_member(f->t, f->o, name);
  const aci_json *text = v != NULL && v->type == ACI_JSON_ARRAY && v->len == 2 ? v + 1 : NULL;
  if (text == NULL || text->type != ACI_JSON_STRING || !is_id(aci_json_after(text)))
    return AC_FAIL(e, PARSE, "tokenizer: %s: %s must be [\"token\", id]", f->where, name);
  AC_TRY(special_room(s, 1, e));
  s->ids[0] = (uint32_t)aci_json_after(text)->u.i;
  s->tokens[0] = (ac_text){text->u.s, text->len};
  return AC_OK;
}

/* "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [101], "tokens": ["[CLS]"]}} */
static ac_status read_specials(const aci_fields *f, aci_post *p, ac_err *e) {
  const aci_json *o = aci_member(f->t, f->o, "special_tokens");
  if (o == NULL || o->type != ACI_JSON_OBJECT)
    return AC_FAIL(e, PARSE, "tokenizer: %s: special_tokens must be an object", f->where);
  AC_TRY(new_specials(p, o->len, e));
  aci_special *s = p->special;
  for (const aci_json *k = aci_json_first(o), *end = aci_json_after(o); k != end;
       k = aci_json_after(k + 1), s++) {
    const aci_json *ids = aci_member(f->t, k + 1, "ids"),
                   *tokens = aci_member(f->t, k + 1, "tokens");
    aci_member(f->t, k + 1, "id"); /* the name again */
    if (ids == NULL || tokens == NULL || ids->type != ACI_JSON_ARRAY ||
        tokens->type != ACI_JSON_ARRAY || ids->len != tokens->len)
      return AC_FAIL(e, PARSE, "tokenizer: %s: special token '%.40s' needs as many ids as tokens",
                     f->where, k->u.s);
    s->name = k->u.s;
    s->n_name = k->len;
    AC_TRY(special_room(s, ids->len, e));
    const aci_json *id = aci_json_first(ids), *token = aci_json_first(tokens);
    for (uint32_t i = 0; i < s->n; i++, id = aci_json_after(id), token = aci_json_after(token)) {
      if (!is_id(id) || token->type != ACI_JSON_STRING)
        return AC_FAIL(e, PARSE,
                       "tokenizer: %s: special token '%.40s': ids are integers, tokens are strings",
                       f->where, k->u.s);
      s->ids[i] = (uint32_t)id->u.i;
      s->tokens[i] = (ac_text){token->u.s, token->len};
    }
  }
  return AC_OK;
}

/* One piece: {"SpecialToken": {"id": "[CLS]", "type_id": 0}} or {"Sequence": {"id": "A", "type_id":
 * 0}}. */
static ac_status read_piece(const aci_fields *f, const aci_post *p, const aci_json *v, bool pair,
                            aci_template_piece *out, ac_err *e) {
  const aci_json *special = aci_member(f->t, v, "SpecialToken"),
                 *sequence = aci_member(f->t, v, "Sequence");
  const aci_json *o = special != NULL ? special : sequence;
  if (o == NULL || o->type != ACI_JSON_OBJECT)
    return AC_FAIL(e, PARSE, "tokenizer: %s: a template consists of SpecialToken and Sequence",
                   f->where);
  const aci_fields inner = {f->t, o, f->where};
  ac_text id;
  int64_t type;
  AC_TRY(aci_field_text(&inner, "id", true, &id, e));
  AC_TRY(aci_field_count(&inner, "type_id", -1, INT32_MAX, &type, e));
  *out = (aci_template_piece){.sequence = -1, .type_id = (uint32_t)type};
  if (special == NULL) {
    if (id.n != 1 || (id.s[0] != 'A' && id.s[0] != 'B'))
      return AC_FAIL(e, PARSE,
                     "tokenizer: %s: the sequences of a template are A and B, not '%.40s'",
                     f->where, id.s);
    out->sequence = (int8_t)(id.s[0] - 'A');
    if (out->sequence == 1 && !pair)
      return AC_FAIL(e, PARSE, "tokenizer: %s: single has no sequence B", f->where);
    return AC_OK;
  }
  for (uint32_t i = 0; i < p->n_special; i++)
    if (p->special[i].n_name == id.n && memcmp(p->special[i].name, id.s, id.n) == 0)
      return out->special = i, AC_OK;
  return AC_FAIL(e, PARSE, "tokenizer: %s: special_tokens has no '%.40s', which the template uses",
                 f->where, id.s);
}

static ac_status read_template(const aci_fields *f, aci_post *p, ac_err *e) {
  static const char *const names[] = {"single", "pair"};
  AC_TRY(read_specials(f, p, e));
  for (int k = 0; k < 2; k++) {
    const aci_json *o = aci_member(f->t, f->o, names[k]);
    if (o == NULL || o->type != ACI_JSON_ARRAY)
      return AC_FAIL(e, PARSE, "tokenizer: %s: %s must be an array", f->where, names[k]);
    if (o->len > 256)
      return AC_FAIL(e, PARSE, "tokenizer: %s: %s has more than 256 pieces", f->where, names[k]);
    p->piece[k] = calloc((size_t)o->len + 1, sizeof *p->piece[k]);
    if (p->piece[k] == NULL) return aci_no_memory(e);
    for (const aci_json *v = aci_json_first(o), *end = aci_json_after(o); v != end;
         v = aci_json_after(v))
      AC_TRY(read_piece(f, p, v, k == 1, &p->piece[k][p->n_piece[k]++], e));
  }
  return AC_OK;
}

static ac_status read_post(ac_tokenizer *t, const aci_json *o, int depth, ac_err *e) {
  const aci_fields f = {t, o, "post_processor"};
  if (o->type != ACI_JSON_OBJECT)
    return AC_FAIL(e, PARSE, "tokenizer: post_processor must be an object or null");
  ac_text type;
  AC_TRY(aci_field_text(&f, "type", true, &type, e));
  if (strcmp(type.s, "Sequence") == 0) {
    const aci_json *list = aci_member(t, o, "processors");
    if (depth == ACI_STEPS_DEPTH || list == NULL || list->type != ACI_JSON_ARRAY)
      return AC_FAIL(
          e, PARSE,
          "tokenizer: post_processor: a Sequence needs the array processors, and nests at most %d deep",
          ACI_STEPS_DEPTH);
    for (const aci_json *v = aci_json_first(list), *end = aci_json_after(list); v != end;
         v = aci_json_after(v))
      AC_TRY(read_post(t, v, depth + 1, e));
    return AC_OK;
  }
  if (t->n_post == ACI_STEPS)
    return AC_FAIL(e, PARSE, "tokenizer: post_processor: more than %d steps", ACI_STEPS);
  if (t->post == NULL && (t->post = calloc(ACI_STEPS, sizeof *t->post)) == NULL)
    return aci_no_memory(e);
  aci_post *p = &t->post[t->n_post++];
  if (strcmp(type.s, "TemplateProcessing") == 0)
    return p->kind = ACI_POST_TEMPLATE, read_template(&f, p, e);
  if (strcmp(type.s, "ByteLevel") == 0) {
    p->kind = ACI_POST_BYTE_LEVEL;
    AC_TRY(aci_field_bool(&f, "add_prefix_space", -1, &p->add_prefix_space, e));
    aci_members_unused(&f, (const char *const[]){"use_regex", NULL}); /* of the pre-tokenizer */
    return aci_field_bool(&f, "trim_offsets", -1, &p->trim_offsets, e);
  }
  const bool roberta = strcmp(type.s, "RobertaProcessing") == 0;
  if (!roberta && strcmp(type.s, "BertProcessing") != 0)
    return AC_FAIL(e, UNSUPPORTED, "tokenizer: post_processor: type '%.40s' is not known here",
                   type.s);
  p->kind = roberta ? ACI_POST_ROBERTA : ACI_POST_BERT;
  if (roberta) {
    AC_TRY(aci_field_bool(&f, "trim_offsets", -1, &p->trim_offsets, e));
    AC_TRY(aci_field_bool(&f, "add_prefix_space", -1, &p->add_prefix_space, e));
  }
  AC_TRY(new_specials(p, 2, e));
  AC_TRY(read_mark(&f, "sep", &p->special[0], e));
  return read_mark(&f, "cls", &p->special[1], e);
}

ac_status aci_read_post(ac_tokenizer *t, const aci_json *root, ac_err *e) {
  const aci_json *o = aci_member(t, root, "post_processor");
  if (o == NULL || o->type == ACI_JSON_NULL) return AC_OK;
  t->has_post = true;
  return read_post(t, o, 0, e);
}

void aci_post_fini(aci_post *p) {
  for (uint32_t i = 0; i < p->n_special; i++) {
    free(p->special[i].ids);
    free(p->special[i].tokens);
  }
  free(p->special);
  free(p->piece[0]);
  free(p->piece[1]);
}

/* ---- the rest ---- */
static ac_status read_added(ac_tokenizer *t, const aci_json *root, ac_err *e) {
  const aci_json *list = aci_member(t, root, "added_tokens");
  if (list == NULL || list->type == ACI_JSON_NULL) list = NULL;
  else if (list->type != ACI_JSON_ARRAY)
    return AC_FAIL(e, PARSE, "tokenizer: added_tokens must be an array");
  const size_t n = list != NULL ? list->len : 0;
  ac_added_token *tokens = calloc(n + 1, sizeof *tokens), *a = tokens;
  if (tokens == NULL) return aci_no_memory(e);
  ac_status st = AC_OK;
  for (const aci_json *v = list != NULL ? aci_json_first(list) : NULL,
                      *end = list != NULL ? aci_json_after(list) : NULL;
       st == AC_OK && v != end; v = aci_json_after(v), a++) {
    const aci_fields f = {t, v, "added_tokens"};
    ac_text text;
    int64_t id;
    if (v->type != ACI_JSON_OBJECT) {
      st = AC_FAIL(e, PARSE, "tokenizer: added_tokens holds objects");
      break;
    }
    st = aci_field_text(&f, "content", true, &text, e);
    if (st == AC_OK && text.n == 0)
      st = AC_FAIL(e, PARSE, "tokenizer: added_tokens: an empty token");
    if (st == AC_OK) st = aci_field_count(&f, "id", 0, INT32_MAX, &id, e);
    if (st == AC_OK) st = aci_field_bool(&f, "single_word", false, &a->single_word, e);
    if (st == AC_OK) st = aci_field_bool(&f, "lstrip", false, &a->lstrip, e);
    if (st == AC_OK) st = aci_field_bool(&f, "rstrip", false, &a->rstrip, e);
    if (st == AC_OK) st = aci_field_bool(&f, "normalized", true, &a->normalized, e);
    if (st == AC_OK) st = aci_field_bool(&f, "special", false, &a->special, e);
    if (st == AC_OK) a->content = text.s, a->n = text.n;
  }
  size_t added;
  if (st == AC_OK) st = ac_tokenizer_add_tokens(t, tokens, n, &added, e);
  free(tokens);
  return st;
}

static ac_status read_side(const aci_fields *f, bool *left, ac_err *e) {
  ac_text s;
  AC_TRY(aci_field_text(f, "direction", false, &s, e));
  *left = s.s != NULL && strcmp(s.s, "Left") == 0;
  if (s.s != NULL && !*left && strcmp(s.s, "Right") != 0)
    return AC_FAIL(e, PARSE, "tokenizer: %s: direction '%.40s' is neither Left nor Right", f->where,
                   s.s);
  return AC_OK;
}

static ac_status read_truncation(ac_tokenizer *t, const aci_json *o, ac_err *e) {
  static const char *const names[] = {"LongestFirst", "OnlyFirst", "OnlySecond"};
  const aci_fields f = {t, o, "truncation"};
  ac_truncation p = {0};
  int64_t n;
  ac_text s;
  AC_TRY(read_side(&f, &p.left, e));
  AC_TRY(aci_field_count(&f, "max_length", -1, INT32_MAX, &n, e));
  p.max_length = (uint32_t)n;
  AC_TRY(aci_field_count(&f, "stride", 0, INT32_MAX, &n, e));
  p.stride = (uint32_t)n;
  AC_TRY(aci_field_text(&f, "strategy", true, &s, e));
  int i = 0;
  while (i < 3 && strcmp(s.s, names[i]) != 0) i++;
  if (i == 3) return AC_FAIL(e, PARSE, "tokenizer: truncation: strategy '%.40s' is not known", s.s);
  p.strategy = (ac_truncate)i;
  t->truncates = true; /* whether its stride fits is seen when a text has to be cut */
  t->truncation = p;
  return AC_OK;
}

static ac_status read_padding(ac_tokenizer *t, const aci_json *o, ac_err *e) {
  const aci_fields f = {t, o, "padding"};
  const aci_json *strategy = aci_member(t, o, "strategy");
  ac_padding p = {0};
  int64_t n;
  ac_text s;
  AC_TRY(read_side(&f, &p.left, e));
  if (strategy != NULL && strategy->type == ACI_JSON_OBJECT) {
    const aci_fields inner = {t, strategy, "padding"};
    AC_TRY(aci_field_count(&inner, "Fixed", -1, INT32_MAX, &n, e));
    p.fixed = true;
    p.length = (uint32_t)n;
  } else if (strategy == NULL || strategy->type != ACI_JSON_STRING ||
             strcmp(strategy->u.s, "BatchLongest") != 0) {
    return AC_FAIL(e, PARSE,
                   "tokenizer: padding: strategy must be \"BatchLongest\" or {\"Fixed\": length}");
  }
  AC_TRY(aci_field_count(&f, "pad_to_multiple_of", 0, INT32_MAX, &n, e));
  p.multiple = (uint32_t)n;
  AC_TRY(aci_field_count(&f, "pad_id", 0, INT32_MAX, &n, e));
  p.id = (uint32_t)n;
  AC_TRY(aci_field_count(&f, "pad_type_id", 0, INT32_MAX, &n, e));
  p.type_id = (uint32_t)n;
  AC_TRY(aci_field_text(&f, "pad_token", false, &s, e));
  if (s.n >= sizeof p.token)
    return AC_FAIL(e, PARSE, "tokenizer: padding: pad_token has more than %zu bytes",
                   sizeof p.token - 1);
  if (s.n > 0) memcpy(p.token, s.s, s.n);
  return ac_tokenizer_set_padding(t, &p, e);
}

ac_status aci_read_extras(ac_tokenizer *t, const aci_json *root, ac_err *e) {
  static const char *const names[] = {"truncation", "padding"};
  AC_TRY(read_added(t, root, e));
  for (int k = 0; k < 2; k++) {
    const aci_json *o = aci_member(t, root, names[k]);
    if (o == NULL || o->type == ACI_JSON_NULL) continue;
    if (o->type != ACI_JSON_OBJECT)
      return AC_FAIL(e, PARSE, "tokenizer: %s must be an object or null", names[k]);
    AC_TRY(k == 0 ? read_truncation(t, o, e) : read_padding(t, o, e));
  }
  return AC_OK;
}
