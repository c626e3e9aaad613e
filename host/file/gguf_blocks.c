/* Types of GGUF's tensors: how many bytes their blocks have, blocks to f32 and f32 to blocks.
 * Called by gguf.c and gguf_write.c. */
#include <math.h>
#include <string.h>

#include "base/vmath.h"
#include "file/gguf.h"

enum {
  BLOCK = 32,
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  BF16 = 30,
  N_TYPES = 31
};

static const aci_gguf_type types[N_TYPES] = {
    [F32] = {"F32", 1, 4, AC_F32},    [F16] = {"F16", 1, 2, AC_F16},
    [Q4_0] = {"Q4_0", BLOCK, 18, -1}, [Q4_1] = {"Q4_1", BLOCK, 20, -1},
    [Q5_0] = {"Q5_0", BLOCK, 22, -1}, [Q5_1] = {"Q5_1", BLOCK, 24, -1},
    [Q8_0] = {"Q8_0", BLOCK, 34, -1}, [9] = {"Q8_1", BLOCK, 36, -1},
    [10] = {"Q2_K", 256, 84, -1},     [11] = {"Q3_K", 256, 110, -1},
    [12] = {"Q4_K", 256, 144, -1},    [13] = {"Q5_K", 256, 176, -1},
    [14] = {"Q6_K", 256, 210, -1},    [15] = {"Q8_K", 256, 292, -1},
    [24] = {"I8", 1, 1, AC_I8},       [25] = {"I16", 1, 2, AC_I16},
    [26] = {"I32", 1, 4, AC_I32},     [27] = {"I64", 1, 8, AC_I64},
    [28] = {"F64", 1, 8, AC_F64},     [BF16] = {"BF16", 1, 2, AC_BF16},
};

const aci_gguf_type *aci_gguf_type_at(uint32_t number) {
  return number < N_TYPES && types[number].name != NULL ? &types[number] : NULL;
}

bool aci_gguf_can_read(uint32_t number) {
  return number == Q4_0 || number == Q4_1 || number == Q5_0 || number == Q5_1 || number == Q8_0;
}

static uint16_t get16(const unsigned char *p) { return (uint16_t)(p[0] | p[1] << 8); }
static float half_at(const unsigned char *p) { return aci_f16_to_f32(get16(p)); }
static void put_half(unsigned char *p, float v) {
  const uint16_t h = aci_f32_to_f16(v);
  p[0] = (unsigned char)h;
  p[1] = (unsigned char)(h >> 8);
}

/* Nibbles: the low ones are elements 0 .. 15, the high ones 16 .. 31. bits: the fifth of each, or
 * 0. */
static void nibbles(const unsigned char *q, uint32_t bits, int zero, float d, float m, float *y) {
  for (int j = 0; j < BLOCK / 2; j++) {
    const int low = (q[j] & 15) | (int)(bits >> j & 1) << 4,
              high = q[j] >> 4 | (int)(bits >> (j + 16) & 1) << 4;
    y[j] = (float)(low - zero) * d + m;
    y[j + BLOCK / 2] = (float)(high - zero) * d + m;
  }
}

static uint32_t get32(const unsigned char *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

void aci_gguf_to_f32(uint32_t number, const unsigned char *src, float *dst, int64_t n) {
  const int bytes = types[number].bytes;
  for (int64_t b = 0; b < n / BLOCK; b++) {
    const unsigned char *p = src + b * bytes;
    float *y = dst + b * BLOCK;
    const float d = half_at(p);
    switch (number) {
      case Q4_0: nibbles(p + 2, 0, 8, d, 0, y); break;
      case Q4_1: nibbles(p + 4, 0, 0, d, half_at(p + 2), y); break;
      case Q5_0: nibbles(p + 6, get32(p + 2), 16, d, 0, y); break;
      case Q5_1: nibbles(p + 8, get32(p + 4), 0, d, half_at(p + 2), y); break;
      default: /* Q8_0 */
        for (int j = 0; j < BLOCK; j++) y[j] = (float)(int8_t)p[2 + j] * d;
    }
  }
}

/* A block with a NaN or an infinity has the scale NaN: ac_quantize_4bit and its kind do the same
 * (ops/quant/nonfinite.h). */
static bool not_finite(const float *x, unsigned char *p, int codes) {
  bool finite = true;
  for (int j = 0; j < BLOCK; j++) finite = finite && isfinite(x[j]);
  if (finite) return false;
  put_half(p, NAN);
  memset(p + 2, 0, (size_t)codes);
  return true;
}

static void block_q8_0(const float *x, unsigned char *p) {
  float most = 0;
  for (int j = 0; j < BLOCK; j++) most = fmaxf(most, fabsf(x[j]));
  const float d = most / 127, inverse = d != 0 ? 1 / d : 0;
  if (not_finite(x, p, BLOCK)) return;
  put_half(p, d);
  for (int j = 0; j < BLOCK; j++) p[2 + j] = (unsigned char)(int8_t)roundf(x[j] * inverse);
}

static int nibble(float v) { return v < 0 ? 0 : v > 15 ? 15 : (int)v; }

static void block_q4_0(const float *x, unsigned char *p) {
  float most = 0, signed_most = 0;
  for (int j = 0; j < BLOCK; j++)
    if (fabsf(x[j]) > most) most = fabsf(x[j]), signed_most = x[j];
  const float d = signed_most / -8, inverse = d != 0 ? 1 / d : 0;
  if (not_finite(x, p, BLOCK / 2)) return;
  put_half(p, d);
  for (int j = 0; j < BLOCK / 2; j++)
    p[2 + j] = (unsigned char)(nibble(x[j] * inverse + 8.5f) |
                               nibble(x[j + BLOCK / 2] * inverse + 8.5f) << 4);
}

void aci_gguf_from_f32(uint32_t number, const float *src, unsigned char *dst, int64_t n) {
  for (int64_t b = 0; b < n / BLOCK; b++) {
    if (number == Q8_0) block_q8_0(src + b * BLOCK, dst + b * types[Q8_0].bytes);
    else block_q4_0(src + b * BLOCK, dst + b * types[Q4_0].bytes);
  }
}
