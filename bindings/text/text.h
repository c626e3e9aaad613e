/* Declarations shared by the bindings of accel/text.h: lac_text.c (tokenizers), lac_encoding.c,
 * lac_train.c over text_args.c. */
#ifndef LAC_TEXT_H
#define LAC_TEXT_H
#include "accel/text.h"
#include "bindings/core/lac.h"

#define LAC_TOKENIZER "accel.text.tokenizer"

typedef struct lac_tokenizer {
  ac_tokenizer *t;
} lac_tokenizer;
/* An encoding keeps its tokenizer, or, when it overflowed from another, that one, in its user
 * value. */
typedef struct lac_encoding {
  ac_encoding *x;
  bool borrowed; /* from its user value */
} lac_encoding;

/* Both push an empty userdata. An encoding keeps the value at `owner` alive. */
lac_tokenizer *lac_tokenizer_push(lua_State *L);
lac_encoding *lac_encoding_push(lua_State *L, int owner);
/* Strings of a list, which anchors them. */
void lac_text_list(lua_State *L, lac_state *S, int idx, const char *name, ac_text *out, size_t n);
/* Members of the table at idx: an integer from 0 on (absent: 0), whether one is set. */
uint32_t lac_text_count(lua_State *L, lac_state *S, int idx, const char *name);
bool lac_text_set(lua_State *L, int idx, const char *name);
/* {length = nil or n, multiple =, left =, id =, type_id =, token =} at idx. NULL: not a table. */
const ac_padding *lac_text_padding(lua_State *L, lac_state *S, int idx, ac_padding *p);

#endif
