/* GGUF's types IQ1, IQ2 and IQ3, to f32: blocks of 256 elements whose groups of 8 (IQ3: 4) are points of a set
 * (gguf_iq_points.c). The table in gguf_blocks.c calls them. Each takes one block and gives 256 values.
 *
 * d is a half, s the scale of a part, g an element of the point, +- its sign:
 *   IQ2_XXS  x = d (1/2 + s) / 4 * +-g   parts of 32. A word of 4 bytes numbers 4 points. Another has 7
 *            signs for each and s in 4 bits
 *   IQ2_XS   the same with parts of 16. Words of 2 bytes: 9 bits of a point, 7 signs
 *   IQ2_S    the same. 10 bits of a point, 8 signs
 *   IQ3_XXS  x = d (1/2 + s) / 2 * +-g   parts of 32. 8 bits of a point, 7 signs for 8 elements
 *   IQ3_S    x = d (1 + 2 s) * +-g   parts of 32. 9 bits of a point, 8 signs
 *   IQ1_S    x = d (2 s + 1) (g +- 1/8)   parts of 32 with one sign. 11 bits of a point, 3 of s
 *   IQ1_M    the same with parts of 16 and a sign for each point. d is in the high nibbles of the scales
 * Where 7 signs are stored, the number of minuses is even. Products are rounded to f32 in this order, as
 * in llama.cpp. */
#include "file/gguf_iq.h"
#include "file/gguf_types.h"

enum { PARTS = 8, PART = 32 };

/* 8 signs of 7: the last one makes the number of minuses even. */
static unsigned eight_signs(unsigned seven) {
  unsigned parity = seven ^ seven >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return seven | (parity & 1) << 7;
}

/* n elements of a point with signs, times a scale. */
static void signed_point(const signed char *g, int n, unsigned signs, float scale, float *y) {
  for (int j = 0; j < n; j++) {
    const float v = scale * (float)g[j];
    y[j] = signs >> j & 1 ? -v : v;
  }
}

static int nibble(const unsigned char *p, int i) { return p[i / 2] >> (i % 2 * 4) & 15; }

void aci_gguf_iq2_xxs(const unsigned char *p, float *y) {
  const signed char *set = aci_gguf_iq_points(ACI_GGUF_IQ2_XXS);
  const float d = aci_gguf_half(p);
  for (int part = 0; part < PARTS; part++) {
    const unsigned char *at = p + 2 + 8 * part;
    const uint32_t word = aci_gguf_u32(at + 4);
    const float scale = d * (0.5f + (float)(word >> 28)) * 0.25f;
    for (int i = 0; i < 4; i++)
      signed_point(set + 8 * at[i], 8, eight_signs(word >> (7 * i) & 127), scale,
                   y + PART * part + 8 * i);
  }
}

void aci_gguf_iq2_xs(const unsigned char *p, float *y) {
  const signed char *set = aci_gguf_iq_points(ACI_GGUF_IQ2_XS);
  const unsigned char *scales = p + 66;
  const float d = aci_gguf_half(p);
  for (int i = 0; i < 32; i++) {
    const unsigned word = aci_gguf_u16(p + 2 + 2 * i);
    const float scale = d * (0.5f + (float)nibble(scales, i / 2)) * 0.25f;
    signed_point(set + 8 * (word & 511), 8, eight_signs(word >> 9), scale, y + 8 * i);
  }
}

void aci_gguf_iq2_s(const unsigned char *p, float *y) {
  const signed char *set = aci_gguf_iq_points(ACI_GGUF_IQ2_S);
  const unsigned char *low = p + 2, *signs = p + 34, *high = p + 66, *scales = p + 74;
  const float d = aci_gguf_half(p);
  for (int i = 0; i < 32; i++) {
    const int point = low[i] | (high[i / 4] >> (i % 4 * 2) & 3) << 8;
    const float scale = d * (0.5f + (float)nibble(scales, i / 2)) * 0.25f;
    signed_point(set + 8 * point, 8, signs[i], scale, y + 8 * i);
  }
}

void aci_gguf_iq3_xxs(const unsigned char *p, float *y) {
  const signed char *set = aci_gguf_iq_points(ACI_GGUF_IQ3_XXS);
  const unsigned char *q = p + 2, *words = p + 66;
  const float d = aci_gguf_half(p);
  for (int i = 0; i < 64; i++) {
    const uint32_t word = aci_gguf_u32(words + i / 8 * 4);
    const float scale = d * (0.5f + (float)(word >> 28)) * 0.5f;
    const unsigned signs = eight_signs(word >> (i % 8 / 2 * 7) & 127);
    signed_point(set + 4 * q[i], 4, signs >> (i % 2 * 4), scale, y + 4 * i);
  }
}

void aci_gguf_iq3_s(const unsigned char *p, float *y) {
  const signed char *set = aci_gguf_iq_points(ACI_GGUF_IQ3_S);
  const unsigned char *q = p + 2, *high = p + 66, *signs = p + 74, *scales = p + 106;
  const float d = aci_gguf_half(p);
  for (int i = 0; i < 64; i++) {
    const int point = q[i] | (high[i / 8] >> (i % 8) & 1) << 8;
    const float scale = d * (float)(1 + 2 * nibble(scales, i / 8));
    signed_point(set + 4 * point, 4, (unsigned)signs[i / 2] >> (i % 2 * 4), scale, y + 4 * i);
  }
}

/* A point of IQ1, moved by an eighth. */
static void moved_point(int point, int down, float scale, float *y) {
  const signed char *g = aci_gguf_iq_points(ACI_GGUF_IQ1) + 8 * point;
  for (int j = 0; j < 8; j++) y[j] = scale * ((float)g[j] + (down ? -0.125f : 0.125f));
}

void aci_gguf_iq1_s(const unsigned char *p, float *y) {
  const unsigned char *low = p + 2, *high = p + 34;
  const float d = aci_gguf_half(p);
  for (int i = 0; i < 32; i++) {
    const unsigned word = aci_gguf_u16(high + i / 4 * 2);
    const float scale = d * (float)(2 * (word >> 12 & 7) + 1);
    moved_point((int)(low[i] | (word >> (i % 4 * 3) & 7) << 8), (int)(word >> 15), scale,
                y + 8 * i);
  }
}

void aci_gguf_iq1_m(const unsigned char *p, float *y) {
  const unsigned char *high = p + 32, *scales = p + 48;
  unsigned half = 0;
  for (int i = 0; i < 4; i++) half |= (unsigned)(scales[2 * i + 1] >> 4) << (4 * i);
  const float d = aci_f16_to_f32((uint16_t)half);
  for (int i = 0; i < 32; i++) {
    const int more = nibble(high, i), part = i / 2;
    const float scale =
        d * (float)(2 * (aci_gguf_u16(scales + part / 4 * 2) >> (part % 4 * 3) & 7) + 1);
    moved_point(p[i] | (more & 7) << 8, more >> 3, scale, y + 8 * i);
  }
}
