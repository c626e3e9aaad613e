/* Reads normalizers, pre-tokenizers and decoders. Sequences, including nested ones, become one list
 * of steps each. Called by tokenizer.c. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

/* One step of a list. */
typedef ac_status (*read_fn)(ac_tokenizer *t, const aci_fields *f, const char *type, void *step,
                             ac_err *e);
typedef struct steps {
  const char *where, *members; /* "normalizer", "normalizers" */
  read_fn read;
  size_t size;
  void **list;
  uint32_t *n;
} steps;

static ac_status read_list(ac_tokenizer *t, const steps *s, const aci_json *o, int depth,
                           ac_err *e) {
  if (o->type != ACI_JSON_OBJECT)
    return AC_FAIL(e, PARSE, "tokenizer: %s must be an object or null", s->where);
  const aci_fields f = {t, o, s->where};
  ac_text type;
  AC_TRY(aci_field_text(&f, "type", true, &type, e));
  if (strcmp(type.s, "Sequence") == 0) {
    const aci_json *members = aci_member(t, o, s->members);
    if (depth == ACI_STEPS_DEPTH)
      return AC_FAIL(e, PARSE, "tokenizer: %s: sequences nest more than %d deep", s->where,
                     ACI_STEPS_DEPTH);
    if (members == NULL || members->type != ACI_JSON_ARRAY)
      return AC_FAIL(e, PARSE, "tokenizer: %s: a Sequence needs the array %s", s->where,
                     s->members);
    for (const aci_json *v = aci_json_first(members), *end = aci_json_after(members); v != end;
         v = aci_json_after(v))
      AC_TRY(read_list(t, s, v, depth + 1, e));
    return AC_OK;
  }
  if (*s->n == ACI_STEPS)
    return AC_FAIL(e, PARSE, "tokenizer: %s: more than %d steps", s->where, ACI_STEPS);
  if (*s->list == NULL && (*s->list = calloc(ACI_STEPS, s->size)) == NULL) return aci_no_memory(e);
  void *step = (char *)*s->list + *s->n * s->size;
  ++*s->n; /* also when reading fails: it may own something */
  return s->read(t, &f, type.s, step, e);
}

static ac_status unknown(const aci_fields *f, const char *type, const char *const *names, int n,
                         ac_err *e) {
  const char *near = ac_nearest(type, names, n);
  return AC_FAIL(e, UNSUPPORTED, "tokenizer: %s: type '%.40s' is not known here%s%s%s", f->where,
                 type, near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                 near != NULL ? "'?" : "");
}

static int number_of(const char *type, const char *const *names, int n) {
  for (int i = 0; i < n; i++)
    if (strcmp(type, names[i]) == 0) return i;
  return -1;
}
#define COUNT(x) ((int)(sizeof(x) / sizeof(x)[0]))

/* ---- normalizers ---- */
static ac_status read_norm(ac_tokenizer *t, const aci_fields *f, const char *type, void *step,
                           ac_err *e) {
  static const char *const names[] = {
      "NFC",     "NFD",     "NFKC",           "NFKD", "Lowercase", "StripAccents", "Strip",
      "Replace", "Prepend", "BertNormalizer", "Nmt",  "ByteLevel", "Precompiled",  "SentencePiece"};
  aci_norm *o = step;
  ac_text text;
  const int kind = number_of(type, names, COUNT(names));
  if (kind < 0) return unknown(f, type, names, COUNT(names), e);
  o->kind = (aci_norm_kind)kind;
  switch (o->kind) {
    case ACI_NORM_STRIP:
      AC_TRY(aci_field_bool(f, "strip_left", -1, &o->left, e));
      return aci_field_bool(f, "strip_right", -1, &o->right, e);
    case ACI_NORM_REPLACE:
      AC_TRY(aci_read_pattern(t, f->o, f->where, &o->pattern, e)); /* fallthrough */
    case ACI_NORM_PREPEND:
      AC_TRY(
          aci_field_text(f, o->kind == ACI_NORM_REPLACE ? "content" : "prepend", true, &text, e));
      o->content = text.s;
      o->n_content = (uint32_t)text.n;
      return AC_OK;
    case ACI_NORM_BERT: {
      const aci_json *accents = aci_member(t, f->o, "strip_accents");
      AC_TRY(aci_field_bool(f, "clean_text", -1, &o->clean, e));
      AC_TRY(aci_field_bool(f, "handle_chinese_chars", -1, &o->chinese, e));
      AC_TRY(aci_field_bool(f, "lowercase", -1, &o->lowercase, e));
      if (accents == NULL || accents->type == ACI_JSON_NULL)
        return o->accents = o->lowercase, AC_OK;
      return aci_field_bool(f, "strip_accents", -1, &o->accents, e);
    }
    case ACI_NORM_PRECOMPILED: {
      AC_TRY(aci_field_text(f, "precompiled_charsmap", true, &text, e));
      ac_err inner;
      const ac_status st = aci_charsmap_new(text.s, text.n, &o->map, &inner);
      return st == AC_OK    ? AC_OK
             : st == AC_OOM ? aci_no_memory(e)
                            : AC_FAIL(e, PARSE, "tokenizer: normalizer: %.300s", inner.msg);
    }
    case ACI_NORM_SENTENCEPIECE: return aci_sp_norm_new(f, &o->sp, e);
    default: return AC_OK;
  }
}

/* ---- pre-tokenizers ---- */
static ac_status read_behavior(const aci_fields *f, aci_behavior fallback, bool needed,
                               aci_behavior *out, ac_err *e) {
  static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                      "Contiguous"};
  ac_text s;
  AC_TRY(aci_field_text(f, "behavior", needed, &s, e));
  *out = fallback;
  if (s.s == NULL) return AC_OK;
  const int i = number_of(s.s, names, COUNT(names));
  if (i < 0)
    return AC_FAIL(e, PARSE, "tokenizer: %s: behavior '%.40s' is not known", f->where, s.s);
  *out = (aci_behavior)i;
  return AC_OK;
}

/* Metaspace, as pre-tokenizer and as decoder. */
static ac_status read_metaspace(const aci_fields *f, uint32_t *c, aci_prepend *prepend, ac_err *e) {
  static const char *const names[] = {"always", "first", "never"};
  bool add;
  ac_text s;
  AC_TRY(aci_field_char(f, "replacement", c, e));
  AC_TRY(aci_field_bool(f, "add_prefix_space", 1, &add, e));
  AC_TRY(aci_field_text(f, "prepend_scheme", false, &s, e));
  int i = s.s != NULL ? number_of(s.s, names, 3) : ACI_PREPEND_ALWAYS;
  if (i < 0)
    return AC_FAIL(e, PARSE,
                   "tokenizer: %s: prepend_scheme '%.40s' is not one of always, first, never",
                   f->where, s.s);
  *prepend = add ? (aci_prepend)i : ACI_PREPEND_NEVER;
  return AC_OK;
}

static ac_status gpt2_pattern(ac_tokenizer *t, aci_pattern *out, ac_err *e) {
  static const char text[] =
      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
  if (t->n_regex == ACI_REGEXES)
    return AC_FAIL(e, PARSE, "tokenizer: more than %d regular expressions", ACI_REGEXES);
  AC_TRY(aci_regex_new(text, sizeof text - 1, &t->regex[t->n_regex], e));
  *out = (aci_pattern){.regex = t->n_regex++};
  return AC_OK;
}

static ac_status read_pre(ac_tokenizer *t, const aci_fields *f, const char *type, void *step,
                          ac_err *e) {
  static const char *const names[] = {"ByteLevel",        "Whitespace",    "WhitespaceSplit",
                                      "BertPreTokenizer", "Metaspace",     "Split",
                                      "Punctuation",      "Digits",        "CharDelimiterSplit",
                                      "FixedLength",      "UnicodeScripts"};
  aci_pre *o = step;
  int64_t n;
  const int kind = number_of(type, names, COUNT(names));
  if (kind < 0) return unknown(f, type, names, COUNT(names), e);
  o->kind = (aci_pre_kind)kind;
  switch (o->kind) {
    case ACI_PRE_BYTE_LEVEL:
      AC_TRY(aci_field_bool(f, "add_prefix_space", -1, &o->add_prefix_space, e));
      /* of the post-processor */
      aci_members_unused(f, (const char *const[]){"trim_offsets", NULL});
      AC_TRY(aci_field_bool(f, "use_regex", true, &o->split, e));
      return o->split ? gpt2_pattern(t, &o->pattern, e) : AC_OK;
    case ACI_PRE_METASPACE:
      AC_TRY(aci_field_bool(f, "split", true, &o->split, e));
      AC_TRY(read_metaspace(f, &o->c, &o->prepend, e));
      t->needs_origin = t->needs_origin || o->prepend == ACI_PREPEND_FIRST;
      return AC_OK;
    case ACI_PRE_SPLIT:
      AC_TRY(aci_read_pattern(t, f->o, f->where, &o->pattern, e));
      AC_TRY(aci_field_bool(f, "invert", false, &o->invert, e));
      return read_behavior(f, ACI_ISOLATED, true, &o->behavior, e);
    case ACI_PRE_PUNCTUATION: return read_behavior(f, ACI_ISOLATED, false, &o->behavior, e);
    case ACI_PRE_DIGITS: return aci_field_bool(f, "individual_digits", -1, &o->split, e);
    case ACI_PRE_DELIMITER: return aci_field_char(f, "delimiter", &o->c, e);
    case ACI_PRE_FIXED_LENGTH:
      AC_TRY(aci_field_count(f, "length", 5, INT32_MAX, &n, e));
      o->c = (uint32_t)n;
      return n > 0 ? AC_OK : AC_FAIL(e, PARSE, "tokenizer: %s: length must be positive", f->where);
    default: return AC_OK;
  }
}

/* ---- decoders ---- */
static ac_status read_dec(ac_tokenizer *t, const aci_fields *f, const char *type, void *step,
                          ac_err *e) {
  static const char *const names[] = {"BPEDecoder",   "ByteLevel",    "WordPiece", "Metaspace",
                                      "CTC",          "Replace",      "Fuse",      "Strip",
                                      "ByteFallback", "SentencePiece"};
  aci_dec *o = step;
  int64_t n;
  const int kind = number_of(type, names, COUNT(names));
  if (kind < 0) return unknown(f, type, names, COUNT(names), e);
  o->kind = (aci_dec_kind)kind;
  switch (o->kind) {
    case ACI_DEC_BYTE_LEVEL: /* members of the pre-tokenizer */
      aci_members_unused(
          f, (const char *const[]){"add_prefix_space", "trim_offsets", "use_regex", NULL});
      return AC_OK;
    case ACI_DEC_BPE: return aci_field_text(f, "suffix", true, &o->content, e);
    case ACI_DEC_WORDPIECE:
      AC_TRY(aci_field_text(f, "prefix", true, &o->content, e));
      return aci_field_bool(f, "cleanup", -1, &o->cleanup, e);
    case ACI_DEC_METASPACE:
      aci_members_unused(f, (const char *const[]){"split", NULL}); /* of the pre-tokenizer */
      return read_metaspace(f, &o->c, &o->prepend, e);
    case ACI_DEC_CTC:
      AC_TRY(aci_field_text(f, "pad_token", true, &o->content, e));
      AC_TRY(aci_field_text(f, "word_delimiter_token", true, &o->delimiter, e));
      return aci_field_bool(f, "cleanup", -1, &o->cleanup, e);
    case ACI_DEC_REPLACE:
      AC_TRY(aci_read_pattern(t, f->o, f->where, &o->pattern, e));
      return aci_field_text(f, "content", true, &o->content, e);
    case ACI_DEC_SENTENCEPIECE:
      AC_TRY(aci_field_text(f, "unk_piece", true, &o->content, e));
      AC_TRY(aci_field_text(f, "unk_surface", true, &o->delimiter, e));
      AC_TRY(aci_field_bool(f, "strip_first", -1, &o->strip_first, e));
      return aci_field_bool(f, "strip_all", -1, &o->strip_all, e);
    case ACI_DEC_STRIP:
      AC_TRY(aci_field_char(f, "content", &o->c, e));
      AC_TRY(aci_field_count(f, "start", -1, INT32_MAX, &n, e));
      o->start = (uint32_t)n;
      AC_TRY(aci_field_count(f, "stop", -1, INT32_MAX, &n, e));
      o->stop = (uint32_t)n;
      return AC_OK;
    default: return AC_OK;
  }
}

ac_status aci_read_steps(ac_tokenizer *t, const aci_json *root, ac_err *e) {
  const steps all[] = {
      {"normalizer", "normalizers", read_norm, sizeof(aci_norm), (void **)&t->norm, &t->n_norm},
      {"pre_tokenizer", "pretokenizers", read_pre, sizeof(aci_pre), (void **)&t->pre, &t->n_pre},
      {"decoder", "decoders", read_dec, sizeof(aci_dec), (void **)&t->dec, &t->n_dec},
  };
  for (int i = 0; i < COUNT(all); i++) {
    const aci_json *o = aci_member(t, root, all[i].where);
    if (o == NULL || o->type == ACI_JSON_NULL) continue;
    if (i == 2) t->has_decoder = true;
    AC_TRY(read_list(t, &all[i], o, 0, e));
  }
  return AC_OK;
}
