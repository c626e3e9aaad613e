/* f32 to GGUF's Q4_K, Q5_K and Q6_K (their formulas: gguf_k.c). The table in gguf_blocks.c calls them with 256
 * finite values.
 *
 * The scales of the parts are fitted first, each by itself: for several steps around the plain one, codes are rounded
 * and the scale (and minimum) that then has the least weighted squared error is computed. The best of them counts.
 * Then the scales are rounded under the block's own, and codes are rounded once more for those that are stored. Larger
 * values weigh more: their error changes a product more. */
#include <math.h>
#include <string.h>

#include "file/gguf_types.h"

enum { K = 256, PART = 32, PARTS = 8, SHORT = 16, SHORTS = 16 };

/* v rounded to an integer (half to even), at least `least` (NaN too), at most `most`. Without a branch or a call, so
 * that loops become vector code. */
static inline float nearest(float v, float least, float most) {
  const float low = v > least ? v : least, cut = low > most ? most : low;
  return (cut + 0x1.8p23f) - 0x1.8p23f;
}

/* Scale and minimum (t >= 0) of 32 values, x = scale q - t with q in 0 .. most. */
static void fit_part(const float *x, float most, float *scale, float *t) {
  float low = 0, high = x[0], mean_square = 0, w[PART];
  for (int i = 0; i < PART; i++) {
    low = fminf(low, x[i]);
    high = fmaxf(high, x[i]);
    mean_square += x[i] * x[i];
  }
  const float usual = sqrtf(mean_square / PART);
  *scale = high > low ? (high - low) / most : 0;
  *t = -low;
  if (!(high > low)) return;
  for (int i = 0; i < PART; i++) w[i] = usual + fabsf(x[i]);
  float best = INFINITY;
  for (int step = 0; step <= 20; step++) {
    const float inverse = (most - 1 + 0.1f * (float)step) / (high - low);
    float sw = 0, sq = 0, sqq = 0, sx = 0, sxq = 0, sxx = 0;
    for (int i = 0; i < PART; i++) {
      const float q = nearest((x[i] - low) * inverse, 0, most);
      sw += w[i];
      sq += w[i] * q;
      sqq += w[i] * q * q;
      sx += w[i] * x[i];
      sxq += w[i] * x[i] * q;
      sxx += w[i] * x[i] * x[i];
    }
    const float det = sw * sqq - sq * sq;
    if (!(det > 0)) continue;
    float s = (sw * sxq - sx * sq) / det, m = (sqq * sx - sq * sxq) / det;
    if (m > 0) m = 0, s = sxq / sqq; /* minima are subtracted */
    const float error = sxx + s * s * sqq + m * m * sw - 2 * s * sxq - 2 * m * sx + 2 * s * m * sq;
    if (s > 0 && error < best) {
      best = error;
      *scale = s;
      *t = -m;
    }
  }
}

/* Scale and minimum of part j, 6 bits each of 12 bytes. */
static void put_scale_and_min(unsigned char *p, int j, int s, int t) {
  if (j < 4) {
    p[j] = (unsigned char)(p[j] | s);
    p[j + 4] = (unsigned char)(p[j + 4] | t);
  } else {
    p[j + 4] = (unsigned char)((s & 15) | (t & 15) << 4);
    p[j - 4] = (unsigned char)(p[j - 4] | s >> 4 << 6);
    p[j] = (unsigned char)(p[j] | t >> 4 << 6);
  }
}

/* high: fifth bits. NULL: four bits a code */
static void to_parts(const float *x, unsigned char *p, unsigned char *q, unsigned char *high,
                     int bytes) {
  const float most = high != NULL ? 31 : 15;
  float scale[PARTS], least[PARTS], top_scale = 0, top_least = 0;
  memset(p, 0, (size_t)bytes);
  for (int j = 0; j < PARTS; j++) {
    fit_part(x + PART * j, most, &scale[j], &least[j]);
    top_scale = fmaxf(top_scale, scale[j]);
    top_least = fmaxf(top_least, least[j]);
  }
  aci_gguf_put_half(p, top_scale / 63);
  aci_gguf_put_half(p + 2, top_least / 63);
  const float d = aci_gguf_half(p), m = aci_gguf_half(p + 2); /* as they are read */
  for (int j = 0; j < PARTS; j++) {
    const int s = d > 0 ? (int)nearest(scale[j] / d, 0, 63) : 0,
              t = m > 0 ? (int)nearest(least[j] / m, 0, 63) : 0;
    put_scale_and_min(p + 4, j, s, t);
    const float step = d * (float)s, moved = m * (float)t;
    for (int i = 0; i < PART; i++) {
      const int code = step > 0 ? (int)nearest((x[PART * j + i] + moved) / step, 0, most) : 0;
      unsigned char *at = &q[j / 2 * PART + i];
      *at = (unsigned char)(*at | (code & 15) << (j % 2 * 4));
      if (high != NULL) high[i] = (unsigned char)(high[i] | code >> 4 << j);
    }
  }
}

void aci_gguf_to_q4_k(const float *x, unsigned char *p) { to_parts(x, p, p + 16, NULL, 144); }
void aci_gguf_to_q5_k(const float *x, unsigned char *p) { to_parts(x, p, p + 48, p + 16, 176); }

/* The scale of 16 values, x = scale q with q in -32 .. 31. */
static float fit_short(const float *x) {
  float most = 0, signed_most = 0, best = 0, scale = 0;
  for (int i = 0; i < SHORT; i++)
    if (fabsf(x[i]) > most) most = fabsf(x[i]), signed_most = x[i];
  if (most == 0) return 0;
  for (int step = -9; step <= 9; step++) {
    const float inverse = -(32 + 0.1f * (float)step) / signed_most;
    float sxq = 0, sqq = 0;
    for (int i = 0; i < SHORT; i++) {
      const float q = nearest(x[i] * inverse, -32, 31), w = x[i] * x[i];
      sxq += w * x[i] * q;
      sqq += w * q * q;
    }
    if (sqq > 0 && sxq * sxq > best * sqq) { /* the error is the squares of x less this quotient */
      best = sxq * sxq / sqq;
      scale = sxq / sqq;
    }
  }
  return scale != 0 ? scale : signed_most / -32;
}

void aci_gguf_to_q6_k(const float *x, unsigned char *p) {
  unsigned char *low = p, *high = p + 128;
  float scale[SHORTS], top = 0, signed_top = 0;
  memset(p, 0, 210);
  for (int j = 0; j < SHORTS; j++) {
    scale[j] = fit_short(x + SHORT * j);
    if (fabsf(scale[j]) > top) top = fabsf(scale[j]), signed_top = scale[j];
  }
  aci_gguf_put_half(p + 208, signed_top / -128);
  const float d = aci_gguf_half(p + 208);
  if (d == 0) return;
  for (int j = 0; j < SHORTS; j++) {
    const int s = (int)nearest(scale[j] / d, -128, 127);
    p[192 + j] = (unsigned char)(int8_t)s;
    const float step = d * (float)s;
    for (int i = SHORT * j; i < SHORT * (j + 1); i++) {
      const int q = (step != 0 ? (int)nearest(x[i] / step, -32, 31) : 0) + 32;
      const int half = i / 128, row = i % 128 / 32, column = i % 32;
      unsigned char *nibble = &low[half * 64 + row % 2 * 32 + column],
                    *two = &high[half * 32 + column];
      *nibble = (unsigned char)(*nibble | (q & 15) << (row / 2 * 4));
      *two = (unsigned char)(*two | q >> 4 << (row * 2));
    }
  }
}
