/* CRC-32C by the instruction of SSE4.2 or Arm if there is one, otherwise by tables of eight. Called by file,
 * ckpt and track.
 *
 * Checksums are polynomials over GF(2) in reflected bit order: bit 31 is x^0. Appending n bytes
 * multiplies by x^(8n), which is how pieces are put together. */
#include "base/crc32c.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#define TARGET __attribute__((target("sse4.2")))
#define CRC_8_BYTES(c, v) _mm_crc32_u64(c, v)
#define CRC_BYTE(c, v) _mm_crc32_u8((uint32_t)(c), v)
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#define TARGET __attribute__((target("arch=armv8-a+crc")))
#define CRC_8_BYTES(c, v) __crc32cd((uint32_t)(c), v)
#define CRC_BYTE(c, v) __crc32cb((uint32_t)(c), v)
#endif

#define POLY 0x82F63B78u
#define ONE 0x80000000u /* x^0 */

/* Process constants, filled once. */
static uint32_t tables[8][256];
static uint32_t power_of_two[64]; /* x^(8 * 2^i) */
static uint32_t shift_block;      /* x^(8 * BLOCK) */
#if defined(TARGET)
static bool has_instruction;
#endif
static pthread_once_t once = PTHREAD_ONCE_INIT;
enum { BLOCK = 4096 };

/* a * b mod P */
static uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t r = 0;
  for (int i = 31; i >= 0; i--) { /* x^0 of a first */
    r ^= b & -(a >> i & 1);
    b = b >> 1 ^ (POLY & -(b & 1)); /* b *= x */
  }
  return r;
}

/* x^(8n) mod P */
static uint32_t power(uint64_t n) {
  uint32_t r = ONE;
  for (int i = 0; n != 0; i++, n >>= 1)
    if (n & 1) r = multiply(r, power_of_two[i]);
  return r;
}

static void prepare(void) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t c = i;
    for (int k = 0; k < 8; k++) c = c >> 1 ^ (POLY & -(c & 1));
    tables[0][i] = c;
  }
  for (int t = 1; t < 8; t++)
    for (int i = 0; i < 256; i++)
      tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 255];
  power_of_two[0] = ONE >> 8;
  for (int i = 1; i < 64; i++) power_of_two[i] = multiply(power_of_two[i - 1], power_of_two[i - 1]);
  shift_block = power(BLOCK);
#if defined(__x86_64__)
  __builtin_cpu_init();
  has_instruction = __builtin_cpu_supports("sse4.2");
#elif defined(__aarch64__)
  has_instruction = (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#endif
}

static uint32_t by_table(uint32_t c, const unsigned char *p, size_t n) {
  for (; n >= 8; p += 8, n -= 8) {
    uint32_t lo =
        c ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
    c = tables[7][lo & 255] ^ tables[6][lo >> 8 & 255] ^ tables[5][lo >> 16 & 255] ^
        tables[4][lo >> 24] ^ tables[3][p[4]] ^ tables[2][p[5]] ^ tables[1][p[6]] ^ tables[0][p[7]];
  }
  for (; n > 0; p++, n--) c = c >> 8 ^ tables[0][(c ^ *p) & 255];
  return c;
}

#if defined(TARGET)
static uint64_t load64(const unsigned char *p) {
  uint64_t v;
  memcpy(&v, p, sizeof v);
  return v;
}

/* The instruction takes 3 cycles but starts one each cycle: three blocks go side by side and are
 * joined after. */
TARGET static uint32_t by_instruction(uint32_t c, const unsigned char *p, size_t n) {
  for (; n >= 3 * BLOCK; p += 3 * BLOCK, n -= 3 * BLOCK) {
    uint64_t a = c, b = 0, d = 0;
    for (size_t i = 0; i < BLOCK; i += 8) {
      a = CRC_8_BYTES(a, load64(p + i));
      b = CRC_8_BYTES(b, load64(p + BLOCK + i));
      d = CRC_8_BYTES(d, load64(p + 2 * BLOCK + i));
    }
    c = multiply(multiply((uint32_t)a, shift_block) ^ (uint32_t)b, shift_block) ^ (uint32_t)d;
  }
  uint64_t a = c;
  for (; n >= 8; p += 8, n -= 8) a = CRC_8_BYTES(a, load64(p));
  c = (uint32_t)a;
  for (; n > 0; p++, n--) c = CRC_BYTE(c, *p);
  return c;
}
#endif

uint32_t aci_crc32c(uint32_t crc, const void *p, size_t n) {
  pthread_once(&once, prepare);
#if defined(TARGET)
  if (has_instruction) return ~by_instruction(~crc, p, n);
#endif
  return ~by_table(~crc, p, n);
}

uint32_t aci_crc32c_by_table(uint32_t crc, const void *p, size_t n) {
  pthread_once(&once, prepare);
  return ~by_table(~crc, p, n);
}

uint32_t aci_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t n_b) {
  pthread_once(&once, prepare);
  return multiply(crc_a, power(n_b)) ^ crc_b;
}
