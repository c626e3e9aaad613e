/* Encoding: the way of one text through all steps, and of many texts on several threads. */
#include <stdlib.h>
#include <string.h>

#include "text/encoding.h"
#include "text/unicode.h"

/* Reports the first byte of x that is not valid UTF-8. */
static ac_status bad_utf8(ac_text x, ac_err *e) {
  const unsigned char *s = (const unsigned char *)x.s;
  size_t i = 0;
  for (int k; i < x.n && (k = s[i] < 0x80 ? 1 : aci_utf8_length(s + i, x.n - i)) > 0;)
    i += (size_t)k;
  return AC_FAIL(e, INVALID, "encode: the text is not valid UTF-8 at byte %zu (value 0x%02x)",
                 i + 1, i < x.n ? s[i] : 0);
}

/* A piece through the model. BPE of characters gets long ones, whole texts even: they are cut
 * between neighbours that no token joins, so that the parts are remembered as words are. The
 * character before a cut must have a token: unknown ones may become one token with the next. */
static ac_status tokenize_piece(aci_encode_scratch *w, uint32_t begin, uint32_t end, ac_err *e) {
  const aci_model *m = &w->t->model;
  const char *s = w->a.s + begin, *const stop = w->a.s + end;
  if (m->kind == ACI_BPE && !m->raw && m->joined != NULL && end - begin > 8) {
    const char *at = s;
    for (uint32_t a = aci_utf8_next(&at), b; at < stop; a = b) {
      const char *const cut = at;
      b = aci_utf8_next(&at);
      if (a >= 128 || m->ascii[a] < 0) continue;
      const uint32_t bit = aci_joined_bit(a, b);
      if (m->joined[bit / 32] >> (bit & 31) & 1) continue;
      AC_TRY(aci_tokenize_piece(w, s, (uint32_t)(cut - s), (uint32_t)(s - w->a.s), e));
      s = cut;
    }
  }
  return aci_tokenize_piece(w, s, (uint32_t)(stop - s), (uint32_t)(s - w->a.s), e);
}

/* From bytes of the original to characters. Offsets mostly grow, so counting continues from the
 * last one. */
typedef struct counter {
  const char *s;
  uint32_t n, at, chars;
  bool ascii;
} counter;

static uint32_t chars_before(counter *c, uint32_t byte) {
  if (c->ascii) return byte;
  for (; c->at < byte; c->at++) c->chars += ((unsigned char)c->s[c->at] & 0xC0) != 0x80;
  for (; c->at > byte; c->at--) c->chars -= ((unsigned char)c->s[c->at - 1] & 0xC0) != 0x80;
  return c->chars;
}

static bool is_ascii(const char *s, size_t n) {
  size_t i = 0;
  uint64_t w;
  for (; i + 8 <= n; i += 8)
    if ((memcpy(&w, s + i, 8), (w & 0x8080808080808080u) != 0)) return false;
  for (; i < n; i++)
    if ((unsigned char)s[i] >= 0x80) return false;
  return true;
}

/* Whether a part of the text begins and ends between characters. */
static bool is_whole(const aci_text *t, uint32_t begin, uint32_t end) {
  return ((unsigned char)t->s[begin] & 0xC0) != 0x80 &&
         (end >= t->n || ((unsigned char)t->s[end] & 0xC0) != 0x80);
}

/* SentencePiece's unknown pieces: shown as written, and those that follow each other are one. */
static void join_unknown(aci_encode_scratch *w, size_t first) {
  const aci_model *m = &w->t->model;
  size_t n = first;
  for (size_t i = first; i < w->n_token; i++) {
    aci_token *k = &w->token[i], *before = n > 0 ? &w->token[n - 1] : NULL;
    const bool unknown = m->unk >= 0 && k->id == (uint32_t)m->unk;
    if (unknown && k->begin < k->end && is_whole(&w->a, k->begin, k->end)) k->as_written = true;
    if (unknown && before != NULL && before->id == k->id && before->end == k->begin) {
      before->end = k->end;
      before->as_written = before->begin < k->end && is_whole(&w->a, before->begin, k->end);
    } else {
      w->token[n++] = *k;
    }
  }
  w->n_token = n;
}

/* Tokens of all pieces. word[i] of the encoding is the number of the piece. */
static ac_status gather(aci_encode_scratch *w, ac_text text, uint32_t type, bool offsets,
                        ac_encoding **out, ac_err *e) {
  const ac_tokenizer *t = w->t;
  w->n_token = 0;
  /* the end of each piece's tokens takes the place of its token number */
  for (size_t i = 0; i < w->p.n; i++) {
    aci_piece *p = &w->p.p[i];
    const size_t before = w->n_token;
    if (p->token < 0) {
      AC_TRY(tokenize_piece(w, p->begin, p->end, e));
      if (t->model.sp) join_unknown(w, before);
    } else if (!aci_token_add(w, t->added[p->token].id, p->begin, p->end, true))
      return aci_no_memory(e);
    if (w->n_token > INT32_MAX)
      return AC_FAIL(e, UNSUPPORTED, "encode: more than 2147483647 tokens");
    p->token = (int32_t)w->n_token;
  }
  const size_t n = w->n_token;
  ac_encoding *x = aci_encoding_new(t, n, offsets);
  if (x == NULL) return aci_no_memory(e);
  x->n = n;
  counter c = {.s = text.s, .n = (uint32_t)text.n, .ascii = !offsets || is_ascii(text.s, text.n)};
  const aci_token *k = w->token;
  for (size_t i = 0; i < n; i++) x->ids[i] = k[i].id;
  for (size_t i = 0; i < n; i++) x->type_ids[i] = type;
  memset(x->attention, 1, n);
  memset(x->special, 0, n);
  memset(x->sequence, 0, n);
  size_t first = 0;
  for (size_t i = 0; i < w->p.n; i++) {
    for (const size_t end = (size_t)w->p.p[i].token; first < end; first++)
      x->words[first] = (int32_t)i;
  }
  for (size_t i = 0; i < n; i++) {
    if (k[i].as_written && !aci_encoding_write(x, i, w->a.s + k[i].begin, k[i].end - k[i].begin)) {
      ac_encoding_free(x);
      return aci_no_memory(e);
    }
  }
  for (size_t i = 0; offsets && i < n; i++) {
    uint32_t from, to;
    aci_text_span(&w->a, k[i].begin, k[i].end, &from, &to);
    /* of the bytes of a character the last one has its place */
    if (t->model.sp && k[i].end < w->a.n && ((unsigned char)w->a.s[k[i].end] & 0xC0) == 0x80)
      to = from;
    x->offsets[2 * i] = chars_before(&c, from);
    x->offsets[2 * i + 1] = chars_before(&c, to);
  }
  *out = x;
  return AC_OK;
}

static ac_status encode_one(aci_encode_scratch *w, ac_text text, uint32_t type,
                            const ac_encode_options *o, ac_encoding **out, ac_err *e) {
  const ac_tokenizer *t = w->t;
  if (text.n > INT32_MAX / 2)
    return AC_FAIL(e, INVALID, "encode: a text of %zu bytes; at most %d", text.n, INT32_MAX / 2);
  if (!aci_utf8_valid(text.s, text.n)) return bad_utf8(text, e);
  w->track = o->offsets || t->needs_origin;
  if (!w->a.same && w->b.cap < w->a.cap) { /* its memory serves again */
    const aci_text was = w->b;
    w->b = w->a;
    w->a = was;
  }
  aci_text_fini(&w->a);
  w->a = (aci_text){.s = (char *)(uintptr_t)text.s, .n = (uint32_t)text.n, .same = true};
  w->p.n = 0;
  if (text.n > 0 && !aci_piece_add(&w->p, 0, (uint32_t)text.n, -1)) return aci_no_memory(e);
  AC_TRY(aci_added_find(w, false, o->split_special_tokens, e));
  AC_TRY(aci_added_find(w, true, o->split_special_tokens, e));
  AC_TRY(aci_pre_tokenize(w, t->model.raw, e));
  return gather(w, text, type, o->offsets, out, e);
}

ac_status ac_tokenizer_encode(const ac_tokenizer *t, ac_text a, ac_text b,
                              const ac_encode_options *o, ac_encoding **out, ac_err *e) {
  ac_encoding *x = NULL, *y = NULL;
  aci_encode_scratch *w;
  *out = NULL;
  AC_TRY(aci_encode_scratch_get(t, &w, e));
  w->random = o->seed;
  ac_status st = encode_one(w, a, 0, o, &x, e);
  if (st == AC_OK && b.s != NULL) st = encode_one(w, b, 1, o, &y, e);
  aci_encode_scratch_put(t, w);
  if (st != AC_OK) {
    ac_encoding_free(x);
    ac_encoding_free(y);
    return st;
  }
  return aci_finish(t, x, y, o, out, e);
}

/* ---- batches ---- */
typedef struct batch {
  const ac_tokenizer *t;
  const ac_text *a, *b;
  const ac_encode_options *o;
  ac_encoding **out;
  ac_status *status;
  ac_err *err; /* one per piece of work, for its first failure */
  int64_t grain;
} batch;

static void run(void *arg, int64_t begin, int64_t end) {
  const batch *x = arg;
  for (int64_t i = begin; i < end; i++) {
    ac_encode_options o = *x->o;
    o.seed += (uint64_t)i * 0x9E3779B97F4A7C15u;
    x->status[i / x->grain] =
        ac_tokenizer_encode(x->t, x->a[i], x->b != NULL ? x->b[i] : (ac_text){0}, &o, &x->out[i],
                            &x->err[i / x->grain]);
    if (x->status[i / x->grain] != AC_OK) return;
  }
}

ac_status ac_tokenizer_encode_batch(const ac_tokenizer *t, ac_team *team, size_t n,
                                    const ac_text *a, const ac_text *b, const ac_encode_options *o,
                                    ac_encoding **out, ac_err *e) {
  const int64_t grain = n < 64 ? 1 : (int64_t)(n / 64),
                pieces = n == 0 ? 0 : ((int64_t)n - 1) / grain + 1;
  batch x = {t,
             a,
             b,
             o,
             out,
             calloc((size_t)pieces + 1, sizeof(ac_status)),
             malloc(((size_t)pieces + 1) * sizeof(ac_err)),
             grain};
  ac_status st = x.status == NULL || x.err == NULL ? aci_no_memory(e) : AC_OK;
  for (size_t i = 0; i < n; i++) out[i] = NULL;
  if (st == AC_OK) {
    if (team != NULL) ac_parallel_for(team, (int64_t)n, grain, run, &x);
    else
      for (int64_t i = 0; i < (int64_t)n; i += grain)
        run(&x, i, i + grain < (int64_t)n ? i + grain : (int64_t)n);
    for (int64_t i = 0; st == AC_OK && i < pieces; i++)
      if (x.status[i] != AC_OK) st = x.status[i], *e = x.err[i];
  }
  for (size_t i = 0; st != AC_OK && i < n; i++) {
    ac_encoding_free(out[i]);
    out[i] = NULL;
  }
  free(x.status);
  free(x.err);
  return st;
}
