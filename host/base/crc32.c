/* CRC-32 by carry-less multiplication or Arm's instruction if the CPU has it, otherwise by tables
 * of eight. Called by the reader of PyTorch's archives.
 *
 * Checksums are polynomials over GF(2) in reflected bit order. Four lanes of 16 bytes are
 * multiplied by x^512 modulo the polynomial and added to the data 64 bytes later. At the end they
 * are joined at a distance of x^128, and the remaining 16 bytes go through the tables. */
#include "base/crc32.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

#define POLY 0xEDB88320u

/* Process constants, filled once. */
static uint32_t tables[8][256];
static bool fast; /* the CPU has the instruction */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void prepare(void) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t c = i;
    for (int k = 0; k < 8; k++) c = c >> 1 ^ (POLY & -(c & 1));
    tables[0][i] = c;
  }
  for (int t = 1; t < 8; t++)
    for (int i = 0; i < 256; i++)
      tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 255];
#if defined(__x86_64__)
  __builtin_cpu_init();
  fast = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#elif defined(__aarch64__)
  fast = (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#endif
}

/* c: the inverted checksum so far. */
static uint32_t by_table(uint32_t c, const unsigned char *p, size_t n) {
  for (; n >= 8; n -= 8, p += 8) {
    uint32_t a =
        c ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
    c = tables[7][a & 255] ^ tables[6][a >> 8 & 255] ^ tables[5][a >> 16 & 255] ^
        tables[4][a >> 24] ^ tables[3][p[4]] ^ tables[2][p[5]] ^ tables[1][p[6]] ^ tables[0][p[7]];
  }
  for (; n > 0; n--) c = c >> 8 ^ tables[0][(c ^ *p++) & 255];
  return c;
}

#if defined(__x86_64__)
#define TARGET __attribute__((target("pclmul,sse4.1")))

TARGET static __m128i load(const unsigned char *p) {
  return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* Moves x forward to the position of `next`. by: x^(distance + 64) and x^distance modulo the
 * polynomial. */
TARGET static __m128i fold(__m128i x, __m128i by, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(x, by, 0x00), high = _mm_clmulepi64_si128(x, by, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* n >= 64 */
TARGET static uint32_t by_multiply(uint32_t c, const unsigned char *p, size_t n) {
  const __m128i by64 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4),
                by16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
  __m128i x[4];
  unsigned char rest[16];
  for (int i = 0; i < 4; i++) x[i] = load(p + 16 * i);
  x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)c));
  for (p += 64, n -= 64; n >= 64; p += 64, n -= 64)
    for (int i = 0; i < 4; i++) x[i] = fold(x[i], by64, load(p + 16 * i));
  for (int i = 1; i < 4; i++) x[0] = fold(x[0], by16, x[i]);
  for (; n >= 16; p += 16, n -= 16) x[0] = fold(x[0], by16, load(p));
  _mm_storeu_si128((__m128i *)(void *)rest, x[0]);
  return by_table(by_table(0, rest, sizeof rest), p, n);
}
#elif defined(__aarch64__)
__attribute__((target("arch=armv8-a+crc"))) static uint32_t
by_instruction(uint32_t c, const unsigned char *p, size_t n) {
  for (; n >= 8; p += 8, n -= 8) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    c = __crc32d(c, v);
  }
  for (; n > 0; p++, n--) c = __crc32b(c, *p);
  return c;
}
#endif

uint32_t aci_crc32(uint32_t crc, const void *data, size_t n) {
  pthread_once(&once, prepare);
#if defined(__x86_64__)
  if (fast && n >= 64) return ~by_multiply(~crc, data, n);
#elif defined(__aarch64__)
  if (fast) return ~by_instruction(~crc, data, n);
#endif
  return ~by_table(~crc, data, n);
}
