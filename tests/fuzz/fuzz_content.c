/* Fuzz entry of compressed files and blocks: any bytes are refused, or have a content within the limit, the same in one piece and in
 * small ones. */
#include <string.h>

#include "file/compress/compress.h"
#include "temporary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { MOST = 1 << 20 };

/* The content read in pieces of `piece` bytes: its length and a sum, or 0 and the error in *st. */
static uint64_t read_all(const char *path, size_t piece, ac_status *st) {
  static uint8_t buffer[1 << 14];
  uint64_t sum = 0;
  ac_err e;
  aci_content *s;
  *st = aci_content_open(path, MOST, &s, &e);
  if (*st != AC_OK) return 0;
  for (size_t got = 1; got > 0;) {
    *st = aci_content_read(s, buffer, piece, &got, &e);
    if (*st != AC_OK) break;
    REQUIRE(got <= piece);
    for (size_t i = 0; i < got; i++) sum = sum * 31 + buffer[i] + 1;
  }
  aci_content_close(s);
  return *st == AC_OK ? sum : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static uint8_t out[4096];
  ac_err e;
  ac_status a, b;
  temporary file = temporary_of(data, n);
  const uint64_t whole = read_all(file.path, 1 << 14, &a), pieces = read_all(file.path, 977, &b);
  REQUIRE((a == AC_OK) == (b == AC_OK) && whole == pieces);
  close(file.fd);
  if (n < 2) return 0;
  uint8_t *exact = malloc(n - 1); /* so that a sanitizer sees any step beyond */
  REQUIRE(exact != NULL);
  memcpy(exact, data + 1, n - 1);
  aci_unpack_block((aci_block_codec)(data[0] % 7), exact, n - 1, out, (size_t)data[1] * 16, &e);
  free(exact);
  return 0;
}
