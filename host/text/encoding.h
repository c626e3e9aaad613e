/* Encodings, for the files of text/ that make them. Their length is fixed when they are made.
 * Tokens are then put one after another. */
#ifndef ACI_TEXT_ENCODING_H
#define ACI_TEXT_ENCODING_H
#include "text/tokenizer.h"

struct ac_encoding {
  const ac_tokenizer *t;
  size_t n, cap;
  uint32_t *ids, *type_ids;
  uint32_t *offsets; /* 2n. NULL: not asked for */
  int32_t *words;
  uint8_t *attention, *special;
  int8_t *sequence;
  /* tokens whose text differs from the text of their id: its start in letters, and its length + 1.
   * 0: the text of the id */
  uint32_t (*written)[2];
  char *letters;
  size_t n_letters, cap_letters;
  ac_encoding **over;
  size_t n_over;
};

/* NULL: no memory */
ac_encoding *aci_encoding_new(const ac_tokenizer *t, size_t cap, bool offsets);
/* Appends [begin, end) of another. False: out of memory. */
bool aci_encoding_append(ac_encoding *x, const ac_encoding *from, size_t begin, size_t end);
/* Sets the text of token i to s, unless its id has that text. */
bool aci_encoding_write(ac_encoding *x, size_t i, const char *s, size_t n);

/* Truncation, special tokens, pairs: takes a and b, which may be NULL. */
ac_status aci_finish(const ac_tokenizer *t, ac_encoding *a, ac_encoding *b,
                     const ac_encode_options *o, ac_encoding **out, ac_err *e);
int64_t aci_n_special(const ac_tokenizer *t, bool pair);
ac_status aci_check_padding(const ac_padding *p,
                            ac_err *e); /* INVALID: a length that is out of the question */

#endif
