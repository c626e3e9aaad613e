/* Tokenizers through their C functions: the verdict on every file of the fuzzing corpus, batches on a team, long texts, memory
 * that is short. */
#include "support/test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel/text.h"

static ac_err e;

static void corpus(void **state) {
  char *dir = ac_test_source_path("tests/fuzz/corpus/tokenizer");
  DIR *d = opendir(dir);
  int good = 0, bad = 0;
  assert_non_null(d);
  for (struct dirent *x; (x = readdir(d)) != NULL;) {
    char path[2048];
    if (x->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", dir, x->d_name);
    size_t n;
    char *text = ac_test_read(path, &n);
    ac_tokenizer *t;
    const ac_status st = ac_tokenizer_parse(text, strlen(text), &t, &e);
    if (strncmp(x->d_name, "good_", 5) == 0) {
      if (st != AC_OK) fail_msg("%s is refused: %s", x->d_name, e.msg);
      good++;
    } else {
      if (st == AC_OK) fail_msg("%s is taken", x->d_name);
      assert_true(strlen(e.msg) > 10 && t == NULL);
      bad++;
    }
    ac_tokenizer_free(t);
    free(text);
  }
  closedir(d);
  free(dir);
  assert_true(good >= 12 && bad >= 30);
}

static const char words[] =
    "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[U]\",\"continuing_subword_prefix\":\"##\",\"max_"
    "input_chars_per_word\":100,"
    "\"vocab\":{\"[U]\":0,\"a\":1,\"##b\":2,\"b\":3}},\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"}}";

static void batches(void **state) {
  enum { N = 500 };
  ac_tokenizer *t;
  ac_team *team;
  ac_text texts[N];
  ac_encoding *out[N];
  char store[N][16];
  assert_ok(ac_tokenizer_parse(words, strlen(words), &t, &e), e);
  assert_ok(ac_team_new(4, &team, &e), e);
  for (int i = 0; i < N; i++) {
    const int n = snprintf(store[i], sizeof store[i], "%s%s", i % 2 ? "ab " : "b b ", i % 3 ? "a" : "x");
    texts[i] = (ac_text){store[i], (size_t)n};
  }
  const ac_encode_options o = {.add_special_tokens = true, .offsets = true};
  assert_ok(ac_tokenizer_encode_batch(t, team, N, texts, NULL, &o, out, &e), e);
  for (int i = 0; i < N; i++) {
    ac_encoding *one;
    assert_ok(ac_tokenizer_encode(t, texts[i], (ac_text){0}, &o, &one, &e), e);
    const size_t n = ac_encoding_length(one);
    assert_int_equal(ac_encoding_length(out[i]), n);
    assert_memory_equal(ac_encoding_ids(out[i]), ac_encoding_ids(one), n * sizeof(uint32_t));
    assert_memory_equal(ac_encoding_offsets(out[i]), ac_encoding_offsets(one), 2 * n * sizeof(uint32_t));
    ac_encoding_free(one);
    ac_encoding_free(out[i]);
  }
  /* one bad text: no encodings at all, and its story */
  texts[300] = (ac_text){"ab\xFF", 3};
  assert_fails(ac_tokenizer_encode_batch(t, team, N, texts, NULL, &o, out, &e), INVALID,
               "not valid UTF-8 at byte 3", e);
  for (int i = 0; i < N; i++) assert_null(out[i]);
  ac_team_free(team);
  ac_tokenizer_free(t);
}

/* One word of ten million letters, merged all the way; the work is n log n. */
static void long_word(void **state) {
  static const char merges[] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"aa\":1,\"aaaa\":2,"
                               "\"aaaaaaaa\":3},\"merges\":[\"a a\",\"aa aa\",\"aaaa aaaa\"]}}";
  const size_t n = 10000000;
  ac_tokenizer *t;
  ac_encoding *x;
  char *text = malloc(n);
  memset(text, 'a', n);
  assert_ok(ac_tokenizer_parse(merges, strlen(merges), &t, &e), e);
  const ac_encode_options o = {.offsets = false};
  assert_ok(ac_tokenizer_encode(t, (ac_text){text, n}, (ac_text){0}, &o, &x, &e), e);
  assert_int_equal(ac_encoding_length(x), n / 8);
  assert_null(ac_encoding_offsets(x));
  ac_encoding_free(x);
  ac_tokenizer_free(t);
  free(text);
}

static void added_tokens(void **state) {
  ac_tokenizer *t;
  ac_encoding *x;
  size_t added, n;
  assert_ok(ac_tokenizer_parse(words, strlen(words), &t, &e), e);
  const ac_added_token tokens[] = {{.content = "<s>", .n = 3, .special = true},
                                   {.content = "a", .n = 1, .single_word = true}};
  assert_ok(ac_tokenizer_add_tokens(t, tokens, 2, &added, &e), e);
  assert_int_equal(added, 2);
  assert_ok(ac_tokenizer_add_tokens(t, tokens, 2, &added, &e), e);
  assert_int_equal(added, 0);
  assert_int_equal(ac_tokenizer_vocab_size(t, false), 4);
  assert_int_equal(ac_tokenizer_vocab_size(t, true), 5);
  assert_int_equal(ac_tokenizer_id_limit(t), 5);
  assert_int_equal(ac_tokenizer_token_to_id(t, "<s>", 3), 4);
  assert_string_equal(ac_tokenizer_id_to_token(t, 4, &n), "<s>");
  assert_null(ac_tokenizer_id_to_token(t, 5, &n));
  assert_null(ac_tokenizer_id_to_token(t, -1, &n));
  const ac_encode_options o = {.offsets = true};
  assert_ok(ac_tokenizer_encode(t, (ac_text){"ab<s>a", 6}, (ac_text){0}, &o, &x, &e), e);
  static const uint32_t want[] = {1, 2, 4, 1};
  assert_int_equal(ac_encoding_length(x), 4);
  assert_memory_equal(ac_encoding_ids(x), want, sizeof want);
  ac_encoding_free(x);
  const ac_added_token bad = {.content = "\xFF", .n = 1};
  assert_fails(ac_tokenizer_add_tokens(t, &bad, 1, &added, &e), INVALID, "UTF-8", e);
  ac_tokenizer_free(t);
}

static void truncation(void **state) {
  ac_tokenizer *t;
  ac_encoding *x;
  assert_ok(ac_tokenizer_parse(words, strlen(words), &t, &e), e);
  ac_truncation p = {.max_length = 2, .stride = 1};
  const ac_encode_options o = {.offsets = true, .overflowing = true, .truncation = &p};
  assert_ok(ac_tokenizer_encode(t, (ac_text){"a b a b a", 9}, (ac_text){0}, &o, &x, &e), e);
  assert_int_equal(ac_encoding_length(x), 2);
  assert_int_equal(ac_encoding_n_overflowing(x), 3);
  assert_int_equal(ac_encoding_offsets(ac_encoding_overflowing(x, 2))[2], 8);
  ac_encoding_free(x);
  p.stride = 2;
  assert_fails(ac_tokenizer_encode(t, (ac_text){"a b a", 5}, (ac_text){0}, &o, &x, &e), INVALID,
               "stride 2 must be less", e);
  p = (ac_truncation){.max_length = 2, .strategy = AC_TRUNCATE_ONLY_SECOND};
  assert_fails(ac_tokenizer_encode(t, (ac_text){"a b a", 5}, (ac_text){0}, &o, &x, &e), INVALID,
               "second text", e);
  ac_tokenizer_free(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(corpus), cmocka_unit_test(batches),
                                     cmocka_unit_test(long_word), cmocka_unit_test(added_tokens),
                                     cmocka_unit_test(truncation)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
