/* Tokenizers: made from the text of a tokenizer.json, asked for their vocabulary, written again. */
#include "text/tokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/open_read.h"
#include "text/encoding.h"
#include "text/unicode.h"
#include "text/encode_scratch.h"

/* ---- making ---- */
ac_status ac_tokenizer_parse(const char *json, size_t n, ac_tokenizer **out, ac_err *e) {
  *out = NULL;
  AC_TRY(aci_uni_open(e));
  ac_tokenizer *t = calloc(1, sizeof *t);
  if (t == NULL) return aci_no_memory(e);
  const aci_json *root = NULL;
  ac_status st = aci_encode_scratch_list_open(t, e);
  if (st == AC_OK) st = aci_json_parse(json, n, &ACI_JSON_TOKENIZER, &t->doc, e);
  if (st == AC_OK) st = aci_members_open(t, e);
  if (st == AC_OK) {
    root = aci_json_root(t->doc);
    const aci_json *version = aci_member(t, root, "version");
    if (root->type != ACI_JSON_OBJECT)
      st = AC_FAIL(e, PARSE, "tokenizer: the file must hold an object");
    else if (version != NULL && version->type == ACI_JSON_STRING &&
             strcmp(version->u.s, "1.0") != 0)
      st = AC_FAIL(e, UNSUPPORTED, "tokenizer: version '%.40s' is not known (1.0)", version->u.s);
  }
  if (st == AC_OK) st = aci_read_steps(t, root, e);
  if (st == AC_OK) st = aci_read_post(t, root, e);
  if (st == AC_OK) st = aci_read_model(t, root, json, n, e);
  if (st == AC_OK) st = aci_read_extras(t, root, e);
  if (st == AC_OK) {
    int joiners = 0;
    for (uint32_t i = 0; i < t->n_post; i++) joiners += t->post[i].kind != ACI_POST_BYTE_LEVEL;
    if (joiners > 1)
      st = AC_FAIL(e, UNSUPPORTED,
                   "tokenizer: post_processor: more than one step adds special tokens");
  }
  if (st == AC_OK) {
    aci_members_close(t);
    *out = t;
  } else ac_tokenizer_free(t);
  return st;
}

ac_status ac_tokenizer_open(const char *path, ac_tokenizer **out, ac_err *e) {
  *out = NULL;
  const size_t most = ACI_JSON_TOKENIZER.max_bytes;
  uint64_t bytes = 0;
  int fd;
  char *text = NULL, shown[ACI_PATH_SHOWN];
  ac_status st = aci_open_read(path, &fd, &bytes, e);
  if (st == AC_NOT_FOUND)
    return AC_FAIL(e, NOT_FOUND, "%s: no such file", aci_path_shown(path, shown));
  if (st != AC_OK) return st;
  size_t n = 0, cap = 0;
  ssize_t k = 0;
  do {
    if (bytes > most || n > most)
      st = AC_FAIL(e, PARSE, "%s: more than %zu bytes", aci_path_shown(path, shown), most);
    else if (!ACI_GROW(text, cap, n + (1 << 16))) st = aci_no_memory(e);
    else if ((k = read(fd, text + n, cap - n)) > 0) n += (size_t)k;
    else if (k < 0 && errno != EINTR) st = aci_io_error(e, path, "cannot read", errno);
  } while (st == AC_OK && k != 0);
  close(fd);
  ac_err inner;
  if (st == AC_OK && (st = ac_tokenizer_parse(text, n, out, &inner)) != AC_OK)
    ac_err_set(e, inner.code, inner.file, inner.line, "%s: %.380s", aci_path_shown(path, shown),
               inner.msg);
  free(text);
  return st;
}

void ac_tokenizer_free(ac_tokenizer *t) {
  if (t == NULL) return;
  aci_encode_scratch_list_close(t);
  for (uint32_t i = 0; i < t->n_norm; i++) {
    aci_charsmap_free(t->norm[i].map);
    aci_sp_norm_free(t->norm[i].sp);
  }
  for (uint32_t i = 0; i < t->n_post; i++) aci_post_fini(&t->post[i]);
  for (uint32_t i = 0; i < t->n_regex; i++) aci_regex_free(t->regex[i]);
  for (size_t i = 0; i < t->n_added; i++) {
    free(t->added[i].content);
    free(t->added[i].normal);
  }
  free(t->added);
  aci_map_fini(&t->added_by_text);
  aci_trie_fini(&t->find[0]);
  aci_trie_fini(&t->find[1]);
  aci_model_fini(&t->model);
  free(t->norm);
  free(t->pre);
  free(t->post);
  free(t->dec);
  free(t->seen);
  aci_json_free(t->doc);
  free(t);
}

/* ---- vocabulary ---- */
static size_t model_size(const ac_tokenizer *t) {
  return t->model.kind == ACI_UNIGRAM ? t->model.n_id : t->model.vocab.n;
}

int64_t ac_tokenizer_vocab_size(const ac_tokenizer *t, bool with_added) {
  size_t n = model_size(t);
  for (size_t i = 0; with_added && i < t->n_added; i++)
    n += aci_map_get(&t->model.vocab, t->added[i].content, t->added[i].n) < 0;
  return (int64_t)n;
}

int64_t ac_tokenizer_id_limit(const ac_tokenizer *t) {
  int64_t n = t->model.n_id;
  for (size_t i = 0; i < t->n_added; i++)
    if (t->added[i].id >= n) n = (int64_t)t->added[i].id + 1;
  return n;
}

int64_t ac_tokenizer_token_to_id(const ac_tokenizer *t, const char *token, size_t n) {
  const int64_t i = aci_map_get(&t->added_by_text, token, n);
  return i >= 0 ? (int64_t)t->added[i].id : aci_map_get(&t->model.vocab, token, n);
}

const char *ac_tokenizer_id_to_token(const ac_tokenizer *t, int64_t id, size_t *n) {
  size_t lo = 0, hi = t->n_added;
  if (hi > 0 && id >= t->added[0].id && id <= t->added[hi - 1].id) {
    while (lo < hi) {
      const size_t mid = (lo + hi) / 2;
      if (t->added[mid].id < id) lo = mid + 1;
      else hi = mid;
    }
    if (lo < t->n_added && t->added[lo].id == id) {
      const aci_added *a = &t->added[lo];
      *n = a->normal != NULL ? a->n_normal : a->n;
      return a->normal != NULL ? a->normal : a->content;
    }
  }
  if (id < 0 || id >= t->model.n_id || t->model.text[id] == NULL) return NULL;
  *n = t->model.text_n[id];
  return t->model.text[id];
}

const char *ac_tokenizer_model(const ac_tokenizer *t) {
  static const char *const names[] = {"BPE", "WordPiece", "Unigram", "WordLevel"};
  return names[t->model.kind];
}

bool ac_tokenizer_is_random(const ac_tokenizer *t) {
  return t->model.kind == ACI_BPE && t->model.dropout > 0;
}

/* ---- truncation and padding ---- */
enum { LONGEST = 1 << 24 };

const ac_truncation *ac_tokenizer_truncation(const ac_tokenizer *t) {
  return t->truncates ? &t->truncation : NULL;
}
const ac_padding *ac_tokenizer_padding(const ac_tokenizer *t) {
  return t->pads ? &t->padding : NULL;
}

ac_status ac_tokenizer_set_truncation(ac_tokenizer *t, const ac_truncation *p, ac_err *e) {
  if (p != NULL && p->stride > 0 && (int64_t)p->max_length - aci_n_special(t, false) <= p->stride)
    return AC_FAIL(
        e, INVALID,
        "truncation: stride %u must be less than max_length %u without its %lld special tokens",
        p->stride, p->max_length, (long long)aci_n_special(t, false));
  t->truncates = p != NULL;
  if (p != NULL) t->truncation = *p;
  return AC_OK;
}

ac_status aci_check_padding(const ac_padding *p, ac_err *e) {
  if (p->length <= LONGEST && p->multiple <= LONGEST) return AC_OK;
  return AC_FAIL(e, INVALID, "padding: a length of more than %d tokens", LONGEST);
}

ac_status ac_tokenizer_set_padding(ac_tokenizer *t, const ac_padding *p, ac_err *e) {
  if (p != NULL) AC_TRY(aci_check_padding(p, e));
  t->pads = p != NULL;
  if (p != NULL) t->padding = *p;
  return AC_OK;
}

int64_t ac_tokenizer_n_special(const ac_tokenizer *t, bool pair) { return aci_n_special(t, pair); }

/* ---- writing ---- */
static void put_key(aci_json_writer *w, const char *key) { aci_json_key(w, key, strlen(key)); }
static void put_text(aci_json_writer *w, const char *key, const char *text) {
  put_key(w, key);
  aci_json_string(w, text, strlen(text));
}
static void put_int(aci_json_writer *w, const char *key, int64_t v) {
  put_key(w, key);
  aci_json_int(w, v);
}
static void put_bool(aci_json_writer *w, const char *key, bool v) {
  put_key(w, key);
  aci_json_bool(w, v);
}

static void put_truncation(aci_json_writer *w, const ac_truncation *p) {
  static const char *const names[] = {"LongestFirst", "OnlyFirst", "OnlySecond"};
  put_key(w, "truncation");
  if (p == NULL) {
    aci_json_null(w);
    return;
  }
  aci_json_begin(w, true);
  put_text(w, "direction", p->left ? "Left" : "Right");
  put_int(w, "max_length", p->max_length);
  put_text(w, "strategy", names[p->strategy]);
  put_int(w, "stride", p->stride);
  aci_json_end(w);
}

static void put_padding(aci_json_writer *w, const ac_padding *p) {
  put_key(w, "padding");
  if (p == NULL) {
    aci_json_null(w);
    return;
  }
  aci_json_begin(w, true);
  put_key(w, "strategy");
  if (p->fixed) {
    aci_json_begin(w, true);
    put_int(w, "Fixed", p->length);
    aci_json_end(w);
  } else {
    aci_json_string(w, "BatchLongest", 12);
  }
  put_text(w, "direction", p->left ? "Left" : "Right");
  put_key(w, "pad_to_multiple_of");
  if (p->multiple > 0) aci_json_int(w, p->multiple);
  else aci_json_null(w);
  put_int(w, "pad_id", p->id);
  put_int(w, "pad_type_id", p->type_id);
  put_text(w, "pad_token", p->token);
  aci_json_end(w);
}

static void put_added(aci_json_writer *w, const ac_tokenizer *t) {
  put_key(w, "added_tokens");
  aci_json_begin(w, false);
  for (size_t i = 0; i < t->n_added; i++) {
    const aci_added *a = &t->added[i];
    aci_json_begin(w, true);
    put_int(w, "id", a->id);
    put_key(w, "content");
    aci_json_string(w, a->content, a->n);
    put_bool(w, "single_word", a->single_word);
    put_bool(w, "lstrip", a->lstrip);
    put_bool(w, "rstrip", a->rstrip);
    put_bool(w, "normalized", a->normalized);
    put_bool(w, "special", a->special);
    aci_json_end(w);
  }
  aci_json_end(w);
}

ac_status ac_tokenizer_json(const ac_tokenizer *t, bool pretty, char **text, size_t *n, ac_err *e) {
  static const char *const parts[] = {"normalizer", "pre_tokenizer", "post_processor", "decoder",
                                      "model"};
  aci_strbuf s = {0};
  aci_json_writer w = {.out = &s, .pretty = pretty};
  aci_json_begin(&w, true);
  put_text(&w, "version", "1.0");
  put_truncation(&w, ac_tokenizer_truncation(t));
  put_padding(&w, ac_tokenizer_padding(t));
  put_added(&w, t);
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    const aci_json *v = aci_json_get(t->doc, aci_json_root(t->doc), parts[i]);
    put_key(&w, parts[i]);
    if (v != NULL) aci_json_value(&w, v);
    else aci_json_null(&w);
  }
  aci_json_end(&w);
  ac_status st = aci_json_finish(&w, e);
  *text = st == AC_OK ? aci_strbuf_take(&s, n) : NULL;
  if (st == AC_OK && *text == NULL) st = aci_no_memory(e);
  aci_strbuf_fini(&s);
  return st;
}
