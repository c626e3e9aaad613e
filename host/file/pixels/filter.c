/* Filters over neighbours: kernels of 3 x 3, and a Gaussian of three box blurs (P. Kovesi, Fast almost
 * Gaussian filtering), in Pillow's arithmetic. Called through pixels.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "file/pixels/pixels.h"

void aci_pixels_kernel3(const aci_pixels *src, const float kernel[9], float scale,
                        aci_pixels *dst) {
  const int64_t w = src->width, h = src->height, n = src->channels;
  float k[9];
  for (int i = 0; i < 9; i++) k[i] = kernel[i] / scale;
  memcpy(dst->p, src->p, (size_t)(w * h * n));
  for (int64_t y = 1; y < h - 1; y++)
    for (int64_t i = n; i < (w - 1) * n; i++) {
      const uint8_t *p = src->p + y * w * n + i, *up = p - w * n, *down = p + w * n;
      float sum = 0.5f;
      sum += (float)down[-n] * k[0] + (float)down[0] * k[1] + (float)down[n] * k[2];
      sum += (float)p[-n] * k[3] + (float)p[0] * k[4] + (float)p[n] * k[5];
      sum += (float)up[-n] * k[6] + (float)up[0] * k[7] + (float)up[n] * k[8];
      dst->p[y * w * n + i] = aci_clip8((int)sum);
    }
}

/* The radius of each of three boxes. */
static float box_radius(double sigma) {
  const float variance = (float)sigma * (float)sigma / 3;
  const float length = sqrtf(12.0f * variance + 1.0f), l = floorf((length - 1.0f) / 2.0f);
  float a = (2 * l + 1) * (l * (l + 1) - 3.0f * variance);
  a /= 6 * (variance - (l + 1) * (l + 1));
  return l + a;
}

/* n values at distance step, the ends repeated. */
static void box_line(const uint8_t *in, uint8_t *out, int64_t n, int64_t step, float radius) {
  const int64_t r = (int64_t)radius;
  const uint32_t full = (uint32_t)((float)(1 << 24) / (radius * 2 + 1));
  const uint32_t edge = ((1u << 24) - ((uint32_t)r * 2 + 1) * full) / 2;
#define AT(i) in[((i) < 0 ? 0 : (i) < n ? (i) : n - 1) * step]
  uint32_t sum = 0;
  for (int64_t i = -r; i <= r; i++) sum += AT(i);
  for (int64_t i = 0; i < n; i++) {
    const uint32_t bulk = sum * full + ((uint32_t)AT(i - r - 1) + AT(i + r + 1)) * edge;
    out[i * step] = (uint8_t)((bulk + (1u << 23)) >> 24);
    sum += (uint32_t)AT(i + r + 1) - AT(i - r);
  }
#undef AT
}

ac_status aci_pixels_blur(const aci_pixels *src, double sigma, aci_pixels *dst, ac_err *e) {
  const int64_t w = src->width, h = src->height, n = src->channels, row = w * n;
  const size_t bytes = (size_t)(row * h);
  uint8_t *a = malloc(bytes + 1), *b = dst->p;
  if (a == NULL) return AC_FAIL(e, OOM, "out of memory");
  memcpy(a, src->p, bytes);
  const float radius = box_radius(sigma);
  for (int pass = 0; pass < 6; pass++) { /* three along rows, three along columns */
    const bool down = pass >= 3;
    for (int64_t i = 0; i < (down ? row : h); i++)
      for (int64_t c = 0; c < (down ? 1 : n); c++) {
        const int64_t at = down ? i : i * row + c;
        box_line(a + at, b + at, down ? h : w, down ? row : n, radius);
      }
    uint8_t *other = a;
    a = b, b = other;
  }
  /* six swaps: a is the copy again and holds the result */
  memcpy(dst->p, a, bytes);
  free(a == dst->p ? b : a);
  return AC_OK;
}
