/* accel/text.h - tokenizers in Hugging Face's tokenizer.json: text to token ids and back.
 *
 * Tokenizer files may be hostile. A file is checked while it is read (see text/tokenizer.h for the
 * rules), and encoding a text of n bytes takes at most time in proportion to n log n. Several
 * threads may use a tokenizer at once. Functions that change it (add_tokens) need exclusive access.
 * Ids are 0-based. Offsets are in characters (code points), half open, 0-based. Strings are UTF-8
 * and may hold NUL. */
#ifndef ACCEL_TEXT_H
#define ACCEL_TEXT_H
#include "accel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ac_tokenizer ac_tokenizer;
typedef struct ac_encoding ac_encoding;

/* PARSE: names the fault and its place. UNSUPPORTED: an unknown part. NOT_FOUND, IO. */
AC_API ac_status ac_tokenizer_parse(const char *json, size_t n, ac_tokenizer **out, ac_err *e);
AC_API ac_status ac_tokenizer_open(const char *path, ac_tokenizer **out, ac_err *e);
AC_API void ac_tokenizer_free(ac_tokenizer *t);
/* The file's text, with all later additions and settings. free() it. */
AC_API ac_status ac_tokenizer_json(const ac_tokenizer *t, bool pretty, char **text, size_t *n,
                                   ac_err *e);

/* ---- vocabulary ---- */
AC_API int64_t ac_tokenizer_vocab_size(const ac_tokenizer *t, bool with_added);
/* One more than the largest id. */
AC_API int64_t ac_tokenizer_id_limit(const ac_tokenizer *t);
/* -1: none */
AC_API int64_t ac_tokenizer_token_to_id(const ac_tokenizer *t, const char *token, size_t n);
/* The token's text for decoding. NULL: no token has this id. Valid until the tokenizer changes. */
AC_API const char *ac_tokenizer_id_to_token(const ac_tokenizer *t, int64_t id, size_t *n);
/* "BPE", "WordPiece", "Unigram", "WordLevel". */
AC_API const char *ac_tokenizer_model(const ac_tokenizer *t);
/* Whether encoding draws random numbers (BPE with dropout). */
AC_API bool ac_tokenizer_is_random(const ac_tokenizer *t);

typedef struct ac_added_token {
  const char *content;
  size_t n;
  bool single_word, lstrip, rstrip, normalized, special;
} ac_added_token;
/* Adds tokens, or changes how they are matched. *added: the number of new or changed ones. */
AC_API ac_status ac_tokenizer_add_tokens(ac_tokenizer *t, const ac_added_token *tokens, size_t n,
                                         size_t *added, ac_err *e);
AC_API size_t ac_tokenizer_n_added(const ac_tokenizer *t);
/* The i-th by id. */
AC_API void ac_tokenizer_added(const ac_tokenizer *t, size_t i, ac_added_token *token, int64_t *id);

/* ---- encoding ---- */
typedef enum ac_truncate {
  AC_TRUNCATE_LONGEST_FIRST,
  AC_TRUNCATE_ONLY_FIRST,
  AC_TRUNCATE_ONLY_SECOND
} ac_truncate;
typedef struct ac_truncation {
  /* stride: tokens that an overflowing part shares with the one before */
  uint32_t max_length, stride;
  ac_truncate strategy;
  bool left; /* the side that is cut off */
} ac_truncation;
typedef struct ac_padding {
  bool fixed; /* to `length`. Otherwise to the longest of a batch */
  uint32_t length;
  uint32_t multiple; /* then up to a multiple of it. 0: none */
  bool left;
  uint32_t id, type_id;
  char token[64]; /* its text. Empty: the text of the id */
} ac_padding;
/* The setting of the file or of the last call. NULL: none. Setting copies. NULL removes it. */
AC_API const ac_truncation *ac_tokenizer_truncation(const ac_tokenizer *t);
AC_API const ac_padding *ac_tokenizer_padding(const ac_tokenizer *t);
AC_API ac_status ac_tokenizer_set_truncation(ac_tokenizer *t, const ac_truncation *p, ac_err *e);
AC_API ac_status ac_tokenizer_set_padding(ac_tokenizer *t, const ac_padding *p, ac_err *e);
/* Tokens that the post-processor adds to a text, or to a pair. */
AC_API int64_t ac_tokenizer_n_special(const ac_tokenizer *t, bool pair);

typedef struct ac_encode_options {
  bool add_special_tokens;         /* add the tokens of the post-processor */
  bool offsets;                    /* compute them */
  bool split_special_tokens;       /* special tokens written out are text like any other */
  bool overflowing;                /* keep the parts that truncation cuts off */
  const ac_truncation *truncation; /* NULL: none */
  uint64_t seed;                   /* of dropout */
} ac_encode_options;
typedef struct ac_text {
  const char *s; /* NULL: no second text */
  size_t n;
} ac_text;

/* INVALID: not UTF-8 (with the byte), or truncation that leaves nothing. UNSUPPORTED: a regular
 * expression of the file took too long. OOM. */
AC_API ac_status ac_tokenizer_encode(const ac_tokenizer *t, ac_text a, ac_text b,
                                     const ac_encode_options *o, ac_encoding **out, ac_err *e);
/* Many at once, on the threads of a team (NULL: the calling one). b: NULL, or as many. out: n
 * encodings, or none. */
AC_API ac_status ac_tokenizer_encode_batch(const ac_tokenizer *t, ac_team *team, size_t n,
                                           const ac_text *a, const ac_text *b,
                                           const ac_encode_options *o, ac_encoding **out,
                                           ac_err *e);
/* Pads each to one length, including overflowing parts. */
AC_API ac_status ac_encoding_pad(ac_encoding *const *list, size_t n, const ac_padding *p,
                                 ac_err *e);
AC_API void ac_encoding_free(ac_encoding *x);

/* Of an encoding, which points into its tokenizer. */
AC_API size_t ac_encoding_length(const ac_encoding *x);
AC_API const uint32_t *ac_encoding_ids(const ac_encoding *x);
AC_API const uint32_t *ac_encoding_type_ids(const ac_encoding *x);
/* begin, end, begin, .... NULL: not computed */
AC_API const uint32_t *ac_encoding_offsets(const ac_encoding *x);
AC_API const uint8_t *ac_encoding_attention_mask(const ac_encoding *x);
AC_API const uint8_t *ac_encoding_special_mask(const ac_encoding *x);
AC_API const int32_t *ac_encoding_word_ids(const ac_encoding *x);    /* -1: of no word */
AC_API const int8_t *ac_encoding_sequence_ids(const ac_encoding *x); /* -1: of neither text */
AC_API const char *ac_encoding_token(const ac_encoding *x, size_t i, size_t *n);
AC_API size_t ac_encoding_n_overflowing(const ac_encoding *x);
AC_API ac_encoding *ac_encoding_overflowing(const ac_encoding *x, size_t i); /* borrowed */

/* ---- decoding ---- */
/* The text of ids. free() it. Unknown ids are skipped, and special tokens as well if asked for. */
AC_API ac_status ac_tokenizer_decode(const ac_tokenizer *t, const int64_t *ids, size_t n,
                                     bool skip_special_tokens, char **text, size_t *length,
                                     ac_err *e);

/* ---- training ---- */
typedef struct ac_bpe_trainer ac_bpe_trainer;
typedef struct ac_bpe_options {
  size_t vocab_size;       /* with special tokens and the alphabet */
  int64_t min_frequency;   /* of a pair that is merged */
  size_t max_token_length; /* 0: no limit */
  bool add_prefix_space;
  const ac_text *special;
  size_t n_special;
} ac_bpe_options;
/* Called now and then while merges are learned, with the size of the vocabulary. An error ends
 * training. */
typedef ac_status (*ac_bpe_progress_fn)(void *user, size_t done, size_t all, ac_err *e);
/* Byte-level BPE. feed counts the words of a text. finish learns the merges and returns a
 * tokenizer. */
AC_API ac_status ac_bpe_trainer_new(const ac_bpe_options *o, ac_bpe_trainer **out, ac_err *e);
AC_API ac_status ac_bpe_trainer_feed(ac_bpe_trainer *b, const char *text, size_t n, ac_err *e);
AC_API size_t ac_bpe_trainer_words(const ac_bpe_trainer *b); /* different ones so far */
/* NULL: nobody */
AC_API void ac_bpe_trainer_watch(ac_bpe_trainer *b, ac_bpe_progress_fn fn, void *user);
AC_API ac_status ac_bpe_trainer_finish(ac_bpe_trainer *b, ac_tokenizer **out, ac_err *e);
AC_API void ac_bpe_trainer_free(ac_bpe_trainer *b);

#ifdef __cplusplus
}
#endif
#endif
