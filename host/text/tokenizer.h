/* The inside of a tokenizer, for the files of text/. A text passes, in this order:
 *
 *   added tokens cut out (added.c) > normalizers (normalize*.c, precompiled.c) > added tokens
 *   again, on normalised text > pre-tokenizers (split.c) > the model, piece by piece (bpe.c,
 *   wordpiece.c, unigram.c) > truncation, the post-processor, padding (encoding.c, post.c)
 *
 * and back through decoders (decode.c). config_*.c reads all parts from the file.
 *
 * Rules for files, in addition to JSON without repeated keys (base/json.h): at most 512 MiB. Ids
 * from 0 to 2^31 - 1, each once, the largest below 4 x entries. Both parts and the product of every
 * merge are in the vocabulary. Special tokens and pieces of Unigram and WordPiece have at most
 * ACI_TOKEN_BYTES, added tokens are not empty. Sequences of steps nest at most 16 deep and have 64
 * steps in all. Regular expressions are those supported by regex.h. Steps that are not known are an
 * error.
 *
 * Map of the folder:
 *
 *   tokenizer.c config_*.c              a tokenizer made from its file: config_steps.c,
 *                                       config_model.c, config_post.c, config_field.c
 *   encode.c encode_scratch.[ch]        encoding one text or many, with buffers, automata and
 *                                       cached words of one call
 *   text.c table.c                      text with its origins, and arrays, string tables and tries
 *   added.c normalize*.c precompiled.c  added tokens, normalizers
 *   split.c                             pre-tokenizers
 *   sentencepiece.c                     SentencePiece's own normalizer and decoder, whose results its offsets follow
 *   bpe.c wordpiece.c unigram.c         models
 *   encoding.[ch] post.c decode.c       results, post-processors, decoders
 *   train.[ch] train_merge.c            training of a byte-level BPE
 *   regex.h regex_*.[ch]                regular expressions in linear time: parse, class, look,
 *                                       fold and atomic make the tree, compile the program, dfa and
 *                                       run match it, regex_impl.h has the shared types
 *   unicode.[ch] unicode_impl.h         Unicode. gen/unicode.lua generates unicode_data.c, gen/unicode_scripts.lua
 *                                       unicode_scripts.c */
#ifndef ACI_TOKENIZER_H
#define ACI_TOKENIZER_H
#include "accel/text.h"
#include "base/json.h"
#include "text/regex.h"

enum { ACI_TOKEN_BYTES = 4096, ACI_STEPS = 64, ACI_STEPS_DEPTH = 16, ACI_REGEXES = 64 };

/* ---- text with its origins ---- Every byte knows the bytes [from, to) of the original that it came from, the same
 * for all bytes of a character. Text that equals the original (same) has no arrays. Neither has text whose origins
 * nobody asks for. */
typedef struct aci_text {
  char *s;
  uint32_t *from, *to;
  uint32_t n, cap;
  bool same; /* s is the original, borrowed */
  bool tracked;
  uint32_t origin; /* origin of text inserted before everything */
} aci_text;
void aci_text_clear(aci_text *t, bool tracked, uint32_t origin); /* empties it for new text */
bool aci_text_room(aci_text *t, size_t more);                    /* false: no memory */
bool aci_text_put(aci_text *t, uint32_t c, uint32_t from, uint32_t to);
bool aci_text_copy(aci_text *t, const aci_text *src, uint32_t begin, uint32_t end);
/* Bytes of the original that [begin, end) came from. Begin < end. */
void aci_text_span(const aci_text *t, uint32_t begin, uint32_t end, uint32_t *from, uint32_t *to);
void aci_text_fini(aci_text *t);
/* The characters of `in` are replaced one by one into `out`. change 0: the character stands for the
 * next one. -n: for that one and the n after it. 1: for none (it is new, with the origin of the one
 * before). */
typedef struct aci_rewrite {
  const aci_text *in;
  aci_text *out;
  uint32_t at;
} aci_rewrite;
bool aci_rewrite_put(aci_rewrite *w, uint32_t c, int change);

/* Part of a text: a token already, or yet to be split. */
typedef struct aci_piece {
  uint32_t begin, end;
  int32_t token; /* -1: text */
} aci_piece;
typedef struct aci_pieces {
  aci_piece *p;
  size_t n, cap;
} aci_pieces;
bool aci_piece_add(aci_pieces *l, uint32_t begin, uint32_t end, int32_t token);

/* A token of the model: which bytes of the text, and whether its text is those bytes instead of the
 * id's. */
typedef struct aci_token {
  uint32_t id, begin, end, as_written;
} aci_token;

/* ---- tables ---- */
/* Strings to numbers, open addressing. Strings are borrowed. */
typedef struct aci_map {
  struct aci_map_entry {
    const char *s;
    uint32_t n, value;
    uint64_t hash;
  } * e;
  size_t n, cap;
  uint64_t key;
} aci_map;
bool aci_map_reserve(aci_map *m, size_t n);
/* Adds s. If it is already there, its value stays and goes to *was. False: out of memory. */
bool aci_map_add(aci_map *m, const char *s, size_t n, uint32_t value, int64_t *was);
int64_t aci_map_get(const aci_map *m, const char *s, size_t n);        /* -1: none */
void aci_map_set(aci_map *m, const char *s, size_t n, uint32_t value); /* of one that is there */
void aci_map_fini(aci_map *m);

/* Bytes to bytes, a node per prefix. Node 0 is the root. */
typedef struct aci_trie {
  struct aci_trie_edge {
    uint32_t from; /* node * 256 + byte + 1. 0: free */
    uint32_t to;
  } * e;
  size_t n_edge, cap;
  int32_t *value; /* of a node: the added value, or -1 */
  uint32_t n_node, cap_node;
  uint64_t mix;
} aci_trie;
bool aci_trie_open(aci_trie *t);
bool aci_trie_add(aci_trie *t, const char *s, size_t n, int32_t value); /* the last wins */
static inline size_t aci_trie_slot(const aci_trie *t, uint32_t from) {
  return (size_t)((uint64_t)from * t->mix >> 16) & (t->cap - 1);
}
static inline uint32_t aci_trie_step(const aci_trie *t, uint32_t node, unsigned char byte) {
  const uint32_t from = node * 256 + byte + 1;
  for (size_t i = aci_trie_slot(t, from);; i = (i + 1) & (t->cap - 1)) {
    if (t->e[i].from == from) return t->e[i].to;
    if (t->e[i].from == 0) return 0;
  }
}
void aci_trie_fini(aci_trie *t);

/* ---- patterns: a literal or a regular expression ---- */
typedef struct aci_pattern {
  const char *literal; /* NULL: regex */
  uint32_t n, regex;   /* regex: its number in the tokenizer */
} aci_pattern;
typedef struct aci_encode_scratch aci_encode_scratch;
typedef struct aci_find {
  size_t at, last_end;
  bool any;
} aci_find; /* {0} before the first */
void aci_pattern_begin(aci_encode_scratch *w, const aci_pattern *p, size_t n);
ac_status aci_pattern_next(aci_encode_scratch *w, const aci_pattern *p, const char *s, size_t n,
                           aci_find *f, size_t *begin, size_t *end, bool *found, ac_err *e);

/* ---- steps ---- */
typedef enum aci_norm_kind {
  ACI_NORM_NFC,
  ACI_NORM_NFD,
  ACI_NORM_NFKC,
  ACI_NORM_NFKD,
  ACI_NORM_LOWERCASE,
  ACI_NORM_STRIP_ACCENTS,
  ACI_NORM_STRIP,
  ACI_NORM_REPLACE,
  ACI_NORM_PREPEND,
  ACI_NORM_BERT,
  ACI_NORM_NMT,
  ACI_NORM_BYTE_LEVEL,
  ACI_NORM_PRECOMPILED,
  ACI_NORM_SENTENCEPIECE
} aci_norm_kind;
typedef struct aci_charsmap aci_charsmap;
typedef struct aci_sp_norm aci_sp_norm;
typedef struct aci_norm {
  aci_norm_kind kind;
  bool left, right;                        /* strip */
  bool clean, chinese, accents, lowercase; /* bert */
  aci_pattern pattern;
  const char *content; /* replace, prepend */
  uint32_t n_content;
  aci_charsmap *map;
  aci_sp_norm *sp;
} aci_norm;

typedef enum aci_behavior {
  ACI_REMOVED,
  ACI_ISOLATED,
  ACI_MERGED_WITH_PREVIOUS,
  ACI_MERGED_WITH_NEXT,
  ACI_CONTIGUOUS
} aci_behavior;
typedef enum aci_pre_kind {
  ACI_PRE_BYTE_LEVEL,
  ACI_PRE_WHITESPACE,
  ACI_PRE_WHITESPACE_SPLIT,
  ACI_PRE_BERT,
  ACI_PRE_METASPACE,
  ACI_PRE_SPLIT,
  ACI_PRE_PUNCTUATION,
  ACI_PRE_DIGITS,
  ACI_PRE_DELIMITER,
  ACI_PRE_FIXED_LENGTH,
  ACI_PRE_SCRIPTS
} aci_pre_kind;
typedef enum aci_prepend { ACI_PREPEND_ALWAYS, ACI_PREPEND_FIRST, ACI_PREPEND_NEVER } aci_prepend;
typedef struct aci_pre {
  aci_pre_kind kind;
  bool add_prefix_space, invert,
      split; /* split: of Metaspace. Individual digits. ByteLevel's own expression */
  aci_prepend prepend;
  aci_behavior behavior;
  aci_pattern pattern;
  uint32_t c; /* replacement, delimiter. Length */
} aci_pre;

typedef struct aci_special {
  const char *name; /* of the template */
  uint32_t n_name, n;
  uint32_t *ids;
  ac_text *tokens;
} aci_special;
typedef struct aci_template_piece {
  int8_t sequence; /* 0, 1. -1: special */
  uint32_t special, type_id;
} aci_template_piece;
typedef enum aci_post_kind {
  ACI_POST_BERT,
  ACI_POST_ROBERTA,
  ACI_POST_BYTE_LEVEL,
  ACI_POST_TEMPLATE
} aci_post_kind;
typedef struct aci_post {
  aci_post_kind kind;
  bool trim_offsets, add_prefix_space;
  aci_special *special; /* bert, roberta: 0 is sep, 1 is cls */
  uint32_t n_special;
  aci_template_piece *piece[2]; /* of one text, of a pair */
  uint32_t n_piece[2];
} aci_post;

typedef enum aci_dec_kind {
  ACI_DEC_BPE,
  ACI_DEC_BYTE_LEVEL,
  ACI_DEC_WORDPIECE,
  ACI_DEC_METASPACE,
  ACI_DEC_CTC,
  ACI_DEC_REPLACE,
  ACI_DEC_FUSE,
  ACI_DEC_STRIP,
  ACI_DEC_BYTE_FALLBACK,
  ACI_DEC_SENTENCEPIECE
} aci_dec_kind;
typedef struct aci_dec {
  aci_dec_kind kind;
  bool cleanup, strip_first, strip_all; /* strip: the blank of the first token, of all first ones */
  aci_prepend prepend;
  aci_pattern pattern;
  ac_text content, delimiter; /* suffix, prefix, replacement, pad token */
  uint32_t c, start, stop;
} aci_dec;

/* ---- the model ---- */
typedef enum aci_model_kind { ACI_BPE, ACI_WORDPIECE, ACI_UNIGRAM, ACI_WORDLEVEL } aci_model_kind;
typedef struct aci_merge {
  uint64_t pair; /* left << 32 | right. All ones: free */
  uint32_t rank, id;
} aci_merge;
/* tokens without text, tokens that are never cut, tokens of a byte */
enum { ACI_SP_CONTROL = 1, ACI_SP_USER_DEFINED, ACI_SP_BYTE };
typedef struct aci_model {
  aci_model_kind kind;
  aci_map vocab;
  const char **text; /* by id. NULL: none */
  uint32_t *text_n;
  uint32_t n_id; /* one more than the largest */
  int64_t unk;   /* its id, -1: none */
  bool has_unk;  /* the file names one, maybe outside of the vocabulary */
  bool byte_fallback;
  int64_t byte_token[256]; /* ids of <0x00> ... */
  /* bpe */
  aci_merge *merge;
  size_t merge_mask;
  uint64_t merge_mix;
  float dropout;
  bool fuse_unk, ignore_merges;
  ac_text prefix, suffix;
  uint32_t *
      /* of chars that are neighbours in a merged token, by aci_joined_bit. NULL: pieces are not
       * cut */
      joined;
  int64_t ascii[128]; /* ids of its characters, -1: none */
  bool raw;           /* pieces come as bytes that ByteLevel would have changed one to one */
  uint32_t byte_id[256];
  aci_map raw_vocab; /* for ignore_merges: by the bytes that a token stands for */
  char *raw_text;
  /* wordpiece: words, and continuations. unigram: words */
  aci_trie trie, rest;
  uint32_t max_chars;
  double *score, unk_score;
  /* SentencePiece's own rules: scores are floats, unknown pieces that follow each other are one and shown as written, the
   * bytes of a character are one place in the text */
  bool sp;
  uint8_t *sp_kind; /* by id, of sp: ACI_SP_CONTROL ... NULL: none */
  bool symbols;     /* of sp and bpe: trie has texts that are one symbol each and never merge */
} aci_model;

enum { ACI_JOINED_BITS = 1 << 18 };
static inline uint32_t aci_joined_bit(uint32_t a, uint32_t b) {
  return (uint32_t)(((uint64_t)a << 21 | b) * 0x9E3779B97F4A7C15u >> 46);
}

typedef struct aci_added {
  char *content, *normal; /* normal: normalised, NULL when it is the same */
  uint32_t n, n_normal, id;
  bool single_word, lstrip, rstrip, normalized, special;
} aci_added;

struct ac_tokenizer {
  aci_json_doc *doc; /* strings of all parts lie in it */
  /* while the file is read: a bit for each member that a reader asked for (config_members.c) */
  uint8_t *seen;
  aci_norm *norm;
  aci_pre *pre;
  aci_post *post;
  aci_dec *dec;
  uint32_t n_norm, n_pre, n_post, n_dec;
  bool has_decoder, has_post;
  aci_model model;
  aci_regex *regex[ACI_REGEXES];
  uint32_t n_regex;
  /* added tokens, by id */
  aci_added *added;
  size_t n_added;
  aci_map added_by_text; /* index in added */
  aci_trie find[2];      /* in the text as it is, and normalised */
  bool finds[2][256];    /* first bytes */
  bool any[2];
  ac_truncation truncation;
  ac_padding padding;
  bool truncates, pads, needs_origin; /* needs_origin: a step needs the origin of a piece */
  struct aci_encode_scratch_list *scratch_list; /* encode_scratch.h */
};

/* ---- the working state of one call. Several wait in the tokenizer ---- */
typedef struct aci_word {
  uint64_t hash;
  uint32_t key, token;
  uint16_t n_key, n_token;
} aci_word;
typedef struct aci_symbol {
  uint32_t id, len;
  int32_t prev, next;
} aci_symbol;
typedef struct aci_queued {
  uint32_t rank, at, id;
} aci_queued;
typedef struct aci_reach {
  double score;
  int32_t from;
  uint32_t id;
} aci_reach;
typedef struct aci_span {
  uint32_t begin, end;
  bool match;
} aci_span;

struct aci_encode_scratch {
  const ac_tokenizer *t;
  aci_encode_scratch *next;
  aci_regex_cache *rx[ACI_REGEXES];
  aci_text a, b, x, y; /* the text and the next one. Of one piece while it is normalised */
  aci_pieces p, q;
  aci_span *span;
  size_t n_span, cap_span;
  uint32_t *point; /* decomposed characters, and their classes */
  int8_t *change;
  uint8_t *class;
  size_t cap_point;
  aci_token *token;
  size_t n_token, cap_token;
  bool track;
  /* words met before */
  aci_word *word;
  char *key;
  aci_token *memory;
  uint32_t n_key, n_memory;
  /* models */
  aci_symbol *symbol;
  size_t n_symbol, cap_symbol;
  aci_queued *heap, *skip;
  size_t n_heap, cap_heap, n_skip, cap_skip;
  aci_reach *reach;
  size_t cap_reach;
  uint64_t random;
};

ac_status aci_encode_scratch_get(const ac_tokenizer *t, aci_encode_scratch **out, ac_err *e);
void aci_encode_scratch_put(const ac_tokenizer *t, aci_encode_scratch *w);
void aci_encode_scratch_list_drop(ac_tokenizer *t); /* invalidates their cached words */
ac_status aci_no_memory(ac_err *e);
/* Room for n entries of size bytes. The contents stay. */
bool aci_grow(void **p, size_t *cap, size_t n, size_t size);
#define ACI_GROW(p, cap, n) ((n) <= (cap) || aci_grow((void **)&(p), &(cap), (n), sizeof *(p)))

/* ---- the way of a text ---- */
ac_status aci_normalize(aci_encode_scratch *w, const aci_text *src, uint32_t begin, uint32_t end,
                        aci_text **out, ac_err *e);
ac_status aci_normalize_form(aci_encode_scratch *w, aci_text *in, aci_text *out, bool compatible,
                             bool compose, ac_err *e);
ac_status aci_charsmap_new(const char *base64, size_t n, aci_charsmap **out, ac_err *e);
void aci_charsmap_free(aci_charsmap *m);
ac_status aci_charsmap_apply(const aci_charsmap *m, aci_text *in, aci_text *out, bool *changed,
                             ac_err *e);
/* The replacement of the longest beginning of s that has one. *length: its bytes. NULL: none. */
const char *aci_charsmap_longest(const aci_charsmap *m, const char *s, size_t n, size_t *length);
/* w->a, w->p in and out. */
ac_status aci_added_find(aci_encode_scratch *w, bool normalised, bool split_special, ac_err *e);
ac_status aci_pre_tokenize(aci_encode_scratch *w, bool keep_raw, ac_err *e);
ac_status aci_tokenize_piece(aci_encode_scratch *w, const char *s, uint32_t n, uint32_t at,
                             ac_err *e);
ac_status aci_bpe(aci_encode_scratch *w, const char *s, uint32_t n, uint32_t at, ac_err *e);
ac_status aci_wordpiece(aci_encode_scratch *w, const char *s, uint32_t n, uint32_t at, ac_err *e);
ac_status aci_unigram(aci_encode_scratch *w, const char *s, uint32_t n, uint32_t at, ac_err *e);
bool aci_token_add(aci_encode_scratch *w, uint32_t id, uint32_t begin, uint32_t end,
                   bool as_written);

/* ---- ByteLevel's alphabet ---- */
uint32_t aci_byte_char(unsigned char byte); /* the character that stands for it */
int aci_char_byte(uint32_t c);              /* -1: none */

/* ---- parts of a tokenizer that other files of text/ make ---- */
/* json: the text that the document was made of */
ac_status aci_read_model(ac_tokenizer *t, const aci_json *root, const char *json, size_t n,
                         ac_err *e);
ac_status aci_read_steps(ac_tokenizer *t, const aci_json *root, ac_err *e);
ac_status aci_read_post(ac_tokenizer *t, const aci_json *o, ac_err *e);
ac_status aci_read_pattern(ac_tokenizer *t, const aci_json *o, const char *where, aci_pattern *out,
                           ac_err *e);
ac_status aci_read_extras(ac_tokenizer *t, const aci_json *root,
                          ac_err *e); /* added tokens, truncation, padding */
typedef struct aci_fields aci_fields;
ac_status aci_sp_norm_new(const aci_fields *f, aci_sp_norm **out, ac_err *e);
void aci_sp_norm_free(aci_sp_norm *m);
ac_status aci_sp_normalize(const aci_sp_norm *m, const aci_text *in, aci_text *out, ac_err *e);
/* Bytes of the visible space at the beginning of s, or 0. */
size_t aci_sp_leading(const char *s, size_t n);
/* Bytes of the longest entry of a trie at s, or 0. *value: its value. */
uint32_t aci_longest(const aci_trie *t, const char *s, uint32_t n, int32_t *value);
void aci_model_fini(aci_model *m);
void aci_post_fini(aci_post *p);

/* Reading members of an object. `where` names it in messages ("normalizer"). */
struct aci_fields {
  const ac_tokenizer *t;
  const aci_json *o;
  const char *where;
};
ac_status aci_field_text(const aci_fields *f, const char *name, bool needed, ac_text *out,
                         ac_err *e); /* null, absent: s NULL */
ac_status aci_field_bool(const aci_fields *f, const char *name, int fallback, bool *out,
                         ac_err *e); /* fallback -1: needed */
ac_status aci_field_count(const aci_fields *f, const char *name, int64_t fallback, int64_t most,
                          int64_t *out, ac_err *e);
ac_status aci_field_char(const aci_fields *f, const char *name, uint32_t *out, ac_err *e);

/* config_members.c: between open and close, a member that no reader asks for is warned of. */
ac_status aci_members_open(ac_tokenizer *t, ac_err *e);
void aci_members_close(ac_tokenizer *t);
/* Readers of a tokenizer file take members by this function and not by aci_json_get. */
const aci_json *aci_member(const ac_tokenizer *t, const aci_json *o, const char *name);
/* Members that the format has and that change nothing, up to a NULL. */
void aci_members_unused(const aci_fields *f, const char *const *names);

#endif
