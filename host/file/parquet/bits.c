/* Packed integers of Parquet: runs and groups of bits, deltas. */
#include "file/parquet/parquet.h"

static bool varint(const uint8_t **p, const uint8_t *end, uint64_t *out) {
  *out = 0;
  for (int shift = 0; shift < 64 && *p < end; shift += 7) {
    const uint8_t b = *(*p)++;
    *out |= (uint64_t)(b & 0x7F) << shift;
    if (b < 0x80) return true;
  }
  return false;
}

/* `width` bits at bit `at` of p, which has n bytes. */
static uint64_t bits_at(const uint8_t *p, size_t n, uint64_t at, int width) {
  const size_t i = (size_t)(at >> 3);
  const int shift = (int)(at & 7);
  uint64_t v;
  if (width == 0) return 0;
  if (i + 8 <= n) {
    v = aci_load_u64(p + i) >> shift;
  } else {
    v = 0;
    for (size_t k = 0; i + k < n; k++) v |= (uint64_t)p[i + k] << (8 * k);
    v >>= shift;
  }
  if (shift + width > 64 && i + 8 < n) v |= (uint64_t)p[i + 8] << (64 - shift);
  return width == 64 ? v : v & (((uint64_t)1 << width) - 1);
}

ac_status aci_pq_hybrid(const uint8_t *p, const uint8_t *end, int width, int64_t n, uint32_t *out,
                        ac_err *e) {
  uint64_t head;
  if (width > 32) return AC_FAIL(e, PARSE, "packed numbers of %d bits", width);
  for (int64_t at = 0; at < n;) {
    if (!varint(&p, end, &head) || head < 2)
      return AC_FAIL(e, PARSE, "packed numbers end after %lld of %lld", (long long)at,
                     (long long)n);
    const uint64_t count = head >> 1;
    if (head & 1) { /* groups of 8, the last one may be cut after the values that it has */
      const uint64_t needed = ((uint64_t)(n - at) + 7) / 8,
                     groups = count < needed ? count : needed;
      const size_t bytes = (size_t)groups * (size_t)width, left = (size_t)(end - p);
      const size_t have = bytes < left ? bytes : left;
      const int64_t k = count < needed ? (int64_t)count * 8 : n - at;
      if ((uint64_t)k * (uint64_t)width > (uint64_t)have * 8)
        return AC_FAIL(e, PARSE, "packed numbers are cut off");
      for (int64_t i = 0; i < k; i++)
        out[at + i] = (uint32_t)bits_at(p, have, (uint64_t)i * (uint64_t)width, width);
      at += k;
      p += have;
    } else {
      const int bytes = (width + 7) / 8;
      uint32_t v = 0;
      if (end - p < bytes) return AC_FAIL(e, PARSE, "a run of numbers is cut off");
      memcpy(&v, p, (size_t)bytes);
      p += bytes;
      if (width < 32 && v >> width != 0)
        return AC_FAIL(e, PARSE, "a run of a number that is too large");
      const int64_t k = count > (uint64_t)(n - at) ? n - at : (int64_t)count;
      for (int64_t i = 0; i < k; i++) out[at + i] = v;
      at += k;
    }
  }
  return AC_OK;
}

static int64_t zigzag(uint64_t v) { return (int64_t)(v >> 1 ^ (0 - (v & 1))); }

ac_status aci_pq_deltas(const uint8_t *p, const uint8_t *end, int64_t room, int64_t *out,
                        int64_t *n, size_t *used, ac_err *e) {
  const uint8_t *start = p;
  uint64_t block, minis, total, first;
  if (!varint(&p, end, &block) || !varint(&p, end, &minis) || !varint(&p, end, &total) ||
      !varint(&p, end, &first) || block == 0 || block > 1 << 20 || minis == 0 || minis > block ||
      block % minis != 0 || block / minis % 8 != 0)
    return AC_FAIL(e, PARSE, "the head of delta-encoded numbers is damaged");
  if (total > (uint64_t)room)
    return AC_FAIL(e, PARSE, "%llu delta-encoded numbers, expected %lld", (unsigned long long)total,
                   (long long)room);
  const int64_t each = (int64_t)(block / minis);
  uint64_t value = (uint64_t)zigzag(first);
  int64_t at = 0;
  *n = (int64_t)total;
  if (total > 0) out[at++] = (int64_t)value;
  while (at < *n) {
    uint64_t least;
    if (!varint(&p, end, &least) || (uint64_t)(end - p) < minis)
      return AC_FAIL(e, PARSE, "delta-encoded numbers are cut off");
    const uint8_t *widths = p;
    least = (uint64_t)zigzag(least);
    p += minis;
    for (uint64_t m = 0; m < minis && at < *n; m++) {
      const int width = widths[m];
      const size_t bytes = (size_t)each * (size_t)width / 8;
      if (width > 64 || bytes > (size_t)(end - p))
        return AC_FAIL(e, PARSE, "delta-encoded numbers are cut off");
      const int64_t k = *n - at < each ? *n - at : each;
      for (int64_t i = 0; i < k; i++) {
        value += least + bits_at(p, bytes, (uint64_t)i * (uint64_t)width, width);
        out[at++] = (int64_t)value;
      }
      p += bytes;
    }
  }
  *used = (size_t)(p - start);
  return AC_OK;
}
