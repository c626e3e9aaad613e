/* GGUF's types with blocks of 256 elements, to f32: K-quants (Q2_K .. Q6_K, Q8_K), IQ4_XS, TQ1_0 and TQ2_0.
 * The table in gguf_blocks.c calls them. Each takes one block and gives 256 values.
 *
 * d and m are halves. A block's parts of 16 or 32 elements have scales s (and minima t) of a few bits:
 *   Q2_K  x = d s q - m t   16 parts of 16. s and t: nibbles. q: 2 bits
 *   Q3_K  x = d (s - 32) (q - 4)   16 of 16. s: 6 bits. q: 2 bits, and a third in a mask
 *   Q4_K  x = d s q - m t   8 of 32. s and t: 6 bits. q: nibbles
 *   Q5_K  the same with a fifth bit
 *   Q6_K  x = d s (q - 32)   16 of 16. s: i8. q: a nibble and 2 bits
 *   Q8_K  x = d q   d is f32, q i8
 *   IQ4_XS  x = d (s - 32) v[q]   8 of 32. s: 6 bits. v: the values of IQ4_NL
 *   TQ1_0, TQ2_0  x = d (q - 1)   q: five base-3 digits in a byte, or 2 bits
 * Every product and sum is rounded to f32 in this order, as llama.cpp's own decoder does. */
#include "file/gguf_types.h"

enum { K = 256 };

void aci_gguf_q2_k(const unsigned char *p, float *y) {
  const unsigned char *scales = p, *q = p + 16;
  const float d = aci_gguf_half(p + 80), m = aci_gguf_half(p + 82);
  for (int i = 0; i < K; i++) {
    const int sc = scales[i / 16], v = q[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    y[i] = d * (float)(sc & 15) * (float)v - m * (float)(sc >> 4);
  }
}

void aci_gguf_q3_k(const unsigned char *p, float *y) {
  const unsigned char *mask = p, *q = p + 32, *s = p + 96;
  const float d = aci_gguf_half(p + 108);
  for (int j = 0; j < 16; j++) {
    const int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4, high = s[8 + j % 4] >> (j / 4 * 2) & 3;
    const float scale = d * (float)((low | high << 4) - 32);
    for (int i = 16 * j; i < 16 * j + 16; i++) {
      const int v = q[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3,
                third = mask[i % 32] >> (i / 32) & 1;
      y[i] = scale * (float)(v - (third ? 0 : 4));
    }
  }
}

/* Scale and minimum of part j of Q4_K and Q5_K: 6 bits each of 12 bytes. */
static void scale_and_min(const unsigned char *s, int j, int *scale, int *min) {
  if (j < 4) {
    *scale = s[j] & 63;
    *min = s[j + 4] & 63;
  } else {
    *scale = (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
    *min = s[j + 4] >> 4 | s[j] >> 6 << 4;
  }
}

/* high: the fifth bits, one byte for all parts of a column. NULL: none */
static void parts_of_32(const unsigned char *p, const unsigned char *q, const unsigned char *high,
                        float *y) {
  const float d = aci_gguf_half(p), m = aci_gguf_half(p + 2);
  for (int j = 0; j < 8; j++) {
    int s, t;
    scale_and_min(p + 4, j, &s, &t);
    const float scale = d * (float)s, least = m * (float)t;
    for (int i = 0; i < 32; i++) {
      const int fifth = high != NULL ? high[i] >> j & 1 : 0;
      y[32 * j + i] = scale * (float)((q[j / 2 * 32 + i] >> (j % 2 * 4) & 15) | fifth << 4) - least;
    }
  }
}

void aci_gguf_q4_k(const unsigned char *p, float *y) { parts_of_32(p, p + 16, NULL, y); }
void aci_gguf_q5_k(const unsigned char *p, float *y) { parts_of_32(p, p + 48, p + 16, y); }

void aci_gguf_q6_k(const unsigned char *p, float *y) {
  const unsigned char *low = p, *high = p + 128, *scales = p + 192;
  const float d = aci_gguf_half(p + 208);
  for (int i = 0; i < K; i++) {
    const int half = i / 128, row = i % 128 / 32, column = i % 32;
    const int nibble = low[half * 64 + row % 2 * 32 + column] >> (row / 2 * 4) & 15;
    const int q = (nibble | (high[half * 32 + column] >> (row * 2) & 3) << 4) - 32;
    y[i] = d * (float)(int8_t)scales[i / 16] * (float)q;
  }
}

void aci_gguf_q8_k(const unsigned char *p, float *y) {
  const float d = aci_float32(aci_gguf_u32(p));
  for (int i = 0; i < K; i++) y[i] = d * (float)(int8_t)p[4 + i];
}

void aci_gguf_iq4_xs(const unsigned char *p, float *y) {
  const float d = aci_gguf_half(p);
  const int high = p[2] | p[3] << 8;
  for (int j = 0; j < 8; j++) {
    const int s = (p[4 + j / 2] >> (j % 2 * 4) & 15) | (high >> (2 * j) & 3) << 4;
    aci_gguf_nl_nibbles(p + 8 + 16 * j, d * (float)(s - 32), y + 32 * j);
  }
}

/* Digit n (from the highest) of five in a byte, or of four in the last bytes: the byte is the number of its
 * digits times 256 / 3^5, rounded up. */
static int digit(int byte, int n) {
  static const unsigned char power[5] = {1, 3, 9, 27, 81};
  return (unsigned char)(byte * power[n]) * 3 >> 8;
}

void aci_gguf_tq1_0(const unsigned char *p, float *y) {
  const float d = aci_gguf_half(p + 52);
  for (int n = 0; n < 5; n++)
    for (int i = 0; i < 32; i++) y[32 * n + i] = (float)(digit(p[i], n) - 1) * d;
  for (int n = 0; n < 5; n++)
    for (int i = 0; i < 16; i++) y[160 + 16 * n + i] = (float)(digit(p[32 + i], n) - 1) * d;
  for (int n = 0; n < 4; n++)
    for (int i = 0; i < 4; i++) y[240 + 4 * n + i] = (float)(digit(p[48 + i], n) - 1) * d;
}

void aci_gguf_tq2_0(const unsigned char *p, float *y) {
  const float d = aci_gguf_half(p + 64);
  for (int i = 0; i < K; i++)
    y[i] = (float)((p[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) - 1) * d;
}
