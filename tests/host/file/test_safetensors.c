/* Refusing safetensors: each rule of the format is named, with the byte and the tensor. Files are built
 * here byte by byte; what is legal is read in test_safetensors_read.c. */
#include "host/file/st_file.h"

#include <sys/stat.h>
#include <unistd.h>

static int remove_file(void **state) {
  unlink(st_path());
  return 0;
}

/* ---- files as such ---- */
static void no_such_file(void **state) {
  ac_err e;
  ac_safetensors *f;
  unlink(st_path());
  assert_fails(ac_safetensors_open(st_path(), &f, &e), NOT_FOUND, "x.safetensors: cannot open: No such file",
               e);
  assert_null(f);
  char *folder = ac_test_tmp_path("."), *fifo = ac_test_tmp_path("pipe");
  assert_fails(ac_safetensors_open(folder, &f, &e), IO, "is a folder", e);
  unlink(fifo);
  assert_int_equal(mkfifo(fifo, 0600), 0);
  assert_fails(ac_safetensors_open(fifo, &f, &e), IO, "pipe: is a pipe, not a regular file",
               e); /* and does not wait for a writer */
  unlink(fifo);
  free(folder);
  free(fifo);
}

static void long_paths_keep_the_cause(void **state) {
  ac_err e;
  ac_safetensors *f;
  char path[3000];
  memset(path, 'd', sizeof path);
  for (size_t i = 100; i < sizeof path; i += 100) path[i] = '/';
  snprintf(path + sizeof path - 20, 20, "/last.safetensors");
  assert_fails(ac_safetensors_open(path, &f, &e), NOT_FOUND, "/last.safetensors: cannot open: No such file",
               e);
}

static void r1_eight_bytes(void **state) {
  for (size_t n = 0; n < 8; n++) {
    ac_test_write(st_path(), "\2\0\0\0\0\0\0", n);
    st_refused_file("R1", n, "fewer than 8", "short file");
  }
}

static void put_length(uint64_t n, off_t file_bytes) {
  unsigned char b[8];
  for (int i = 0; i < 8; i++) b[i] = (unsigned char)(n >> (8 * i));
  ac_test_write(st_path(), b, 8);
  assert_int_equal(truncate(st_path(), file_bytes), 0); /* the rest is a hole of zeros */
}

static void r2_header_limit(void **state) {
  put_length(100000001, 100000200);
  st_refused_file("R2", 0, "100000001 bytes, more than 100000000", "one too many");
  put_length(UINT64_MAX, 64);
  st_refused_file("R2", 0, "18446744073709551615", "all ones");
  put_length(UINT64_MAX - 7, 64); /* 8 + N wraps to 0 */
  st_refused_file("R2", 0, "18446744073709551608", "wraps");
  put_length((uint64_t)1 << 63, 64);
  st_refused_file("R2", 0, "9223372036854775808", "sign bit");
  put_length(100000000, 100000008); /* the limit itself is legal: what it holds is not */
  st_refused_file("R5", 8, "expected a value", "zeros");
}

static void r3_header_in_file(void **state) {
  ac_test_write(st_path(), "\3\0\0\0\0\0\0\0{}", 10);
  st_refused_file("R3", 0, "a header of 3 bytes in a file of 10", "cut");
  ac_test_write(st_path(), "\1\0\0\0\0\0\0\0", 8);
  st_refused_file("R3", 0, "a header of 1 bytes in a file of 8", "nothing behind the length");
  put_length(100000000, 100000007);
  st_refused_file("R3", 0, "100000000 bytes in a file of 100000007", "one byte short");
}

/* ---- the header's text ---- */
static void r4_utf8(void **state) {
  st_refused("{\"a^\xff\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, "R4", "not UTF-8");
  st_refused("{\"__metadata__\":{\"k\":\"^\xc0\x80\"}}", 0, "R4", "not UTF-8");         /* overlong */
  st_refused("{\"__metadata__\":{\"k\":\"^\xed\xa0\x80\"}}", 0, "R4", "not UTF-8");     /* surrogate */
  st_refused("{\"__metadata__\":{\"k\":\"^\xf4\x90\x80\x80\"}}", 0, "R4", "not UTF-8"); /* above U+10FFFF */
  st_refused("{}^\xe2\x82", 0, "R4", "not UTF-8"); /* cut off by the end of the header */
  st_refused("[^\x80]", 0, "R4", "not UTF-8");     /* before R5 */
}

#define A T("a", "U8", "[]", "0", "1")

static void r5_one_json_object(void **state) {
  st_refused("^[]", 0, "R5", "a list, not an object");
  st_refused("^1", 0, "R5", "an integer, not an object");
  st_refused(" ^\"a\"", 0, "R5", "a string, not an object");
  st_refused("^null", 0, "R5", "null, not an object");
  st_refused("^", 0, "R5", "ends too early");
  st_refused("  ^", 0, "R5", "ends too early");
  st_refused("{^", 0, "R5", "ends too early");
  st_refused("{" A "^", 1, "R5", "ends too early");
  st_refused("{" A ",^}", 1, "R5", "expected a key");
  st_refused("{" A "}^{}", 1, "R5", "more text");
  st_refused("{" A "}^x", 1, "R5", "more text");
  st_refused("^\xef\xbb\xbf{}", 0, "R5", "byte order mark");
  st_refused("{^/* c */}", 0, "R5", "expected a key");
  st_refused("{^'a':1}", 0, "R5", "expected a key");
  st_refused("{\"__metadata__\":{\"k\":^NaN}}", 0, "R5", "expected a value");
  st_refused("{\"a^\n\":1}", 0, "R5", "control character");
  st_refused("{\"^\\x61\":1}", 0, "R5", "unknown escape");
  st_refused("{\"^\\ud800\":1}", 0, "R5", "lone surrogate");
  st_refused("{\"a\":{\"dtype\":\"U8\" ^\"shape\":[]}}", 0, "R5", "tensor 'a': expected ',' or '}'");
  st_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1,^],\"data_offsets\":[0,1]}}", 1, "R5",
             "tensor 'a': expected a value");
  const char zero[] = "{}\0";
  st_put_n(zero, 3, 0); /* padding is white space, not zeros */
  st_refused_file("R5", 10, "more text", "zero padding");
}

static void r6_members(void **state) {
  st_refused("{\"a\":^1}", 0, "R6", "tensor 'a' is an integer, not an object");
  st_refused("{\"a\":^[]}", 0, "R6", "tensor 'a' is a list");
  st_refused("{\"a\":^null}", 0, "R6", "tensor 'a' is null");
  st_refused("{\"a\":{^}}", 0, "R6", "tensor 'a' lacks dtype");
  st_refused("{\"a\":{\"dtype\":\"U8\"^}}", 0, "R6", "tensor 'a' lacks shape");
  st_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[]^}}", 0, "R6", "tensor 'a' lacks data_offsets");
  st_refused("{\"a\":{\"shape\":[],\"data_offsets\":[0,1]^}}", 1, "R6", "tensor 'a' lacks dtype");
  st_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],^\"extra\":1}}", 1, "R6",
             "tensor 'a' has a key 'extra'");
  st_refused("{\"a\":{^\"Dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, "R6",
             "tensor 'a' has a key 'Dtype'");
  st_refused("{\"a\":{\"dtype\":^8,\"shape\":[],\"data_offsets\":[0,1]}}", 1, "R6",
             "tensor 'a': dtype is an integer, not a string");
  st_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":^1,\"data_offsets\":[0,1]}}", 1, "R6",
             "tensor 'a': shape is an integer, not a list");
  st_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":^{}}}", 1, "R6",
             "tensor 'a': data_offsets is an object");
  st_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0^]}}", 1, "R6",
             "data_offsets has 1 numbers, not 2");
  st_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[^]}}", 1, "R6",
             "data_offsets has 0 numbers, not 2");
  st_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1,^2]}}", 1, "R6",
             "data_offsets has more than 2");
  st_refused("{" A ",\"b\":{\"dtype\":\"U8\",\"shape\":[]^}}", 1, "R6", "tensor 'b' lacks data_offsets");
  st_refused("{\"__metadata__\":^[]}", 0, "R6", "__metadata__ is a list, not an object");
  st_refused("{\"__metadata__\":^\"x\"}", 0, "R6", "__metadata__ is a string, not an object");
  st_refused("{\"__metadata__\":^null}", 0, "R6", "__metadata__ is null");
  st_refused("{\"__metadata__\":{\"k\":^1}}", 0, "R6", "a value of __metadata__ is an integer, not a string");
  st_refused("{\"__metadata__\":{\"k\":^null}}", 0, "R6", "a value of __metadata__ is null");
  st_refused("{\"__metadata__\":{\"k\":^{\"a\":\"b\"}}}", 0, "R6", "a value of __metadata__ is an object");
}

static void r7_no_repeated_keys(void **state) {
  st_refused("{" A ",^" T("a", "U8", "[]", "1", "2") "}", 2, "R7", "duplicate key \"a\"");
  st_refused("{" A ",^" T("\\u0061", "U8", "[]", "1", "2") "}", 2, "R7", "duplicate key \"a\"");
  st_refused("{\"a\":{\"dtype\":\"U8\",^\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, "R7",
             "tensor 'a': duplicate key \"dtype\"");
  st_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],^\"sh\\u0061pe\":[]}}", 1, "R7",
             "tensor 'a': duplicate key \"shape\"");
  st_refused("{\"__metadata__\":{\"k\":\"1\",^\"k\":\"1\"}}", 0, "R7", "duplicate key \"k\"");
  st_refused("{\"__metadata__\":{}," A ",^\"__metadata__\":{}}", 1, "R7",
             "duplicate key \"__metadata__\"");
}

static void r8_plain_integers(void **state) {
  static const char *const bad[] = {"^-1",
                                    "^-0",
                                    "^1.0",
                                    "^1e0",
                                    "^01",
                                    "^00",
                                    "^9223372036854775808",
                                    "^18446744073709551615",
                                    "^1E+1",
                                    "^true",
                                    "^null",
                                    "^\"1\"",
                                    "^[1]",
                                    "^{}",
                                    "^0.0",
                                    "^1e999",
                                    "^-9223372036854775808"};
  char header[256];
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,%s],\"data_offsets\":[0,1]}}",
             bad[i]);
    st_refused(header, 1, "R8", "tensor 'a'");
    snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%s,1]}}",
             bad[i]);
    st_refused(header, 1, "R8", "tensor 'a'");
    snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,%s]}}",
             bad[i]);
    st_refused(header, 1, "R8", "tensor 'a'");
  }
  st_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[^-5],\"data_offsets\":[0,1]}}", 1, "R8",
             "a plain non-negative integer, got -5");
  st_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[^\"5\"],\"data_offsets\":[0,1]}}", 1, "R8",
             "a plain non-negative integer, got a string");
  st_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[^[[[[[5]]]]]],\"data_offsets\":[0,1]}}", 1, "R8",
             "got a list");
}

static void r9_sizes(void **state) {
  /* the fault of an object shows where it ends */
  st_refused("{\"a\":{\"dtype\":^\"F33\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, "R9",
             "tensor 'a' has the unknown dtype 'F33'");
  st_refused("{\"a\":{\"dtype\":^\"f32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, "R9",
             "unknown dtype 'f32'");
  st_refused("{\"a\":{\"dtype\":^\"\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, "R9", "unknown dtype ''");
  st_refused("{\"a\":{\"dtype\":^\"F32 \",\"shape\":[],\"data_offsets\":[0,4]}}", 4, "R9",
             "unknown dtype 'F32 '");
  st_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,1]^}}", 1, "R9",
             "tensor 'a': the size of its shape overflows");
  st_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775807,3],\"data_offsets\":[0,1]^}}", 1, "R9",
             "overflows");
  st_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1152921504606846976],\"data_offsets\":[0,0]^}}", 0, "R9",
             "overflows"); /* 2^65 bits */
  st_refused("{\"a\":{\"dtype\":\"F64\",\"shape\":[4294967296,4294967296,0],\"data_offsets\":[0,0]^}}", 0,
             "R9", "overflows");
  st_refused("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]^}}", 1, "R9",
             "tensor 'a': 12 bits are no whole bytes");
  st_refused("{\"a\":{\"dtype\":\"F6_E2M3\",\"shape\":[2],\"data_offsets\":[0,1]^}}", 1, "R9", "12 bits");
  st_refused("{\"a\":{\"dtype\":\"F6_E3M2\",\"shape\":[],\"data_offsets\":[0,1]^}}", 1, "R9", "6 bits");
  st_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]^}}", 4, "R9",
             "tensor 'a': offsets 0 to 4 do not span the 8 bytes");
  st_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,1]^}}", 1, "R9",
             "0 to 1 do not span the 0 bytes");
  st_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]^}}", 1, "R9",
             "1 to 0 do not span");
  st_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775807],\"data_offsets\":[1,0]^}}", 1, "R9",
             "overflows");
  st_refused("{" A ",\"b\":{\"dtype\":\"I16\",\"shape\":[],\"data_offsets\":[1,2]^}}", 2, "R9", "tensor 'b'");
}

/* ---- the data ---- */
static void r10_no_holes_no_overlaps(void **state) {
  st_refused("{^" T("a", "U8", "[]", "1", "2") "}", 2, "R10",
             "tensor 'a' begins at 1 of the data, expected 0: a hole");
  st_refused("{" A ",^" T("b", "U8", "[1]", "2", "3") "}", 3, "R10",
             "tensor 'b' begins at 2 of the data, expected 1: a hole");
  st_refused("{^" T("b", "U8", "[1]", "2", "3") "," A "}", 3, "R10", "tensor 'b' begins at 2");
  st_refused("{" T("a", "U8", "[2]", "0", "2") ",^" T("b", "U8", "[2]", "1", "3") "}", 3, "R10",
             "tensor 'b' begins at 1 of the data, expected 2: an overlap");
  st_refused("{" A ",^" T("b", "U8", "[]", "0", "1") "}", 1, "R10",
             "tensor 'b' begins at 0 of the data, expected 1: an overlap");
  st_refused("{" T("a", "U8", "[4]", "0", "4") ",^" T("b", "U8", "[2]", "1", "3") "}", 4, "R10",
             "tensor 'b'"); /* inside */
  st_refused("{^" T("e", "U8", "[0]", "1", "1") "," T("a", "U8", "[2]", "0", "2") "}", 2, "R10",
             "tensor 'e'"); /* empty, inside */
  st_refused("{" A ",^" T("e", "U8", "[0]", "9", "9") "}", 1, "R10", "tensor 'e' begins at 9");
}

static void r11_ends_with_the_file(void **state) {
  st_put("{" A "}", 2);
  st_refused_file("R11", 8 + strlen("{" A "}") + 1, "tensor 'a' after 1 bytes, the file after 2",
                  "trailing byte");
  st_put("{" A "}", 0);
  st_refused_file("R11", 8 + strlen("{" A "}"), "tensor 'a' after 1 bytes, the file after 0", "missing byte");
  st_put("{}", 1);
  st_refused_file("R11", 10, "no tensor", "data of nobody");
  st_put("{" T("e", "F32", "[0]", "0", "0") "}", 4);
  st_refused_file("R11", 8 + strlen("{" T("e", "F32", "[0]", "0", "0") "}"), "tensor 'e' after 0",
                  "empty tensor");
  st_put("{" T("a", "U8", "[1152921504606846976]", "0", "1152921504606846976") "}",
         4); /* 2^60 bytes promised */
  st_refused_file("R11",
                  8 + strlen("{" T("a", "U8", "[1152921504606846976]", "0", "1152921504606846976") "}") + 4,
                  "tensor 'a' after 1152921504606846976 bytes", "promise");
}

static void r13_limits(void **state) {
  char header[4096], name[1100];
  st_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
             "1,1,1,^1],"
             "\"data_offsets\":[0,1]}}",
             1, "R13", "tensor 'a' has more than 32 dims");
  memset(name, 'n', sizeof name);
  name[1025] = 0;
  snprintf(header, sizeof header, "{^\"%s\":{}}", name);
  st_refused(header, 0, "R13", "a name of 1025 bytes, more than 1024");
  st_refused("{^\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, "R13",
             "tensor 'a?b' has a zero byte");
  st_refused("{\"__metadata__\":{^\"a\\u0000b\":\"\"}}", 0, "R13", "__metadata__ has a zero byte in 'a?b'");
  st_refused("{\"__metadata__\":{\"k\":^\"\\u0000\"}}", 0, "R13", "__metadata__ has a zero byte");
  /* depth: nothing may nest where the format does not */
  memset(header, '[', 2000);
  memcpy(header, "{\"a\":^", 6);
  header[2000] = 0;
  st_refused(header, 0, "R6", "tensor 'a' is a list");
  /* tensors <= N / 32 follows from the grammar: the shortest description of one is longer */
  assert_true(strlen("\"\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},") > 32);
}

/* Names in messages: cut at whole characters, and without bytes that move a terminal's cursor. */
static void names_in_messages(void **state) {
  st_refused("{\"a\\n\\u001b[2J\":^1}", 0, "R6", "tensor 'a??[2J' is an integer");
  char header[400] = "{\"", more[300];
  for (int i = 0; i < 40; i++) strcat(header, "\xe2\x82\xac"); /* 40 x 3 bytes */
  strcat(header, "\":^1}");
  memset(more, 0, sizeof more);
  for (int i = 0; i < 21; i++) strcat(more, "\xe2\x82\xac"); /* 63 bytes: a 22nd would be cut */
  strcat(more, "...' is an integer");
  st_refused(header, 0, "R6", more);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_such_file),
      cmocka_unit_test(long_paths_keep_the_cause),
      cmocka_unit_test(r1_eight_bytes),
      cmocka_unit_test(r2_header_limit),
      cmocka_unit_test(r3_header_in_file),
      cmocka_unit_test(r4_utf8),
      cmocka_unit_test(r5_one_json_object),
      cmocka_unit_test(r6_members),
      cmocka_unit_test(r7_no_repeated_keys),
      cmocka_unit_test(r8_plain_integers),
      cmocka_unit_test(r9_sizes),
      cmocka_unit_test(r10_no_holes_no_overlaps),
      cmocka_unit_test(r11_ends_with_the_file),
      cmocka_unit_test(r13_limits),
      cmocka_unit_test(names_in_messages),
  };
  return cmocka_run_group_tests(tests, NULL, remove_file);
}
