/* Fuzz entry of tokenizers: the input is a tokenizer.json, a NUL byte and a text. The file is refused with a reason, or
 * encodes the text with offsets that lie in it, decodes what it encoded, and does the same once written and read again.
 * Built with libFuzzer by clang, with driver.c otherwise (CMakeLists.txt here). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel/text.h"
#include "text/unicode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define REQUIRE(x) \
  if (!(x)) (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), abort())

static void check_encoding(const ac_encoding *x, uint32_t chars) {
  const size_t n = ac_encoding_length(x);
  const uint32_t *o = ac_encoding_offsets(x);
  for (size_t i = 0; i < n; i++) {
    size_t k;
    const char *token = ac_encoding_token(x, i, &k);
    REQUIRE(token != NULL && aci_utf8_valid(token, k));
    REQUIRE(ac_encoding_attention_mask(x)[i] <= 1 && ac_encoding_special_mask(x)[i] <= 1);
    REQUIRE(o[2 * i] <= o[2 * i + 1] && o[2 * i + 1] <= chars);
  }
  for (size_t i = 0; i < ac_encoding_n_overflowing(x); i++)
    check_encoding(ac_encoding_overflowing(x, i), chars);
}

static void decode(const ac_tokenizer *t, const ac_encoding *x) {
  const size_t n = ac_encoding_length(x);
  int64_t *ids = malloc((n + 2) * sizeof *ids);
  REQUIRE(ids != NULL);
  for (size_t i = 0; i < n; i++) ids[i] = ac_encoding_ids(x)[i];
  ids[n] = -1;
  ids[n + 1] = INT64_MAX;
  for (int skip = 0; skip < 2; skip++) {
    ac_err e;
    char *text;
    size_t k;
    REQUIRE(ac_tokenizer_decode(t, ids, n + 2, skip, &text, &k, &e) == AC_OK || e.code == AC_UNSUPPORTED);
    if (text != NULL) REQUIRE(aci_utf8_valid(text, k));
    free(text);
  }
  free(ids);
}

/* Scores of Unigram that have more digits than a double needs, or an exponent, may be one bit off once they are written
 * shorter: then two ways through a text that differ by rounding alone change places. */
static bool has_long_number(const char *s, size_t n) {
  size_t digits = 0;
  for (size_t i = 0; i < n; i++) {
    if (s[i] >= '0' && s[i] <= '9') digits++;
    else if (digits > 0 && (s[i] | 32) == 'e') return true;
    else if (s[i] != '.') digits = 0;
    if (digits > 15) return true;
  }
  return false;
}

static void encode(const ac_tokenizer *t, ac_text a, ac_text b, const ac_tokenizer *again, bool rounded) {
  ac_encode_options o = {.add_special_tokens = true,
                         .offsets = true,
                         .overflowing = true,
                         .truncation = ac_tokenizer_truncation(t),
                         .seed = 1};
  ac_encoding *x, *y;
  ac_err e, later;
  uint32_t chars = 0;
  for (size_t i = 0; i < a.n; i++) chars += ((unsigned char)a.s[i] & 0xC0) != 0x80;
  const ac_status st = ac_tokenizer_encode(t, a, b, &o, &x, &e);
  o.offsets = false;
  o.truncation = ac_tokenizer_truncation(again);
  REQUIRE(ac_tokenizer_encode(again, a, b, &o, &y, &later) == st);
  if (st != AC_OK) {
    REQUIRE((st == AC_INVALID || st == AC_UNSUPPORTED) && e.msg[0] != 0);
    return;
  }
  check_encoding(x, chars);
  REQUIRE(rounded || ac_encoding_length(x) == ac_encoding_length(y));
  if (!rounded && ac_encoding_length(x) > 0)
    REQUIRE(memcmp(ac_encoding_ids(x), ac_encoding_ids(y), ac_encoding_length(x) * sizeof(uint32_t)) == 0);
  ac_padding p = {.fixed = true, .length = 20, .multiple = 8, .left = a.n % 2};
  ac_encoding *const list[1] = {x};
  REQUIRE(ac_encoding_pad(list, 1, &p, &e) == AC_OK && ac_encoding_length(x) >= 20);
  check_encoding(x, chars);
  decode(t, x);
  ac_encoding_free(x);
  ac_encoding_free(y);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  ac_err e;
  ac_tokenizer *t, *again;
  const uint8_t *nul = memchr(data, 0, n);
  const size_t k = nul != NULL ? (size_t)(nul - data) : n;
  char *json = malloc(k + 1), *text = malloc(n - k + 1); /* so that a sanitizer sees any step beyond */
  REQUIRE(json != NULL && text != NULL);
  memcpy(json, data, k);
  const size_t n_text = nul != NULL ? n - k - 1 : 0;
  if (n_text > 0) memcpy(text, nul + 1, n_text);
  const ac_status st = ac_tokenizer_parse(json, k, &t, &e);
  if (st != AC_OK) {
    REQUIRE((st == AC_PARSE || st == AC_UNSUPPORTED || st == AC_INVALID) && t == NULL && e.msg[0] != 0);
  } else {
    char *written;
    size_t n_written;
    REQUIRE(ac_tokenizer_json(t, true, &written, &n_written, &e) == AC_OK);
    REQUIRE(ac_tokenizer_parse(written, n_written, &again, &e) == AC_OK);
    free(written);
    const ac_text whole = {text, n_text}, half = {text, n_text / 2};
    const bool rounded = strcmp(ac_tokenizer_model(t), "Unigram") == 0 && has_long_number(json, k);
    encode(t, whole, (ac_text){0}, again, rounded);
    if (aci_utf8_valid(text, n_text / 2)) encode(t, whole, half, again, rounded);
    ac_tokenizer_free(again);
    ac_tokenizer_free(t);
  }
  free(json);
  free(text);
  return 0;
}
