/* Formats of compressed files, by their first bytes and by their names. */
#include <string.h>
#include <strings.h>

#include "file/compress/compress.h"

static uint32_t le32(const unsigned char *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* The header of LZMA alone has no magic: properties of 5d, a dictionary of 2^n or 3 * 2^n bytes, and
 * a size that is unknown or below 256 GiB. */
static bool is_lzma(const unsigned char *p, size_t n) {
  if (n < 13 || p[0] != 0x5D) return false;
  uint32_t dict = le32(p + 1);
  if (dict < 4096) return false;
  while ((dict & 1) == 0) dict >>= 1;
  if (dict != 1 && dict != 3 && le32(p + 1) != UINT32_MAX) return false;
  return (le32(p + 5) == UINT32_MAX && le32(p + 9) == UINT32_MAX) || le32(p + 9) < 64;
}

const aci_unpacker *aci_unpacker_of(const unsigned char *p, size_t n) {
  /* Zstandard and LZ4 share the frames that readers skip: the first other one decides */
  while (n >= 8 && (le32(p) & 0xFFFFFFF0u) == 0x184D2A50u) {
    const uint64_t skip = 8 + (uint64_t)le32(p + 4);
    if (skip + 4 > n) return &aci_unpack_zstd;
    p += skip;
    n -= (size_t)skip;
  }
  if (n >= 2 && p[0] == 0x1F && p[1] == 0x8B) return &aci_unpack_gzip;
  if (n >= 4 && le32(p) == 0xFD2FB528u) return &aci_unpack_zstd;
  if (n >= 4 && le32(p) == 0x184D2204u) return &aci_unpack_lz4;
  if (n >= 5 && memcmp(p, "\xFD\x37\x7A\x58\x5A", 5) == 0) return &aci_unpack_xz;
  if (n >= 4 && memcmp(p, "BZh", 3) == 0 && p[3] >= '1' && p[3] <= '9') return &aci_unpack_bzip2;
  return is_lzma(p, n) ? &aci_unpack_lzma : NULL;
}

const char *aci_unpacker_named(const char *path) {
  static const char *const ends[][2] = {
      {".gz", "gzip"}, {".tgz", "gzip"},   {".zst", "zstd"},  {".tzst", "zstd"},
      {".xz", "xz"},   {".txz", "xz"},     {".lzma", "lzma"}, {".bz2", "bzip2"},
      {".lz4", "lz4"}, {".tbz2", "bzip2"}, {".zstd", "zstd"}, {".tbz", "bzip2"},
  };
  const size_t n = strlen(path);
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    const size_t k = strlen(ends[i][0]);
    if (n > k && strcasecmp(path + n - k, ends[i][0]) == 0) return ends[i][1];
  }
  return NULL;
}
