/* Steps after the model: truncation, offsets without blanks, special tokens, joined pairs. Called
 * by encode.c. */
#include <stdlib.h>
#include <string.h>

#include "text/encoding.h"
#include "text/unicode.h"

/* ---- truncation ---- */
static ac_encoding *part_of(const ac_encoding *x, size_t begin, size_t end) {
  ac_encoding *y = aci_encoding_new(x->t, end - begin, x->offsets != NULL);
  if (y != NULL && !aci_encoding_append(y, x, begin, end)) {
    ac_encoding_free(y);
    return NULL;
  }
  return y;
}

static bool over_add(ac_encoding *x, ac_encoding *part, size_t *cap) {
  if (part == NULL || !ACI_GROW(x->over, *cap, x->n_over + 1)) {
    ac_encoding_free(part);
    return false;
  }
  x->over[x->n_over++] = part;
  return true;
}

/* *x becomes its first (left: last) n tokens. The rest, in parts of n that share stride tokens,
 * overflows. */
static ac_status truncate_one(ac_encoding **x, size_t n, const ac_truncation *p, bool overflow,
                              ac_err *e) {
  ac_encoding *all = *x;
  size_t cap = 0;
  if (n >= all->n) return AC_OK;
  if (n > 0 && p->stride >= n)
    return AC_FAIL(e, INVALID,
                   "truncation: stride %u must be less than the %zu tokens that a part holds",
                   p->stride, n);
  const size_t begin = p->left ? all->n - n : 0;
  ac_encoding *first = part_of(all, begin, begin + n);
  if (first == NULL) return aci_no_memory(e);
  bool ok = true;
  if (n == 0) {
    if (overflow) ok = over_add(first, part_of(all, 0, all->n), &cap);
  } else {
    const size_t step = n - p->stride;
    size_t at = step;
    for (bool end = false; overflow && ok && !end; at += step) {
      const size_t stop = p->left ? all->n - at : 0;
      const size_t from = p->left ? (stop > n ? stop - n : 0) : at;
      const size_t to = p->left ? stop : (at + n < all->n ? at + n : all->n);
      end = p->left ? from == 0 : to == all->n;
      ok = over_add(first, part_of(all, from, to), &cap);
    }
  }
  ac_encoding_free(all);
  *x = first;
  return ok ? AC_OK : aci_no_memory(e);
}

static ac_status truncate_both(ac_encoding **a, ac_encoding **b, const ac_truncation *p,
                               size_t most, bool overflow, ac_err *e) {
  const size_t na = (*a)->n, nb = *b != NULL ? (*b)->n : 0;
  if (most == 0) {
    AC_TRY(truncate_one(a, 0, p, overflow, e));
    return *b != NULL ? truncate_one(b, 0, p, overflow, e) : AC_OK;
  }
  if (na + nb <= most) return AC_OK;
  const size_t extra = na + nb - most;
  if (p->strategy == AC_TRUNCATE_LONGEST_FIRST) {
    if (*b == NULL) return truncate_one(a, most, p, overflow, e);
    size_t n1 = na < nb ? na : nb, n2 = na < nb ? nb : na; /* the shorter, the longer */
    n2 = n1 > most ? n1 : n1 > most - n1 ? n1 : most - n1;
    if (n1 + n2 > most) n1 = most / 2, n2 = n1 + most % 2;
    AC_TRY(truncate_one(a, na > nb ? n2 : n1, p, overflow, e));
    return truncate_one(b, na > nb ? n1 : n2, p, overflow, e);
  }
  ac_encoding **target = p->strategy == AC_TRUNCATE_ONLY_FIRST ? a : b;
  if (*target == NULL) return AC_FAIL(e, INVALID, "truncation: only_second needs a second text");
  if ((*target)->n <= extra)
    return AC_FAIL(e, INVALID, "truncation: the %s text has %zu tokens, and %zu would have to go",
                   target == a ? "first" : "second", (*target)->n, extra);
  return truncate_one(target, (*target)->n - extra, p, overflow, e);
}

/* ---- offsets ---- */
static bool is_blank(uint32_t c) {
  return c == 0x120 || aci_uni_is_space(c);
} /* U+0120 is ByteLevel's blank */

/* Blanks at both ends of a token do not count, but for the one that was put before the text. */
static void trim_offsets(ac_encoding *x, bool add_prefix_space) {
  for (size_t i = 0; x->offsets != NULL && i < x->n; i++) {
    size_t n, leading = 0, trailing = 0;
    const char *s = ac_encoding_token(x, i, &n), *end = s + n;
    for (const char *at = s; at < end && is_blank(aci_utf8_next(&at));) leading++;
    for (const char *at = end; at > s && is_blank(aci_utf8_before(&at));) trailing++;
    uint32_t *o = x->offsets + 2 * i;
    if (leading == 1 && add_prefix_space && (i == 0 || o[0] == 0)) leading = 0;
    if (leading > 0) o[0] = o[0] + leading < o[1] ? o[0] + (uint32_t)leading : o[1];
    if (trailing > 0 && o[1] >= trailing)
      o[1] = o[1] - trailing > o[0] ? o[1] - (uint32_t)trailing : o[0];
  }
  for (size_t i = 0; i < x->n_over; i++) trim_offsets(x->over[i], add_prefix_space);
}

/* ---- putting together ---- */
static void set_types(ac_encoding *x, uint32_t type) {
  for (size_t i = 0; i < x->n; i++) x->type_ids[i] = type;
}

typedef struct part {
  const aci_special *special; /* NULL: a text */
  int which;
  uint32_t type;
} part;
enum { PARTS = 256 };

static bool put_special(ac_encoding *x, const aci_special *s, uint32_t type) {
  for (uint32_t k = 0; k < s->n; k++) {
    const size_t i = x->n++;
    x->ids[i] = s->ids[k];
    x->type_ids[i] = type;
    x->words[i] = -1;
    x->attention[i] = x->special[i] = 1;
    x->sequence[i] = -1;
    if (x->offsets != NULL) x->offsets[2 * i] = x->offsets[2 * i + 1] = 0;
    if (!aci_encoding_write(x, i, s->tokens[k].s, s->tokens[k].n)) return false;
  }
  return true;
}

static ac_encoding *join(const ac_tokenizer *t, const part *parts, size_t n,
                         const ac_encoding *const of[2]) {
  size_t cap = 0;
  bool offsets = true, ok = true;
  for (size_t i = 0; i < n; i++)
    cap += parts[i].special != NULL ? parts[i].special->n : of[parts[i].which]->n;
  for (int k = 0; k < 2; k++) offsets = offsets && (of[k] == NULL || of[k]->offsets != NULL);
  ac_encoding *x = aci_encoding_new(t, cap, offsets);
  for (size_t i = 0; x != NULL && ok && i < n; i++) {
    const ac_encoding *from = of[parts[i].which];
    ok = parts[i].special != NULL ? put_special(x, parts[i].special, parts[i].type)
                                  : aci_encoding_append(x, from, 0, from->n);
  }
  if (ok) return x;
  ac_encoding_free(x);
  return NULL;
}

/* The parts that the post-processor asks for. Returns their number. */
static size_t parts_of(const aci_post *p, bool pair, bool add, part *out) {
  size_t n = 0;
  if (p == NULL || (p->kind != ACI_POST_TEMPLATE && !add)) {
    for (int k = 0; k <= pair; k++) out[n++] = (part){NULL, k, 0};
    return n;
  }
  if (p->kind == ACI_POST_TEMPLATE) {
    for (uint32_t i = 0; i < p->n_piece[pair]; i++) {
      const aci_template_piece *x = &p->piece[pair][i];
      if (x->sequence >= 0) out[n++] = (part){NULL, x->sequence, x->type_id};
      else if (add) out[n++] = (part){&p->special[x->special], 0, x->type_id};
    }
    return n;
  }
  const uint32_t second = p->kind == ACI_POST_BERT;
  out[n++] = (part){&p->special[1], 0, 0};
  out[n++] = (part){NULL, 0, 0};
  out[n++] = (part){&p->special[0], 0, 0};
  if (!pair) return n;
  if (p->kind == ACI_POST_ROBERTA) out[n++] = (part){&p->special[0], 0, 0};
  out[n++] = (part){NULL, 1, second};
  out[n++] = (part){&p->special[0], 0, second};
  return n;
}

static const aci_post *joiner_of(const ac_tokenizer *t) {
  for (uint32_t i = 0; i < t->n_post; i++)
    if (t->post[i].kind != ACI_POST_BYTE_LEVEL) return &t->post[i];
  return NULL;
}

int64_t aci_n_special(const ac_tokenizer *t, bool pair) {
  const aci_post *p = joiner_of(t);
  part parts[PARTS];
  int64_t n = 0;
  if (p == NULL) return 0;
  const size_t k = parts_of(p, pair, true, parts);
  for (size_t i = 0; i < k; i++) n += parts[i].special != NULL ? parts[i].special->n : 0;
  return n;
}

static void set_sequence(ac_encoding *x, int8_t k) {
  memset(x->sequence, k, x->n);
  for (size_t i = 0; i < x->n_over; i++) memset(x->over[i]->sequence, k, x->over[i]->n);
}

/* Every combination of the main and overflowing parts, except for the first of both. */
static ac_status join_overflowing(const ac_tokenizer *t, const part *parts, size_t n,
                                  ac_encoding *a, ac_encoding *b, ac_encoding *out, ac_err *e) {
  size_t cap = 0, first = 0;
  while (first < n && parts[first].special != NULL) first++;
  /* the second text stands first */
  const bool turned = b != NULL && first < n && parts[first].which == 1;
  if (turned) {
    ac_encoding *const was = a;
    a = b;
    b = was;
  }
  const size_t na = a->n_over, nb = b != NULL ? b->n_over : 0;
  if (na * (nb + 1) + nb > 1 << 16)
    return AC_FAIL(
        e, INVALID,
        "truncation: %zu and %zu overflowing parts make too many pairs; truncate only one of the texts",
        na, nb);
  for (size_t i = 1; i <= na + 1; i++)
    for (size_t k = i > na ? 1 : 0; k <= nb; k++) {
      const ac_encoding *const x = i > na ? a : a->over[i - 1], *const y =
                                                                    k == 0 ? b : b->over[k - 1];
      const ac_encoding *const of[2] = {turned ? y : x, turned ? x : y};
      if (!over_add(out, join(t, parts, n, of), &cap)) return aci_no_memory(e);
    }
  return AC_OK;
}

/* From the models' encodings of one text (a) or two (b) to the result: truncation, type ids and
 * trimmed offsets, special tokens, and pairs put together. Takes over a and b. The caller owns
 * *out, which is NULL after a failure. Overflowing parts hang on the result. */
ac_status aci_finish(const ac_tokenizer *t, ac_encoding *a, ac_encoding *b,
                     const ac_encode_options *o, ac_encoding **out, ac_err *e) {
  ac_status st = AC_OK;
  const aci_post *p = joiner_of(t);
  part parts[PARTS];
  *out = NULL;
  if (o->truncation != NULL) {
    const int64_t special = o->add_special_tokens ? aci_n_special(t, b != NULL) : 0;
    if (special > (int64_t)o->truncation->max_length)
      st = AC_FAIL(e, INVALID, "truncation: max_length %u leaves no room for %lld special tokens",
                   o->truncation->max_length, (long long)special);
    else
      st = truncate_both(&a, &b, o->truncation, o->truncation->max_length - (size_t)special,
                         o->overflowing, e);
  }
  for (int k = 0; st == AC_OK && k < 2; k++) {
    ac_encoding *x = k == 0 ? a : b;
    if (x == NULL) continue;
    set_sequence(x, (int8_t)k);
    for (uint32_t i = 0; i < t->n_post; i++)
      if (t->post[i].trim_offsets) trim_offsets(x, t->post[i].add_prefix_space);
    if (p == NULL || p->kind != ACI_POST_ROBERTA) continue;
    set_types(x, 0); /* overflowing parts get types only together with special tokens */
    for (size_t i = 0; o->add_special_tokens && i < x->n_over; i++) set_types(x->over[i], 0);
  }
  if (st == AC_OK) {
    const size_t n = parts_of(p, b != NULL, o->add_special_tokens, parts);
    if (p != NULL && p->kind == ACI_POST_TEMPLATE)
      for (size_t i = 0; i < n; i++)
        if (parts[i].special == NULL) set_types(parts[i].which == 0 ? a : b, parts[i].type);
    if (n == 1 && parts[0].special == NULL && a->n_over == 0 && parts[0].which == 0) {
      *out = a;
      a = NULL;
    } else {
      const ac_encoding *const of[2] = {a, b};
      *out = join(t, parts, n, of);
      if (*out == NULL) st = aci_no_memory(e);
      else st = join_overflowing(t, parts, n, a, b, *out, e);
    }
  }
  ac_encoding_free(a);
  ac_encoding_free(b);
  if (st != AC_OK) {
    ac_encoding_free(*out);
    *out = NULL;
  }
  return st;
}
