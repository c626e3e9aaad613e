/* Fuzz entry of tar archives, TFRecord files and Examples: any bytes are refused or read to their end. */
#include <string.h>

#include "base/crc32c.h"
#include "file/records/tar.h"
#include "file/records/tfrecord.h"
#include "temporary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static uint64_t sum;

static void on_feature(void *user, const aci_feature *x) {
  for (size_t i = 0; i < x->n_name; i++) sum += (uint8_t)x->name[i];
  if (x->event == ACI_FEATURE_VALUE && x->kind == ACI_FEATURE_BYTES)
    for (size_t i = 0; i < x->n_bytes; i++) sum += (uint8_t)x->bytes[i];
}

static void tar(const char *path, size_t n) {
  uint8_t buffer[700];
  ac_err e;
  aci_tar t;
  uint64_t members = 0;
  if (aci_tar_open(path, &t, &e) != AC_OK) return;
  while (aci_tar_next(&t, &e) == AC_OK && !t.ended) {
    REQUIRE(t.name.len > 0 && ++members <= n);
    size_t got = 1;
    while (members % 2 == 0 && got > 0)
      if (aci_tar_read(&t, buffer, sizeof buffer, &got, &e) != AC_OK) break;
  }
  aci_tar_close(&t);
}

static void tfrecord(const char *path) {
  uint8_t buffer[700];
  ac_err e;
  aci_content *s;
  uint64_t length;
  bool ended;
  if (aci_content_open(path, 0, &s, &e) != AC_OK) return;
  while (aci_tfrecord_next(s, &length, &ended, &e) == AC_OK && !ended) {
    uint32_t crc = 0;
    for (size_t got = 1; got > 0 && length > 0; length -= got) {
      const size_t most = length < sizeof buffer ? (size_t)length : sizeof buffer;
      if (aci_content_read(s, buffer, most, &got, &e) != AC_OK) break;
      crc = aci_crc32c(crc, buffer, got);
    }
    if (aci_tfrecord_end(s, crc, &e) != AC_OK) break;
  }
  aci_content_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  ac_err e;
  temporary file = temporary_of(data, n);
  tar(file.path, n);
  tfrecord(file.path);
  close(file.fd);
  uint8_t *exact = malloc(n == 0 ? 1 : n); /* so that a sanitizer sees any step beyond */
  REQUIRE(exact != NULL);
  if (n > 0) memcpy(exact, data, n);
  aci_example_read(exact, n, on_feature, NULL, &e);
  free(exact);
  return 0;
}
