/* Fuzz entry of the manifests of checkpoints: any bytes are either refused or a list of files that may be, which survives being written
 * and read again. Each input is taken as it is, and as the text before the checksum, which is put behind it, so that changes get past it.
 * Built with libFuzzer by clang, with driver.c otherwise (CMakeLists.txt here). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "ckpt/ckpt_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define REQUIRE(x) \
  if (!(x)) (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), abort())

static void check_files(const aci_manifest *m, size_t n) {
  uint64_t sum = 0;
  REQUIRE(m->parts >= 1 && strlen(m->id) == ACI_CKPT_ID - 1 && (size_t)m->n <= n / 32);
  for (int i = 0; i < m->n; i++) {
    const char *name = m->file[i].name;
    REQUIRE(aci_ckpt_name_fault(name, strlen(name)) == NULL);
    REQUIRE(name[0] != '/' && strcmp(name, "..") != 0 && strncmp(name, "../", 3) != 0 && strstr(name, "/../") == NULL);
    REQUIRE(i == 0 || strcmp(m->file[i - 1].name, name) < 0);
    sum += m->file[i].bytes;
  }
  REQUIRE(sum == m->bytes && sum <= (uint64_t)1 << 62);
}

static void take(const char *text, size_t n, int part) {
  ac_err e;
  aci_manifest m = {.part = -1}, again = {.part = -1};
  char *copy = malloc(n + 1);
  REQUIRE(copy != NULL);
  memcpy(copy, text, n);
  copy[n] = 0;
  const ac_status st = aci_manifest_parse_take(&m, "fuzz", copy, n, part, &e);
  REQUIRE(st == AC_OK || st == AC_PARSE || st == AC_UNSUPPORTED);
  if (st == AC_OK) {
    aci_strbuf out = {0};
    check_files(&m, n);
    REQUIRE(aci_manifest_text(&m, m.state, &out, &e) == AC_OK);
    size_t k = 0;
    char *second = aci_strbuf_take(&out, &k);
    REQUIRE(aci_manifest_parse_take(&again, "fuzz", second, k, part, &e) == AC_OK);
    REQUIRE(again.n == m.n && again.bytes == m.bytes && strcmp(again.id, m.id) == 0 && again.parts == m.parts);
    for (int i = 0; i < m.n; i++) REQUIRE(strcmp(m.file[i].name, again.file[i].name) == 0 && m.file[i].crc32c == again.file[i].crc32c);
    aci_manifest_fini(&again);
  }
  aci_manifest_fini(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static const char key[] = "\"crc32c\": \"";
  take((const char *)data, n, -1);
  take((const char *)data, n, 1);
  char *sealed = malloc(n + sizeof key + 16);
  REQUIRE(sealed != NULL);
  if (n > 0) memcpy(sealed, data, n);
  memcpy(sealed + n, key, sizeof key - 1);
  const size_t k = n + sizeof key - 1;
  snprintf(sealed + k, 16, "%08x\"\n}\n", (unsigned)aci_crc32c(0, sealed, k));
  take(sealed, k + 12, -1);
  take(sealed, k + 12, 1);
  free(sealed);
  return 0;
}
