/* The inside of a BPE trainer, for train.c, which counts words and writes the file, and
 * train_merge.c, which learns. */
#ifndef ACI_TEXT_TRAIN_H
#define ACI_TEXT_TRAIN_H
#include "text/tokenizer.h"

typedef struct aci_pair_count {
  uint64_t pair; /* all ones: free */
  int64_t count;
} aci_pair_count;
/* One set of words in which a pair is to be merged. */
typedef struct aci_pair_entry {
  uint64_t pair;
  int64_t count;
  uint32_t *words, n;
} aci_pair_entry;
typedef struct aci_pair_change {
  uint64_t pair;
  uint32_t word;
} aci_pair_change;
typedef struct aci_train_word {
  uint64_t at; /* of its first symbol */
  uint32_t n;
  int64_t count;
} aci_train_word;

struct ac_bpe_trainer {
  ac_bpe_options o;
  ac_bpe_progress_fn progress;
  void *user;
  ac_text *special;
  char *special_text;
  aci_regex *regex;
  aci_regex_cache *cache;
  /* words: text in pieces that do not move, numbers in the map */
  char **block;
  size_t n_block, cap_block, left;
  aci_map map;
  int64_t *count;
  size_t cap_count;
  aci_strbuf prefixed;
  /* learning */
  aci_train_word *word;
  uint32_t *symbol;
  aci_pair_count *pairs;
  size_t n_pairs, cap_pairs;
  aci_pair_entry *heap;
  size_t n_heap, cap_heap;
  aci_pair_change *change;
  size_t n_change, cap_change;
  /* vocabulary: texts in ByteLevel's characters */
  struct {
    uint32_t n, chars;
  } * token;
  size_t n_token, cap_token;
  aci_map ids;
  char **kept; /* texts of ids, which the map borrows */
  size_t cap_kept;
  uint64_t *merge;
  size_t n_merge, cap_merge;
};

/* Makes the vocabulary and the list of merges from the words counted. */
ac_status aci_bpe_learn(ac_bpe_trainer *b, ac_err *e);

#endif
