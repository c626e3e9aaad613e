/* Encodings: arrays of one length, one entry a token. Called by encode.c and post.c. Programs read
 * them. */
#include "text/encoding.h"

#include <stdlib.h>
#include <string.h>

ac_encoding *aci_encoding_new(const ac_tokenizer *t, size_t cap, bool offsets) {
  ac_encoding *x = calloc(1, sizeof *x);
  const size_t n = cap == 0 ? 1 : cap;
  if (x == NULL) return NULL;
  /* one block: the widest entries first */
  uint32_t *block = malloc(n * ((offsets ? 5 : 3) * sizeof(uint32_t) + 3));
  if (block == NULL) {
    free(x);
    return NULL;
  }
  x->t = t;
  x->cap = cap;
  x->ids = block;
  x->type_ids = block + n;
  x->words = (int32_t *)(block + 2 * n);
  if (offsets) x->offsets = block + 3 * n;
  x->attention = (uint8_t *)(block + (offsets ? 5 : 3) * n);
  x->special = x->attention + n;
  x->sequence = (int8_t *)(x->attention + 2 * n);
  return x;
}

void ac_encoding_free(ac_encoding *x) {
  if (x == NULL) return;
  for (size_t i = 0; i < x->n_over; i++) ac_encoding_free(x->over[i]);
  free(x->over);
  free(x->ids);
  free(x->written);
  free(x->letters);
  free(x);
}

/* The text of an id as the model writes it. */
static const char *own_text(const ac_tokenizer *t, uint32_t id, size_t *n) {
  if (id < t->model.n_id && t->model.text[id] != NULL)
    return *n = t->model.text_n[id], t->model.text[id];
  return ac_tokenizer_id_to_token(t, id, n);
}

bool aci_encoding_write(ac_encoding *x, size_t i, const char *s, size_t n) {
  size_t k;
  const char *own = own_text(x->t, x->ids[i], &k);
  if (own != NULL && k == n && memcmp(own, s, n) == 0) return true;
  if (x->written == NULL && (x->written = calloc(x->cap, sizeof *x->written)) == NULL) return false;
  if (!ACI_GROW(x->letters, x->cap_letters, x->n_letters + n + 1)) return false;
  memcpy(x->letters + x->n_letters, s, n);
  x->letters[x->n_letters + n] = 0;
  x->written[i][0] = (uint32_t)x->n_letters;
  x->written[i][1] = (uint32_t)n + 1;
  x->n_letters += n + 1;
  return true;
}

bool aci_encoding_append(ac_encoding *x, const ac_encoding *from, size_t begin, size_t end) {
  const size_t n = end - begin, at = x->n;
  memcpy(x->ids + at, from->ids + begin, n * sizeof *x->ids);
  memcpy(x->type_ids + at, from->type_ids + begin, n * sizeof *x->type_ids);
  memcpy(x->words + at, from->words + begin, n * sizeof *x->words);
  memcpy(x->attention + at, from->attention + begin, n);
  memcpy(x->special + at, from->special + begin, n);
  memcpy(x->sequence + at, from->sequence + begin, n);
  if (x->offsets != NULL)
    memcpy(x->offsets + 2 * at, from->offsets + 2 * begin, 2 * n * sizeof *x->offsets);
  x->n += n;
  for (size_t i = 0; from->written != NULL && i < n; i++) {
    const uint32_t *w = from->written[begin + i];
    if (w[1] > 0 && !aci_encoding_write(x, at + i, from->letters + w[0], w[1] - 1)) return false;
  }
  return true;
}

size_t ac_encoding_length(const ac_encoding *x) { return x->n; }
const uint32_t *ac_encoding_ids(const ac_encoding *x) { return x->ids; }
const uint32_t *ac_encoding_type_ids(const ac_encoding *x) { return x->type_ids; }
const uint32_t *ac_encoding_offsets(const ac_encoding *x) { return x->offsets; }
const uint8_t *ac_encoding_attention_mask(const ac_encoding *x) { return x->attention; }
const uint8_t *ac_encoding_special_mask(const ac_encoding *x) { return x->special; }
const int32_t *ac_encoding_word_ids(const ac_encoding *x) { return x->words; }
const int8_t *ac_encoding_sequence_ids(const ac_encoding *x) { return x->sequence; }
size_t ac_encoding_n_overflowing(const ac_encoding *x) { return x->n_over; }
ac_encoding *ac_encoding_overflowing(const ac_encoding *x, size_t i) { return x->over[i]; }

const char *ac_encoding_token(const ac_encoding *x, size_t i, size_t *n) {
  if (x->written != NULL && x->written[i][1] > 0) {
    *n = x->written[i][1] - 1;
    return x->letters + x->written[i][0];
  }
  const char *s = own_text(x->t, x->ids[i], n);
  if (s == NULL) *n = 0;
  return s != NULL ? s : "";
}

/* ---- padding ---- */
static void pad_at(ac_encoding *x, size_t i, const ac_padding *p) {
  x->ids[i] = p->id;
  x->type_ids[i] = p->type_id;
  x->words[i] = -1;
  x->attention[i] = 0;
  x->special[i] = 1;
  x->sequence[i] = -1;
  if (x->offsets != NULL) x->offsets[2 * i] = x->offsets[2 * i + 1] = 0;
}

static bool pad_one(ac_encoding *x, size_t length, const ac_padding *p) {
  for (size_t i = 0; i < x->n_over; i++)
    if (!pad_one(x->over[i], length, p)) return false;
  if (x->n >= length) return true;
  ac_encoding *y = aci_encoding_new(x->t, length, x->offsets != NULL);
  if (y == NULL) return false;
  const size_t more = length - x->n, first = p->left ? 0 : x->n;
  bool ok = true;
  if (p->left) y->n = more;
  ok = aci_encoding_append(y, x, 0, x->n);
  y->n = length;
  for (size_t i = first; i < first + more; i++) pad_at(y, i, p);
  const size_t n = strlen(p->token);
  for (size_t i = first; ok && n > 0 && i < first + more; i++)
    ok = aci_encoding_write(y, i, p->token, n);
  /* y's contents move into x, whose address is held elsewhere */
  const ac_encoding old = *x;
  y->over = old.over;
  y->n_over = old.n_over;
  *x = *y;
  *y = old;
  y->over = NULL;
  y->n_over = 0;
  ac_encoding_free(y);
  return ok;
}

ac_status ac_encoding_pad(ac_encoding *const *list, size_t n, const ac_padding *p, ac_err *e) {
  size_t length = p->fixed ? p->length : 0;
  AC_TRY(aci_check_padding(p, e));
  for (size_t i = 0; i < n && !p->fixed; i++)
    if (list[i]->n > length) length = list[i]->n;
  if (p->multiple > 0 && length % p->multiple > 0) length += p->multiple - length % p->multiple;
  for (size_t i = 0; i < n; i++)
    if (!pad_one(list[i], length, p)) return aci_no_memory(e);
  return AC_OK;
}
